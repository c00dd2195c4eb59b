"""``shardq task`` lists, shows, cancels and retries tasks and workflows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.cli.task_drawing import as_text
from shardq.tasks import Result, ResultMissing, RetryPolicy, WorkflowResult, chain, chord, group, workflow
from shardq.tasks.views import TaskView
from tests.tasks.sums import Sums

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def client(url: str) -> Iterator[shardq.Client]:
    with shardq.connect(url) as client:
        yield client


@pytest.fixture
def run(url: str) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(main, ["--url", url, "task", *arguments])
        return result.exit_code, result.stdout, result.stderr

    return run


def test_tasks_and_workflows_that_wait_are_listed_queue_by_queue(run: Run, sums: Sums) -> None:
    assert run("list")[:2] == (0, "")
    sums.tasks.task_client.queue("others").producer().send(b"no task")
    single, flow = sums.add.send(1, 2), chain(sums.fail.signature(1), sums.add.then(1)).send()
    text = run("list")[1]
    assert f"add waiting 0 tasks {single.id}" in " ".join(text.split())
    assert f"shardq.workflow waiting 0 others {flow.id}" in " ".join(text.split())
    sums.tasks.drain(queues=["others"])
    found = json.loads(run("list", "tasks", "others.dead", "--json")[1])["tasks"]
    assert {(each["task"], each["queue"], each["state"]) for each in found} == {
        ("add", "tasks", "waiting"), ("fail", "others.dead", "failed"),
    }  # fmt: skip
    assert [
        each["failure"] for each in json.loads(run("list", "--state", "failed", "--json")[1])["tasks"]
    ] == [each["failure"] for each in found if each["state"] == "failed"]
    assert len(json.loads(run("list", "--limit", "1", "--json")[1])["tasks"]) == 1
    assert json.loads(run("list", "tasks", "others.dead", "tasks", "--json")[1])["tasks"] == found


def test_workflows_that_have_begun_are_listed_by_state_and_name(run: Run, sums: Sums) -> None:
    def listed(*arguments: str) -> list[str]:
        return [each["id"] for each in json.loads(run("list", "--json", *arguments)[1])["workflows"]]

    assert listed() == []
    done = group(sums.add.signature(1, 2), sums.add.signature(2, 2)).send(name="sums")
    failed = chain(sums.add.signature(1, 3), sums.fail.then()).send()
    sums.tasks.drain()
    waiting = chain(sums.add.options(queue="later").signature(1, 1), sums.add.then(1)).send()
    assert set(listed()) == set(listed("tasks", "others")) == {done.id, failed.id}
    assert listed("--state", "done") == listed("--name", "sums") == [done.id]
    assert listed("--state", "failed", "--name", "add", "--limit", "1") == [failed.id]
    assert listed("--state", "waiting") == listed("--name", "none") == listed("later") == []
    assert json.loads(run("list", "--json", "--state", "done")[1])["tasks"] == []
    assert waiting.id in run("list", "--state", "waiting")[1]
    assert f"{done.id}\n" in run("list", "--name", "sums")[1]
    assert run("show", failed.id)[1].splitlines()[0] == f"workflow {failed.id}  failed"


def test_a_task_is_shown_with_what_became_of_it(run: Run, sums: Sums) -> None:
    task, failing = sums.add.send(1, 2), sums.fail.send(1)
    assert json.loads(run("show", task.id, "--json")[1])["state"] == "waiting"
    sums.tasks.drain()
    shown = json.loads(run("show", task.id, "--json")[1])
    assert shown["state"] == "done"
    assert shown["seconds"] < 60
    assert "ValueError: not 1" in run("show", failing.id)[1]


def test_a_workflow_is_shown_as_a_tree_and_drawn(run: Run, sums: Sums) -> None:
    flow = chord(
        [sums.add.signature(1, 1), chain(sums.add.signature(1, 2), sums.fail.then())], sums.total.then()
    )
    result = chain(flow, group(sums.add.then(1), sums.add.then(2))).send()
    assert run("show", result.id)[1].splitlines()[0] == f"workflow {result.id}  waiting"
    sums.tasks.drain()
    code, text, _ = run("show", result.id)
    lines = text.splitlines()
    assert code == 0
    assert lines[0] == f"workflow {result.id}  failed"
    assert lines[1].startswith("0  add  done  20")
    assert [line[: len(line) - len(line.lstrip())] for line in lines[1:]] == [
        "",
        "",
        "   ",
        "      ",
        *["         "] * 2,
    ]
    assert "2  fail  failed" in lines[3]
    assert lines[4].endswith("after 0, 2")
    shown = json.loads(run("show", result.id, "--json")[1])
    assert [each["state"] for each in shown["steps"]] == ["done", "done", *["failed"] * 4]
    assert [each.state for each in result.steps()] == ["done", "done", *["failed"] * 4]
    mermaid = run("show", result.id, "--graph", "mermaid")[1]
    assert mermaid.startswith("flowchart LR")
    assert 's2["2 fail<br>failed"]:::failed' in mermaid
    assert "s1 --> s2" in mermaid
    drawn = ElementTree.fromstring(run("show", result.id, "--graph", "svg")[1])
    assert len(drawn.findall("{http://www.w3.org/2000/svg}g")) == 6


def test_a_task_that_has_failed_is_shown_with_its_arguments_its_traceback_and_its_attempts(
    run: Run, sums: Sums
) -> None:
    @sums.tasks.task(queue="others", retry=RetryPolicy(attempts=2, delay=0))
    def price(item: str) -> int:
        raise KeyError(item)

    def fields(identity: str) -> dict[str, str]:
        lines = run("show", identity)[1].partition("Traceback")[0].splitlines()
        return {line[:10].strip(): line[12:] for line in lines}

    result = price.send("tea")
    for _ in range(2):
        sums.tasks.drain()
    (dead,) = json.loads(run("list", "others.dead", "--json")[1])["tasks"]
    assert (dead["deliveries"], dead["sent_as"]) == (2, result.id)
    assert f"price failed 2 others.dead {dead['id']}" in " ".join(run("list")[1].split())
    by_task, by_dead_letter = fields(result.id), fields(dead["id"])
    for told in (by_task, by_dead_letter):
        assert (told["task"], told["call"], told["deliveries"]) == ("price", "price(item='tea')", "2")
        assert told["failure"] == "KeyError: 'tea'"
        assert re.fullmatch(r"[-\d]{10} [:\d]{8}", told["ended"])
        assert len(told["seconds"]) < 10
    assert "sent as" not in by_task
    assert by_dead_letter["sent as"] == result.id
    for identity in (result.id, dead["id"]):
        shown = run("show", identity)[1]
        assert "in price\n    raise KeyError(item)" in shown
        assert json.loads(run("show", identity, "--json")[1])["traceback"] in shown + "\n"


def test_the_dead_letter_of_a_task_whose_result_is_kept_no_longer_is_shown(run: Run, sums: Sums) -> None:
    result = sums.fail.options(keep_result=0).send(1)
    sums.tasks.drain()
    (dead,) = json.loads(run("list", "--json")[1])["tasks"]
    shown = json.loads(run("show", dead["id"], "--json")[1])
    assert (shown["task"], shown["state"], shown["sent_as"], shown["deliveries"]) == (
        "fail", "failed", result.id, 1,
    )  # fmt: skip
    assert shown["failure"] == "ValueError: not 1"


def test_the_steps_of_a_large_group_are_shown_bucket_by_bucket(
    run: Run, sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    start = sums.add.signature(1, 1)
    parts = [sums.add.then(number) for number in range(3)] + [sums.fail.then()]
    result = chain(start, group(*parts), group(sums.total.then(), sums.total.then())).send()
    sums.tasks.drain(queues=["tasks"])
    states = {each.number: each.state for each in result.steps()}
    assert states == {"0": "done", "1": "done", "2": "running", "3": "waiting", "4": "waiting"}
    text = run("show", result.id)[1]
    assert "2  bucket of 2 steps  running" in text
    assert "3  total  waiting  after 1-2" in text
    inner = json.loads(run("show", f"{result.id}#2", "--json")[1])["steps"]
    assert [(each["task"], each["state"]) for each in inner] == [("add", "done"), ("fail", "waiting")]
    assert [each.state for each in result.steps(f"{result.id}#2")] == ["done", "waiting"]
    assert "j3(( ))" in run("show", result.id, "--graph", "mermaid")[1]
    assert run("show", result.id, "--graph", "svg")[1].count("<path") == 6
    assert json.loads(run("show", f"{result.id}#0", "--json")[1])["state"] == "done"
    sums.tasks.task_client.client.queue("others").purge()
    assert result.steps(f"{result.id}#2")[1].state == "missing"
    with pytest.raises(ResultMissing):
        sums.tasks.workflow(sums.add.send(1, 1).id).steps()


def test_the_seconds_of_a_step_are_shown_without_an_exponent() -> None:
    steps = [
        TaskView(id=f"f#{seconds}", task="t", state="done", seconds=seconds)
        for seconds in (2.59e-05, 0.0131, 4_321.0)
    ]
    assert [line.split("  ")[-1] for line in as_text(steps).splitlines()] == [
        "25.9 µs",
        "0.0131 s",
        "4,321 s",
    ]


@pytest.mark.parametrize("kind", ["waiting", "delayed", "workflow"])
def test_what_is_cancelled_can_be_cancelled_again(run: Run, sums: Sums, kind: str) -> None:
    parts = [sums.add.signature(1, 2), sums.add.options(delay=60).signature(1, 2)]
    sent: dict[str, Callable[[], Result[int] | WorkflowResult]] = {
        "waiting": parts[0].send,
        "delayed": parts[1].send,
        "workflow": chord(parts, sums.total.then()).send,
    }
    result = sent[kind]()
    if kind == "workflow":
        sums.tasks.drain()
    for _ in range(3):
        assert run("cancel", result.id)[2] == f"{result.id} is cancelled\n"
        assert json.loads(run("cancel", result.id, "--json")[1]) == {"cancelled": True}
    assert result.state == "cancelled"


def test_a_dead_letter_stays_when_it_is_to_be_cancelled_and_is_told_what_to_retry(
    run: Run, sums: Sums, client: shardq.Client
) -> None:
    sums.fail.send(1)
    flow = chain(sums.add.signature(1, 1), sums.fail.then()).send()
    sums.tasks.drain()
    dead = client.queue("others.dead").peek()
    assert len(dead) == 2
    for each in dead:
        assert run("cancel", each.id)[2] == f"{each.id} has ended: nothing is cancelled\n"
        remedy = f"task retry '{flow.id}'" if "task-step" in each.headers else "redrive others`"
        code, _, told = run("retry", each.id)
        assert (code, remedy in told) == (2, True), told
    assert client.queue("others.dead").peek() == dead
    forged = client.queue("tasks").producer().send(b"", headers={"task": "add", "task-keep": "long"})
    assert run("cancel", forged)[2] == f"{forged} is cancelled\n"


def test_tasks_and_workflows_are_cancelled_and_workflows_retried(run: Run, sums: Sums) -> None:
    task, flow = sums.add.send(1, 2), chain(sums.add.signature(1, 1), sums.fail.then()).send()
    assert run("cancel", task.id)[2] == f"{task.id} is cancelled\n"
    sums.tasks.drain()
    assert run("retry", flow.id)[2] == f"{flow.id} runs again\n"
    assert run("show", flow.id)[1].splitlines()[0].endswith("waiting  run 1")
    assert json.loads(run("retry", flow.id, "--json")[1]) == {"retried": False}
    assert run("retry", flow.id)[2].endswith("is waiting: nothing has to run again\n")
    assert json.loads(run("cancel", flow.id, "--json")[1]) == {"cancelled": True}
    done = sums.add.send(2, 2)
    sums.tasks.drain()
    assert run("cancel", done.id)[2].endswith("has ended: nothing is cancelled\n")
    assert sums.ran == {"1+1": 1, "fail": 1, "2+2": 1}


def test_what_is_wrong_with_an_id_is_told_in_one_line(run: Run, sums: Sums) -> None:
    task, flow = sums.add.send(1, 2), chain(sums.add.signature(1, 1), sums.fail.then()).send()
    gone = task.id[:-1] + "7"
    sums.tasks.drain()
    for code, arguments in [
        (3, ["show", gone]),
        (3, ["cancel", gone]),
        (3, ["retry", gone]),
        (2, ["show", "nonsense"]),
        (2, ["retry", task.id]),
        (2, ["retry", f"{flow.id}#0"]),
        (2, ["cancel", f"{flow.id}#0"]),
        (2, ["show", task.id, "--graph", "svg"]),
        (2, ["show", f"{flow.id}#0", "--graph", "mermaid"]),
        (3, ["list", "none"]),
    ]:
        exit_code, out, told = run(*arguments)
        assert (exit_code, out, told.count("\n")) == (code, "", 1), arguments


@pytest.mark.parametrize("command", ["show", "cancel", "retry"])
@pytest.mark.parametrize("body", [b"", b"x", b"\x81\xa1a\x01", b"\x81\xa4name\xa1\xe9"])
def test_a_forged_workflow_is_told_of_with_its_id_and_what_to_do(
    run: Run, sums: Sums, body: bytes, command: str
) -> None:
    forged = sums.tasks.task_client.queue("tasks").producer().send(body, headers={"task": "shardq.workflow"})
    code, _, told = run(command, forged)
    assert (code, told.count("\n")) == (2, 1)
    assert told.startswith(f"shardq: invalid_message: message {forged} says that it is a workflow")
    assert f"`shardq remove {forged}`" in told
