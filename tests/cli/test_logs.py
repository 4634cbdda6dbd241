"""The worker's logging beside an app that sets up its own."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import re
from collections.abc import Iterator
from typing import Any

import pytest
from process_tasks import register

from stepwell import App, JobFailed, JobLogFilter, Worker
from stepwell.cli.logs import set_up_logging


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave logging as it was found."""
    root, ours = logging.getLogger(), logging.getLogger("stepwell")
    monkeypatch.setattr("stepwell.durable.log_filter.set_up_in_processes", None)
    before = [(logger, logger.level) for logger in (root, ours)]
    yield
    for logger, level in before:
        # pytest has handlers of its own for each phase of a test.
        logger.handlers = [known for known in logger.handlers if type(known).__module__.startswith("_pytest")]
        logger.setLevel(level)
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).disabled = False
    ours.propagate = True


def app_sets_up(said: io.StringIO, *, level: str = "NOTSET", **config: Any) -> None:
    """As an app does: a handler of its own, and whatever it says of loggers."""
    logging.getLogger("shop")  # such a config disables the loggers that there are
    logging.config.dictConfig(
        {
            "version": 1,
            "formatters": {"short": {"format": "%(levelname)s %(message)s"}},
            "handlers": {
                "app": {"class": "logging.StreamHandler", "stream": said, "formatter": "short", "level": level}
            },
            "root": {"handlers": ["app"], "level": "INFO"},
            **config,
        }
    )


def say_all() -> None:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger("stepwell").log(level, "ours")
        logging.getLogger("shop").log(level, "theirs")


def test_a_config_that_disables_all_known_loggers_does_not_silence_the_worker() -> None:
    said = io.StringIO()
    app_sets_up(said)
    assert logging.getLogger("stepwell").disabled
    set_up_logging(None)
    say_all()
    assert said.getvalue().splitlines() == ["INFO ours", "WARNING ours"]


@pytest.mark.parametrize("own", ["ERROR", "DEBUG"])
@pytest.mark.parametrize(
    ("level", "expected"), [("debug", ["DEBUG", "INFO", "WARNING"]), ("warning", ["WARNING"]), ("error", [])]
)
def test_the_level_of_the_command_line_is_that_of_the_worker(level: str, own: str, expected: list[str]) -> None:
    said = io.StringIO()
    app_sets_up(said, disable_existing_loggers=False, loggers={"stepwell": {"level": own}})
    set_up_logging(level)
    say_all()
    lines = said.getvalue().splitlines()
    assert [line.split()[0] for line in lines if line.endswith("ours")] == expected
    assert [line.split()[0] for line in lines if line.endswith("theirs")] == ["INFO", "WARNING"]


def test_what_the_handlers_of_the_app_would_drop_goes_to_stderr_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = io.StringIO()
    app_sets_up(said, level="WARNING", disable_existing_loggers=False)
    set_up_logging("debug")
    say_all()
    assert said.getvalue().splitlines() == ["WARNING ours", "WARNING theirs"]
    assert re.findall(r"(\w+) stepwell: ours", capsys.readouterr().err) == ["DEBUG", "INFO"]


def test_a_worker_that_the_app_has_silenced_is_heard_at_the_level_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app_sets_up(io.StringIO(), loggers={"stepwell": {"propagate": False, "handlers": []}})
    logging.getLogger("stepwell").addHandler(logging.NullHandler())
    set_up_logging("info")
    say_all()
    assert re.findall(r"(\w+) stepwell: ours", capsys.readouterr().err) == ["INFO", "WARNING"]


def test_the_handlers_of_the_app_are_given_the_filter_once() -> None:
    app_sets_up(io.StringIO(), filters={"job": {"()": "stepwell.JobLogFilter"}})
    [handler] = logging.getLogger().handlers
    set_up_logging("info")
    set_up_logging("info")
    assert [type(known) for known in handler.filters] == [JobLogFilter]


@pytest.mark.slow
async def test_handlers_and_processes_log_with_the_job_in_each_line(
    app: App, capfd: pytest.CaptureFixture[str]
) -> None:
    @app.task
    async def greet() -> None:
        logging.getLogger("shop").info("two\nlines \x1b[31m")

    logging.getLogger().handlers = []
    set_up_logging("info")
    tasks = register(app)
    async with Worker(app, process_slots=1):
        here, there = await greet.aenqueue(), await tasks["speak"].aenqueue()
        await here.aresult("10s")
        await there.aresult("30s")
        failing = await tasks["divide"].aenqueue(0)
        with pytest.raises(JobFailed):
            await failing.aresult("30s")
    said = capfd.readouterr().err
    assert f" INFO shop: [greet {here.id} attempt 1] two\n    lines \\x1b[31m\n" in said
    assert re.search(rf" INFO shop\[\d+\]: \[speak {there.id} attempt 1\] it speaks\n", said)
    # Of an exception in another process only the text comes; the worker's own messages name the job once.
    assert f" ERROR stepwell: divide {failing.id} attempt 1 of 1 failed (error): ZeroDivisionError: " in said
    assert ", in divide\n" in said


@pytest.mark.slow
async def test_json_has_the_job_of_each_line_also_from_threads_and_processes(
    app: App, capfd: pytest.CaptureFixture[str]
) -> None:
    @app.task
    def greet() -> None:
        logging.getLogger("shop").info("two\nlines", extra={"order": 7})

    logging.getLogger().handlers = []
    set_up_logging("info", as_json=True)
    tasks = register(app)
    async with Worker(app, process_slots=1):
        here, there = await greet.aenqueue(), await tasks["speak"].aenqueue()
        await here.aresult("10s")
        await there.aresult("30s")
    entries = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    [greeting] = [entry for entry in entries if entry["message"] == "two\nlines"]
    assert (greeting["job_id"], greeting["task"], greeting["attempt"]) == (str(here.id), "greet", 1)
    assert greeting["extra"] == {"order": 7}
    assert [entry["job_id"] for entry in entries if entry["message"] == "it speaks"] == [str(there.id)]
    assert any(entry.get("event") == "WorkerStarted" for entry in entries)


def test_json_is_the_format_of_the_handlers_of_the_app_that_write_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    said = io.StringIO()
    app_sets_up(said)
    logging.getLogger().addHandler(logging.StreamHandler())
    set_up_logging(None, as_json=True)
    logging.getLogger("stepwell").warning("hello")
    assert json.loads(capsys.readouterr().err)["message"] == "hello"
    assert said.getvalue() == "WARNING hello\n"
