// A queue of Keuss, driven by lines of JSON: {"do": "push" | "receive", "count": N, "size": bytes, "at_once": N}.
const readline = require('readline');
const [backend, url] = process.argv.slice(2);
const MQ = require('keuss/backends/' + backend);
const call = (self, method, ...words) =>
  new Promise((resolve, reject) => self[method](...words, (error, answer) => (error ? reject(error) : resolve(answer))));

async function many(count, atOnce, step) {
  let left = count;
  const worker = async () => { while (left-- > 0) await step(); };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

MQ({ url }, async (error, factory) => {
  if (error) throw error;
  const queue = await call(factory, 'queue', 'bench', {});
  const answer = (value) => process.stdout.write(JSON.stringify(value) + '\n');
  readline.createInterface({ input: process.stdin }).on('line', async (line) => {
    const asked = JSON.parse(line);
    let size = 0;
    if (asked.do === 'push') {
      const body = Buffer.alloc(asked.size, 'x');
      await many(asked.count, asked.at_once, () => call(queue, 'push', body, {}));
    } else {
      await many(asked.count, asked.at_once, async () => {
        const item = await call(queue, 'pop', 'bench', { reserve: true });
        size += item.payload.length;
        await call(queue, 'ok', item);
      });
    }
    answer({ size });
  }).on('close', () => process.exit(0));
  answer({ ready: true });
});
