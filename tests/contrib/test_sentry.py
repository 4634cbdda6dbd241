"""Errors in Sentry: a job that failed for good is one, an attempt that is tried again is none."""

from __future__ import annotations

import logging
import threading

import pytest
import sentry_sdk
from process_tasks import divide
from waiting import Heard

from stepwell import App, JobFailed, Plugin, Retry, Worker
from stepwell.contrib.sentry import Sentry
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import AttemptFailed
from stepwell.telemetry.worker import LeaseLost, QueueUnknown, UpkeepFailed, WorkerStarted

from .kept import Kept


@pytest.mark.slow
async def test_only_a_job_that_failed_for_good_is_an_error(dsn: str, kept: Kept) -> None:
    app = App(dsn, plugins=[Sentry()])

    @app.task(retry=Retry(max_attempts=2, backoff="fixed", initial=0), queue="mail")
    async def sends(to: str) -> None:
        logging.getLogger("shop").info("sending to %s", to)
        raise LookupError(f"no such address {to}")

    @app.task(retry=Retry(max_attempts=3, backoff="fixed", initial=0))
    async def recovers() -> None:
        raised.append(1)
        if len(raised) < 3:
            raise OSError("not yet")

    raised: list[int] = []
    logging.getLogger("shop").setLevel(logging.INFO)
    async with app, Worker(app):
        with sentry_sdk.start_transaction(name="GET /") as request:
            job = await sends.aenqueue("ada")
        await (await recovers.aenqueue()).aresult(timeout="20s")
        with pytest.raises(JobFailed):
            await job.aresult(timeout="20s")
    [error] = kept.errors
    [value] = error["exception"]["values"]
    assert (value["type"], value["value"]) == ("LookupError", "no such address ada")
    assert value["stacktrace"]["frames"][-1]["function"] == "sends"
    assert error["tags"] == {"stepwell.task": "sends", "stepwell.queue": "mail"}
    assert error["contexts"]["stepwell"]["job_id"] == str(job.id)
    assert error["contexts"]["stepwell"]["attempt"] == 2
    assert [crumb["message"] for crumb in error["breadcrumbs"]["values"]] == ["sending to ada"], "of the last run only"
    runs = [made for made in kept.transactions if made["contexts"]["trace"]["op"] == "queue.process"]
    assert len(runs) == 5
    mine = [made for made in runs if made["transaction"] == "sends"]
    assert {made["contexts"]["trace"]["trace_id"] for made in mine} == {request.trace_id}
    assert mine[0]["contexts"]["trace"]["data"]["messaging.destination.name"] == "mail"
    [web] = [made for made in kept.transactions if made["transaction"] == "GET /"]
    assert [span["op"] for span in web["spans"]].count("queue.publish") == 1


@pytest.mark.slow
async def test_an_error_of_a_process_is_reported_by_its_text(dsn: str, kept: Kept) -> None:
    app = App(dsn, plugins=[Sentry()], retry=Retry(max_attempts=1))
    task = app.task(process=True)(divide.fn)
    async with app, Worker(app, process_slots=1):
        with pytest.raises(JobFailed):
            await (await task.aenqueue(0)).aresult(timeout="60s")
    [error] = kept.errors
    assert error["exception"]["values"] == [{"type": "ZeroDivisionError", "value": "division by zero"}]
    assert "divide" in error["extra"]["traceback"]


async def test_every_error_that_stepwell_logs_is_reported_once(dsn: str, kept: Kept) -> None:
    class Broken(Plugin):
        async def start_worker(self, worker: Worker) -> None:
            raise OSError("no port")

    app = App(dsn, plugins=[Sentry(), Broken()])

    def backoff(attempt: int, error: BaseException) -> float:
        raise ZeroDivisionError("no delay")

    @app.task(retry=Retry(max_attempts=2, backoff=backoff))
    async def fails() -> None:
        raise LookupError("an attempt that is tried again")

    def subscriber(event: Telemetry) -> None:
        if isinstance(event, QueueUnknown):
            raise KeyError("subscriber")

    app.subscribe(subscriber)
    hook_called = threading.Event()

    @app.on_event(WorkerStarted)
    def hook(event: WorkerStarted) -> None:
        hook_called.set()
        raise ValueError("hook")

    worker = Worker(app)
    heard = Heard(worker)
    async with app, worker:
        job = await fails.aenqueue()
        await heard.wait_for(AttemptFailed)
        app.events.emit(QueueUnknown("q", "a warning, which is no error"))
        app.events.emit(UpkeepFailed("pruning", "a warning, too"))
        app.events.emit(LeaseLost("w1", 3))
        logging.getLogger("stepwell").error("the worker of this site has ended")
    assert hook_called.is_set()
    said = sorted(
        error["message"] if "message" in error else error["exception"]["values"][-1]["value"] for error in kept.errors
    )
    assert said == [
        "'subscriber'",
        f"fails {job.id}: the backoff function of fails failed, so the next try is in 60 s: "
        "ZeroDivisionError: no delay",
        "hook",
        "start_worker of plugin test_every_error_that_stepwell_logs_is_reported_once.<locals>.Broken failed and is "
        "ignored: OSError: no port",
        "the worker of this site has ended",
        "worker w1 lost its lease: it stops 3 running jobs, which other workers will run",
    ]
