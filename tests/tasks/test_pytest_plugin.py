"""The fixtures for pytest, as the tests of an application use them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks

pytest_plugins = ["pytester"]

FOLDER = Path(__file__).parents[2] / "shardq" / "testing" / "autoload"
INSTALLED = bool(entry_points(group="pytest11", name="shardq"))

APP = """
from shardq.tasks import RetryPolicy, Tasks, chain

app = Tasks()


@app.task(queue="mail", retry=RetryPolicy(attempts=2, delay=60, longest=60))
def welcome(user: str, *, language: str = "en") -> str:
    if user == "nobody":
        raise LookupError(user)
    return f"{language} {user}"


@app.task
async def sign_up(user: str) -> None:
    welcome.send(user)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs a file of tests with the plugin, and tells how they went."""
    monkeypatch.delenv("SHARDQ_URL", raising=False)
    pytester.syspathinsert(FOLDER)
    pytester.makepyfile(app=APP)

    def run(tests: str, *, arguments: tuple[str, ...] = ()) -> pytest.RunResult:
        pytester.makepyfile(test_app=tests)
        plugin = () if INSTALLED else ("-p", "pytest_shardq")
        return pytester.runpytest_inprocess("-p", "no:randomly", *plugin, *arguments)

    return run


def test_tasks_are_sent_to_a_store_of_the_test_and_run_in_its_thread(run) -> None:
    run("""
        import threading
        import pytest
        from app import app, sign_up, welcome

        def test_what_was_sent(shardq_tasks):
            tasks = shardq_tasks(app)
            sign_up.send("Ada")
            welcome.options(delay=5).send("Bob", language="fr")
            welcome.send("Cy")
            assert [(task.name, task.arguments) for task in tasks.sent()] == [
                ("welcome", {"user": "Bob", "language": "fr"}),
                ("welcome", {"user": "Cy"}),
                ("sign_up", {"user": "Ada"}),
            ]
            assert [task.message.priority for task in tasks.sent(queues=["mail"])] == [5, 5]

        def test_nothing_is_left_of_another_test(shardq_tasks):
            assert shardq_tasks(app).sent() == []

        def test_what_tasks_send_is_run_too(shardq_tasks, shardq_clock):
            tasks = shardq_tasks(app)
            sign_up.send("Ada")
            late = welcome.options(delay=5).send("Bob")
            assert tasks.drain().worked == 2
            assert late.state == "waiting"
            shardq_clock.advance(5)
            assert tasks.drain().worked == 1
            assert late.get(timeout=0) == "en Bob"
            assert tasks.sent() == []

        def test_without_the_fixture_there_is_no_store():
            with pytest.raises(Exception, match="these tasks have no store"):
                welcome.send("Ada")
    """).assert_outcomes(passed=4)


def test_an_error_of_a_task_fails_the_test_and_says_where_it_was_raised(run) -> None:
    result = run("""
        from app import app, sign_up, welcome

        def test_raised(shardq_tasks):
            tasks = shardq_tasks(app)
            sign_up.send("nobody")
            tasks.drain()
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*raise LookupError(user)*", "E*LookupError: nobody", "*app.py:*: LookupError"]
    )


