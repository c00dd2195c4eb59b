"""An application that uses everything public, with the types that it says it gets. Nothing runs it: it is checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import shardq
from shardq.pipelines import (
    DanglingEnd,
    DuplicateLink,
    Forward,
    InvalidPipeline,
    Link,
    LinkFunction,
    LinkReport,
    Pipeline,
    PipelineCycle,
    PipelinePool,
    PipelineReport,
    PipelineWorker,
    QueueDepth,
    Split,
    UndeclaredTarget,
    depths_of,
)
from shardq.planning import Choice, Plan, UnitCosts, Use, Wanted, plan, unit_costs
from shardq.schedules import CatchUp, Overlap, Schedule, Schedules
from shardq.tasks import (
    ArgumentsRejected,
    CurrentTask,
    Failure,
    InlineTasks,
    Middleware,
    Result,
    ResultMissing,
    ResultRejected,
    ResultTimeout,
    RetryPolicy,
    SentTask,
    Signature,
    Task,
    TaskCancelled,
    TaskFailed,
    TaskOptions,
    TaskPool,
    Tasks,
    TaskTimeout,
    TaskView,
    TaskWorker,
    UnknownTask,
    Workflow,
    WorkflowResult,
    WorkflowView,
    chain,
    chord,
    current_task,
    group,
)
from shardq.testing import BundleFactory, Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from shardq.topics import (
    Filter,
    InvalidFilter,
    Subscription,
    SubscriptionExists,
    SubscriptionNotFound,
    SubscriptionState,
    Topic,
    TopicExists,
    TopicMessage,
    TopicNotFound,
)
from shardq.worker import (
    PoolReport,
    ShellCommand,
    Worker,
    WorkerOptions,
    WorkerPool,
    WorkerReport,
    WorkersFailing,
)

ERRORS: tuple[type[shardq.ShardqError], ...] = (
    shardq.Closed, shardq.InvalidCursor, shardq.InvalidMessage, shardq.InvalidName, shardq.InvalidReceipt,
    shardq.InvalidSetting, shardq.MessageNotPending, shardq.MessageTooLarge, shardq.QueueExists,
    shardq.QueueNotFound, shardq.QueuePaused,
    shardq.RepeatTooLate, shardq.ReplayConflict, shardq.SchemaMismatch, shardq.StoreUnavailable,
    shardq.UnsupportedByStore, shardq.PermitTimeout, shardq.QueueFull, WorkersFailing, InvalidFilter,
    SubscriptionExists, SubscriptionNotFound, TopicExists, TopicNotFound,
)  # fmt: skip
SELECTING = (shardq.EditArguments, shardq.MessageFilter, shardq.QueuePattern)
OBSERVING = (shardq.AllHooks, shardq.HookCall, shardq.Observer)
CODECS: tuple[shardq.Codec, ...] = (shardq.BYTES, shardq.JSON, shardq.MSGPACK, shardq.TEXT)
HELPERS = (BundleFactory, Fault, FaultKind, FaultPlan, FaultyStore, WrappedStore)
PLANNING = (Choice, Plan, UnitCosts, Use, Wanted, plan, unit_costs)


ERRORS_OF_TASKS: tuple[type[shardq.ShardqError], ...] = (
    ArgumentsRejected, ResultMissing, ResultRejected, ResultTimeout, TaskCancelled, TaskTimeout, UnknownTask,
)  # fmt: skip


class Timed(Middleware):
    """Middleware of an application."""

    def around(self, task: CurrentTask, call: Callable[[], object]) -> object:
        print(task.name, task.id, task.deliveries)
        return call()


tasks = Tasks("sqlite:///tasks.db", middleware=[Timed()])


@tasks.task
def double(number: int) -> int:
    current_task().progress({"done": 1})
    current_task().check()
    stop: bool = current_task().cancelled
    return 0 if stop else 2 * number


def key_of(user: str) -> str:
    return user


@tasks.task(queue="mail", retry=RetryPolicy(attempts=3, delay=1.5), timeout=30, unique_key=key_of)
async def welcome(user: str) -> list[str]:
    return [user]


async def use_tasks(client: shardq.Client) -> None:
    tasks.bind(client)
    here: int = double(1)
    sent: Result[int] = double.send(number=2)
    later: Result[list[str]] = welcome.options(delay=60, priority=1, group="one").send("ada")
    names: list[str] = await welcome("ada")
    again: list[str] = await later
    calls: list[Signature[int]] = [double.signature(each) for each in range(3)]
    values: list[int] = [each.get(timeout=1.5) for each in double.send_many(calls)]
    inline: list[str] = welcome.call("ada")
    found: int = double.result(sent.id).get()
    done: bool = sent.cancel()
    options: TaskOptions = double.settings
    plain: Task[[int], int, int] = double
    try:
        sent.get()
    except TaskFailed as error:
        failure: Failure = error.failure
        print(failure.kind, failure.text, failure.traceback, failure.deliveries)
    print(
        here,
        names,
        again,
        values,
        inline,
        found,
        done,
        options.queue,
        plain.name,
        sent.state,
        sent.progress(),
    )
    sent.forget()
    flow: Workflow = chain(double.map([1, 2]), group(double.signature(1), double.then()))
    ended: WorkflowResult = chord([flow, double.signature(2)], double.then()).send(keep=60.0, delay=1)
    print(ended.id, ended.results, ended.get(timeout=1.5), await ended, ended.cancel())
    print(tasks.workflow(ended.id).state, list(ended.values()), ended.retry())
    ended.wait(timeout=1)
    views: list[TaskView] = ended.steps()
    print([(view.id, view.task, view.state, view.ended, view.seconds) for view in views])
    flows: list[WorkflowView] = tasks.workflows(state="failed", name="double", limit=10)
    print([(each.name, each.begun, each.ended, each.kept_until, each.failure) for each in flows])
    report: WorkerReport = TaskWorker(tasks, client, threads=4, idle_exit=0.5).run()
    pool: PoolReport = TaskPool("sqlite:///tasks.db", "shop:tasks", processes=2, threads=4).run()
    with InlineTasks(tasks, client) as within:
        waiting: list[SentTask] = within.sent()
        print(
            within.drain(raises=False).worked, waiting[0].name, waiting[0].arguments, waiting[0].message.body
        )
    print(report.worked, pool.restarts, tasks.drain(queues=["mail"]).worked)
    tasks.close()


class Seen(shardq.Hooks):
    """Hooks of an application."""

    def before_send(self, queue: str, messages: Sequence[shardq.OutgoingMessage]) -> None:
        print(queue, [message.body for message in messages])

    def after_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        print(queue, [message.id for message in messages])


def charge(message: shardq.Message) -> None:
    headers: shardq.Headers = message.headers
    language: shardq.HeaderValue | None = headers.get("language")
    print(
        message.body, language, message.due.isoformat(), message.receipt, message.dedupe_key, message.priority
    )
    message.extend(30)
    message.release(delay=1.5, reason="late")
    message.release(delay=60, count=False)
    last: bool = message.last_delivery
    if last:
        raise shardq.Discard("old")
    message.forward("others", body={"a": 2}, headers={"b": 1}, delay=5, priority=1, atomic=False)
    message.dead_letter("broken")
    message.ack()


def charge_all(batch: shardq.Batch) -> None:
    first: shardq.Message = batch[0]
    some: list[shardq.Message] = batch[:2]
    until: datetime | None = batch.lease_until
    batch.part(some).ack()
    for message in batch:
        message.ack()
    print(first, len(batch), batch.bodies, until)
    batch.release(delay=2)
    batch.release(delay=2, count=False)
    batch.forward("others", delay=1, priority=2)


def judge(message: shardq.Message, error: Exception) -> shardq.Outcome | None:
    print(message.id, error)
    return shardq.Snooze(60)


def send(producer: shardq.Producer) -> str:
    identity: str = producer.send({"a": 1}, priority=1, headers={"language": "en", "n": 1}, dedupe_key="one")
    try:
        ids: Sequence[str] = producer.send_many([1, 2, shardq.OutgoingMessage(body=3, delay=3)])
        print(ids[0], ids[1:])
    except shardq.PartialSend as error:
        print(error.stored, error.code, error.retryable)
        attempts: list[shardq.RetryToken | None] = [again.attempt for again in error.unsent]
        print(attempts)
    except shardq.OutcomeUnknown as error:
        producer.send(error.unsent[0])
    except shardq.QueueFull as full:
        print(full.messages, full.size)
    return identity


def send_a_film(producer: shardq.Producer, message: shardq.Message) -> bytes:
    options: shardq.SendArguments = {"headers": {"name": "Metropolis"}, "priority": 3}
    identity: str = producer.send_file("film.mp4", **options)
    with Path("film.mp4").open("rb") as stream:
        print(identity, producer.send_stream(stream, ttl=3_600))
    large: shardq.LargeBody | None = message.large
    try:
        with message.open() as film:
            print(film.seek(0), large.size if large else None)
            return film.read(10)
    except shardq.BodyNotFound:
        return b""


def send_one_of_a_key(producer: shardq.Producer) -> str:
    policy: shardq.OnConflict = "raise"
    try:
        return producer.send({"a": 1}, unique_key="customer-42", on_conflict=policy, ttl=60)
    except shardq.UniqueKeyTaken as taken:
        return taken.message_id


def hold(client: shardq.Client) -> None:
    semaphore: shardq.Semaphore = client.semaphore("smtp", permits=16, lease=30)
    state: shardq.SemaphoreState = semaphore.state()
    overflow: shardq.Overflow = "drop_oldest"
    client.create_queue("bounded", max_messages=1000, overflow=overflow, max_in_flight=10, rate_limit="100/s")
    on_dead_letter: shardq.OnDeadLetter = "block"
    try:
        client.create_queue("ordered", on_dead_letter=on_dead_letter)
    except shardq.UnreadableSettings as damaged:
        print(damaged.code)
    permit: shardq.Permit = semaphore.acquire(timeout=1)
    try:
        with permit:
            permit.check()
    except shardq.PermitLost:
        print(state, permit.lost)


def sell(client: shardq.Client, receipt: str) -> str:
    db = sqlite3.connect("queue.db")
    db.execute("INSERT INTO sold VALUES ('lamp')")
    with db, client.transaction(connection=db) as within:
        open_client: shardq.Client = within
        open_client.queue("sales").ack([receipt])
        return open_client.queue("sales").producer().send(b"lamp")


def evict_the_dead(queue: shardq.Queue) -> int:
    holders: tuple[shardq.ConsumerState, ...] = queue.consumers()
    try:
        return sum(queue.evict(each.id) for each in holders if not each.alive)
    except (shardq.ConsumerAlive, shardq.ConsumerNotFound):
        return queue.evict("worker-1", force=True)


def pipelines(client: shardq.Client) -> PipelineReport:
    def sort(message: shardq.Message) -> Forward | Split | None:
        return Split([Forward("b", message.body), b"x"]) if message.headers else Forward("c", delay=1.5)

    function: LinkFunction = sort
    pipeline: Pipeline = Pipeline("p", codec="json").link(
        "a", ["b", "c"], function, retry=shardq.Backoff(1, 60)
    )
    links: tuple[Link, ...] = pipeline.output("b").sink("c", lambda message: None).links
    try:
        pipeline.check()
    except (DanglingEnd, DuplicateLink, PipelineCycle, UndeclaredTarget, InvalidPipeline):
        print(links)
    depths: list[QueueDepth] = depths_of(pipeline, client, interval=1.5)
    print([(each.queue, each.waiting, each.dead, each.per_second) for each in depths])
    pool: PoolReport = PipelinePool("sqlite:///p.db", "shop:pipeline", processes=2, idle_exit=5.0).run()
    report = PipelineWorker(pipeline, client, batch=10, idle_exit=0).run()
    first: LinkReport = report.links["a"]
    print(pool.restarts, first.sent)
    return report


def schedule(client: shardq.Client, overlap: Overlap, catch_up: CatchUp) -> Schedule:
    schedules: Schedules = client.schedules
    try:
        return schedules.create("s", queue="q", every=60, overlap=overlap, catch_up=catch_up, body=b"x")
    except shardq.ScheduleExists:
        schedules.trigger("s")
        return schedules.alter("s", cron="@daily", time_zone="Europe/Berlin")
    except shardq.ScheduleNotFound:
        return schedules.list("q")[0]


def receive(consumer: shardq.Consumer) -> None:
    batch: shardq.Batch = consumer.receive(10, wait=1)
    for each in consumer.batches(10, wait=0):
        charge_all(each)
    one: shardq.Message | None = consumer.pop(wait=1)
    many: shardq.Batch = consumer.pop_many(10, wait=1)
    print(many.bodies)
    try:
        batch.ack()
    except shardq.LeaseLost as lost:
        print(lost.messages, one)
    consumer.stop()


def look(queue: shardq.Queue, identity: str) -> None:
    counts: shardq.QueueCounts = queue.counts()
    states: tuple[shardq.ShardState, ...] = queue.shard_states()
    shard: shardq.Shard = states[0].shard
    found: shardq.StoredMessage | None = queue.get(identity)
    print(queue.open(identity).readline())
    print(counts.ready, counts.oldest, shard.queue, found, queue.peek(3, codec=shardq.JSON))
    for event in queue.trace(identity):
        kind: shardq.EventKind = event.kind
        last: shardq.Event = event
        print(kind, last.at, last.owner, last.delivery, last.to)
    for stored in queue.history(since=datetime.now(UTC)):
        print(stored.id, stored.body, stored.state is shardq.EntryState.PROCESSED)


def manage(queue: shardq.Queue, receipts: list[str]) -> None:
    changed: int = queue.replay() + queue.redrive(3) + queue.sweep() + queue.purge()
    removed: bool = queue.remove("id")
    queue.ack(receipts, results={receipts[0]: {"sum": 6}}, codec=shardq.JSON)
    queue.release(receipts, delay=1)
    queue.extend(receipts, 30)
    queue.pause(sends=True)
    queue.resume()
    receipt: shardq.Receipt = shardq.Receipt.parse(receipts[0], queue.name)
    identity: shardq.MessageId = receipt.id
    print(changed, removed, identity.shard, identity.position)


def work(queue: shardq.Queue) -> None:
    report: WorkerReport = Worker(queue, charge, idle_exit=0, retry_delay=1).run()
    Worker(queue, charge_all, by_batch=True, codec=shardq.JSON).stop()
    Worker(queue, lambda message: print(message.body, message.headers)).run()
    Worker(queue, lambda batch: print(batch.bodies), by_batch=True).run()
    later = shardq.Retry(after=shardq.Backoff(1, 60), reason="busy")
    Worker(queue, charge, on_error={ConnectionError: later, ValueError: shardq.DeadLetter()}).run()
    print(
        report.worked,
        report.snoozed,
        report.discarded,
        WorkerOptions(batch=3, on_error=judge),
        ShellCommand("true"),
    )
    pool = WorkerPool("sqlite:///queue.db", "orders", "shop:charge", processes=2, on_progress=print)
    total: PoolReport = pool.run()
    print(total.total.worked)


def publish(client: shardq.Client) -> SubscriptionState:
    topic: Topic = client.create_topic("orders", retention=3600, exist_ok=True, codec=shardq.JSON)
    mail: Subscription = topic.subscribe(
        "mail", filter=Filter.of(["a.*", "b.>"], headers={"n": {">": 1}}), start="earliest", max_deliveries=3
    )
    topic.publish({"a": 1}, subject="a.b", headers={"n": 2}, dedupe_key="one")
    topic.publish_many([1, TopicMessage(body=2, subject="b.c")])
    print(
        topic.relay(wait=0.5), mail.seek("earliest").total_seconds(), client.topics(), topic.subscriptions()
    )
    mail.consumer(prefetch=10).close()
    return mail.state()


def main() -> None:
    clock: shardq.Clock = ManualClock()
    with shardq.connect("sqlite:///queue.db", hooks=Seen(), retry_seconds=3, clock=clock) as client:
        open_client: shardq.Client = client
        some: shardq.QueueSettingsArguments = {"shards": 4, "retention": None}
        queue = open_client.create_queue("orders", exist_ok=True, **some)
        settings: shardq.QueueSettings = queue.alter(
            max_deliveries=None, sends_paused=True, visibility_timeout=30
        )
        layout: shardq.Layout = settings.layout
        facts: tuple[shardq.Finding, ...] = client.diagnose()
        counters: shardq.Counters = client.counters
        print(layout.shards, facts[0].remedy, counters.sent, client.now(), client.queues("o"))
        with queue.producer(codec=shardq.JSON, linger=0.01) as producer:
            look(queue, send(producer))
            send_one_of_a_key(producer)
        hold(client)
        with queue.consumer(codec=shardq.JSON, prefetch=10, keep_leases=True) as consumer:
            receive(consumer)
        manage(queue, [])
        work(queue)


if __name__ == "__main__":
    main()
