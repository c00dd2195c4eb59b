// A queue of Keuss, driven by lines of JSON:
// {"do": "push", "body": base64, "count": N, "at_once": N}, {"do": "receive", "count": N, "at_once": N},
// {"do": "next", "milliseconds": N}, which answers with a body, and {"do": "ok"}, which acks it.
const readline = require('readline');
// The arguments are the backend and its options as JSON. With a number of milliseconds as third argument it polls that
// often, instead of being told.
const [backend, given, poll] = process.argv.slice(2);
const MQ = require('keuss/backends/' + backend);
const call = (self, method, ...words) =>
  new Promise((resolve, reject) => self[method](...words, (error, answer) => (error ? reject(error) : resolve(answer))));

async function many(count, atOnce, step) {
  let left = count;
  const worker = async () => { while (left-- > 0) await step(); };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

const options = JSON.parse(given);
if (poll) options.signaller = { provider: require('keuss/signal/local') };
MQ(options, async (error, factory) => {
  if (error) throw error;
  const queue = await call(factory, 'queue', 'bench', poll ? { pollInterval: Number(poll) } : {});
  let held;
  const answer = (value) => process.stdout.write(JSON.stringify(value) + '\n');
  readline.createInterface({ input: process.stdin }).on('line', async (line) => {
    const asked = JSON.parse(line);
    let size = 0;
    if (asked.do === 'push') {
      const body = Buffer.from(asked.body, 'base64');
      await many(asked.count, asked.at_once, () => call(queue, 'push', body, {}));
    } else if (asked.do === 'next') {
      held = await call(queue, 'pop', 'bench', { reserve: true, timeout: asked.milliseconds }).catch((error) => {
        if (!error.timeout) throw error;
      });
      return answer({ body: held ? Buffer.from(held.payload).toString('base64') : null });
    } else if (asked.do === 'ok') {
      await call(queue, 'ok', held);
    } else {
      await many(asked.count, asked.at_once, async () => {
        const item = await call(queue, 'pop', 'bench', { reserve: true });
        size += item.payload.length;
        await call(queue, 'ok', item);
      });
    }
    answer({ size });
  }).on('close', () => queue.drain(() => process.exit(0)));  // what it has not written yet
  answer({ ready: true });
});