def test_an_error_that_is_asked_for_leaves_the_task_to_its_retries(run) -> None:
    run("""
        import asyncio
        from concurrent.futures import CancelledError
        import pytest
        import shardq
        from shardq.tasks import ArgumentsRejected, TaskFailed, Tasks
        from app import app, welcome

        def test_retries(shardq_tasks, shardq_clock):
            tasks = shardq_tasks(app)
            result, after = welcome.send("nobody"), welcome.send("Ada")
            with pytest.raises(LookupError):
                tasks.drain()
            assert [task.arguments["user"] for task in tasks.sent()] == ["nobody", "Ada"]
            assert tasks.drain().worked == 1
            shardq_clock.advance(60)
            assert tasks.drain(raises=False).dead_lettered == 1
            with pytest.raises(TaskFailed):
                result.get(timeout=0)

        def test_arguments_that_are_no_longer_taken_are_an_error_too(shardq_tasks, shardq_client):
            tasks = shardq_tasks(app)
            welcome.send("Ada")
            (sent,) = shardq_client.queue("mail").peek()
            other = shardq_client.create_queue("other")
            other.producer().send(b"\\x81\\xa1x\\x01", headers=sent.headers)
            with pytest.raises(ArgumentsRejected):
                tasks.drain(queues=["other"])

        def test_outcomes_are_no_errors(shardq_tasks):
            own = Tasks()

            @own.task(queue="own", name="snooze")
            def snooze() -> None:
                raise shardq.Snooze(60)

            tasks = shardq_tasks(own)
            snooze.send()
            assert tasks.drain().snoozed == 1

        def test_what_tests_raise_in_tasks_is_raised(shardq_tasks):
            own = Tasks()

            @own.task(queue="own", name="fails")
            def fails() -> None:
                pytest.skip("as the task says")

            tasks = shardq_tasks(own)
            fails.send()
            tasks.drain()

        @pytest.mark.parametrize(
            ("raised", "expected"),
            [
                (pytest.fail.Exception("wrong"), pytest.fail.Exception),
                (GeneratorExit(), GeneratorExit),
                (SystemExit(2), shardq.ShardqError),
                (asyncio.CancelledError(), CancelledError),
            ],
        )
        def test_what_ends_a_program_is_a_failure(shardq_tasks, raised, expected):
            own = Tasks()

            @own.task(queue="own", name="ends", retry=shardq.tasks.RetryPolicy(attempts=1))
            def ends() -> None:
                raise raised

            tasks = shardq_tasks(own)
            result = ends.send()
            with pytest.raises(expected):
                tasks.drain()
            with pytest.raises(TaskFailed):
                result.get(timeout=0)
    """).assert_outcomes(passed=7, skipped=1)


def test_an_app_is_bound_as_before_when_the_test_is_over(run) -> None:
    run("""
        import shardq
        from app import app, welcome
        from shardq.tasks import chain, group

        def test_bound(shardq_tasks, shardq_client):
            with shardq.connect("memory://") as own:
                app.bind(own)
                with shardq.tasks.InlineTasks(app, shardq_client) as tasks:
                    chain(welcome.signature("Ada"), welcome.then()).send()
                    group(*(welcome.signature("Ada") for number in range(3_000))).send()  # its plan is large
                    assert [(task.name, task.arguments) for task in tasks.sent()] == [("shardq.workflow", {})] * 2
                assert app.task_client.client is own
                app.close()
    """).assert_outcomes(passed=1)


def test_messages_that_wait_are_listed_in_the_order_of_their_sends(run) -> None:
    run("""
        import pytest
        import shardq
        from datetime import UTC, datetime, timedelta

        def test_sent(shardq_client, shardq_sent, shardq_clock, shardq_url):
            with pytest.raises(shardq.QueueNotFound):
                shardq_sent("orders")
            queue = shardq_client.create_queue("orders", shards=4)
            producer = queue.producer()
            for number in range(20):
                producer.send(str(number).encode(), delay=number % 2, headers={"number": number})
            producer.send_many([b"20", b"21"])
            assert [message.body for message in shardq_sent("orders")] == [b"%d" % n for n in range(22)]
            assert shardq_sent("orders")[3].headers == {"number": 3}
            queue.consumer().receive(1)
            assert len(shardq_sent("orders")) == 21
            assert abs(shardq_client.now() - datetime.now(UTC)) < timedelta(minutes=5)
            with shardq.connect(shardq_url) as other:
                assert other.exists("orders")
    """).assert_outcomes(passed=1)


def test_another_store_is_used_where_the_url_is_overridden(run, tmp_path: Path) -> None:
    run(f"""
        import pytest

        @pytest.fixture
        def shardq_url():
            return "sqlite:///{tmp_path}/queue.db"

        def test_file(shardq_client):
            shardq_client.create_queue("orders")
    """).assert_outcomes(passed=1)
    assert (tmp_path / "queue.db").exists()


def test_the_plugin_imports_nothing_of_shardq_before_a_fixture_is_used() -> None:
    code = (
        "import sys, pytest_shardq; print([name for name in sys.modules if name.split('.')[0] == 'shardq'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_the_examples_of_the_page_are_tests_that_pass(run, pytester: pytest.Pytester) -> None:
    files = {info: text for info, text in blocks(DOCS / "testing.md") if info.startswith('python title="')}
    for info, text in files.items():
        pytester.path.joinpath(info.split('"')[1]).write_text(text)
    result = run("")
    passed = sum(text.count("def test_") for text in files.values())
    assert passed >= 4
    result.assert_outcomes(passed=passed)
