"""The end of a script, by Ctrl-C or by itself, while its worker runs jobs: no attempt is used, and none is lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from process_tasks import lives, stubborn, writer
from waiting import Heard, auntil, until

from stepwell import App, Context, Fail, JobFailed, Retry, Worker
from stepwell.telemetry.jobs import HandlerAbandoned, JobHandedBack, JobsClaimed, JobStarted
from stepwell.telemetry.worker import WorkerStopping
from stepwell.worker.process import Processes
from tests.forked import ForkedProcess


@pytest.mark.crash
def test_ctrl_c_ends_a_script_although_a_thread_of_a_handler_goes_on(app: App, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT)
    said = tmp_path / "log"
    with said.open("w") as log:
        script = ForkedProcess(["script.py", dsn], cwd=tmp_path, stdout=log, stderr=log)
    until(lambda: "running now" in said.read_text())
    script.send_signal(signal.SIGINT)
    assert script.wait(timeout=60) == -signal.SIGINT
    [job] = app.jobs()
    assert (job.state, job.attempt) == ("ready", 0)


_SCRIPT = """
import asyncio, logging, sys, threading
from stepwell import App, Worker

logging.basicConfig(level=logging.INFO)
app = App(sys.argv[1])


@app.task
def endless() -> None:
    print("running now", flush=True)
    threading.Event().wait()


async def main() -> None:
    async with app, Worker(app):
        job = await endless.aenqueue()
        await job.aresult()


asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize("interrupted", ["worker", "loop", "psycopg"])
def test_a_second_ctrl_c_in_the_midst_of_the_worker_burns_no_attempt(
    app: App, dsn: str, tmp_path: Path, interrupted: str
) -> None:
    (tmp_path / "script.py").write_text(_INTERRUPTED)
    said = tmp_path / "log"
    with said.open("w") as log:
        script = ForkedProcess(["script.py", dsn, interrupted], cwd=tmp_path, stdout=log, stderr=log)
    assert script.wait(timeout=60) == -signal.SIGINT
    assert said.read_text().count("sprung") == 1
    assert [(job.state, job.attempt) for job in app.jobs()] == [("ready", 0)] * 2


_INTERRUPTED = """
import asyncio, signal, sys, threading
from stepwell import App, Worker
from stepwell.telemetry.jobs import OutcomesWritten
from stepwell.telemetry.worker import WorkerStopping
from stepwell.worker.outcomes.writer import OutcomeWriter

app = App(sys.argv[1])
running = threading.Semaphore(0)


@app.task
def deaf() -> None:
    running.release()
    threading.Event().wait()


@app.task
async def endless() -> None:
    running.release()
    await asyncio.Event().wait()


def interrupt() -> None:
    global interrupted
    interrupted = True
    print("sprung", flush=True)
    sys.setprofile(None)
    signal.raise_signal(signal.SIGINT)


interrupted = False


def told(event: object) -> None:
    if interrupted:
        return
    if isinstance(event, {"worker": WorkerStopping, "loop": OutcomesWritten, "psycopg": ()}[sys.argv[2]]):
        interrupt()
    elif sys.argv[2] == "psycopg" and isinstance(event, WorkerStopping):
        sys.setprofile(called)


def called(frame, event, _) -> None:
    # The connection that writes outcomes gives back psycopg's lock: now it never will.
    code = frame.f_code
    if event == "call" and code.co_name == "__aexit__" and code.co_filename.endswith("asyncio/locks.py"):
        while frame := frame.f_back:
            if frame.f_code is OutcomeWriter._flush.__code__:
                interrupt()
                return


async def main() -> None:
    async with app, (worker := Worker(app)):
        await deaf.aenqueue()
        await endless.aenqueue()
        for _ in range(2):
            await asyncio.to_thread(running.acquire)
        worker.subscribe(told)
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()


asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize(
    "ending",
    [
        "handler",
        "sub-task",
        "batch",
        "transaction",
        "stubborn",
        "body",
        "loop",
        "own task",
        "return",
        "return while draining",
        "claim",
    ],
)
def test_the_end_of_a_script_burns_no_attempt(app: App, dsn: str, tmp_path: Path, ending: str) -> None:
    (tmp_path / "script.py").write_text(_ENDING)
    said = tmp_path / "log"
    with said.open("w") as log:
        script = ForkedProcess(["script.py", dsn, ending], cwd=tmp_path, stdout=log, stderr=log)
    # It does not wait for the jobs: the grace is longer than this.
    assert script.wait(timeout=60) == (0 if ending.startswith("return") else -signal.SIGINT), said.read_text()
    jobs = app.jobs(limit=1000)
    assert {(job.state, job.attempt) for job in jobs if job.task in ("endless", ending)} == {("ready", 0)}
    assert {(job.state, job.attempt) for job in jobs} <= {("ready", 0), ("succeeded", 1)}
    assert "wrong:" not in said.read_text()
    assert "never retrieved" not in said.read_text()


# `asyncio.run` cancels its main task at the first SIGINT, and raises the second wherever that finds it.
_ENDING = """
import asyncio, logging, os, signal, sys
from stepwell import App, Context, Retry, Worker
from stepwell.telemetry.jobs import HandlerAbandoned, JobsClaimed, OutcomeRefused
from stepwell.telemetry.worker import OutcomesUnwritten, WorkerStopping
from stepwell.worker.worker_connection import WorkerConnection

signal.signal(signal.SIGINT, signal.default_int_handler)
logging.basicConfig(level=logging.INFO)
app = App(sys.argv[1])
ending = sys.argv[2]
running = asyncio.Semaphore(0)
once = Retry(max_attempts=1)


def watched(worker: Worker) -> Worker:
    def told(event: object) -> None:
        if isinstance(event, (HandlerAbandoned, OutcomeRefused, OutcomesUnwritten)):
            print("wrong:", event.text(), flush=True)

    worker.subscribe(told)
    return worker


@app.task(retry=once)
async def endless() -> None:
    running.release()
    await asyncio.Event().wait()


@app.task(retry=once)
async def quick() -> None:
    running.release()


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt_twice() -> None:
    interrupt()
    interrupt()


if ending == "batch":

    @app.task(retry=once, batch=2)
    async def batch(items: list[int]) -> None:
        interrupt_twice()

elif ending == "transaction":

    @app.task(retry=once, transaction=True)
    async def transaction(ctx: Context) -> None:
        await ctx.connection.execute("select 1")
        interrupt_twice()

elif ending == "handler":

    @app.task(retry=once)
    async def handler() -> None:
        interrupt_twice()

elif ending == "sub-task":

    @app.task(retry=once, name=ending)
    async def with_sub_task() -> None:
        async def sub_task() -> None:
            interrupt_twice()

        async with asyncio.TaskGroup() as group:
            group.create_task(sub_task())

elif ending == "stubborn":

    @app.task(retry=once, name=ending)
    async def makes_an_error_of_it() -> None:
        running.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("stopped") from None


async def with_worker() -> None:
    async with app, (worker := watched(Worker(app, grace="10m"))):
        await endless.aenqueue()
        await running.acquire()
        if ending == "loop":
            worker.subscribe(lambda event: interrupt_twice() if isinstance(event, JobsClaimed) else None)
            await endless.aenqueue()
        elif ending == "batch":
            await app.tasks[ending].aenqueue_many([{"items": 1}, {"items": 2}])
        elif ending in app.tasks:
            await app.tasks[ending].aenqueue()
            if ending == "stubborn":
                await running.acquire()
                asyncio.get_running_loop().call_soon(interrupt)
        elif ending == "claim":
            await quick.aenqueue_many([{}] * 300)
            for _ in range(20):
                await running.acquire()
            WorkerConnection.fetch = fetch
        else:
            asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            if ending == "body":
                interrupt()


real_fetch = WorkerConnection.fetch


async def fetch(connection, query):
    # The second one comes while the claim is under way.
    if connection.name == "claim":
        WorkerConnection.fetch = real_fetch
        loop = asyncio.get_running_loop()
        loop.call_soon(interrupt)
        loop.call_later(0.001, interrupt)
    return await real_fetch(connection, query)


async def with_task() -> None:
    async with app:
        worker = watched(Worker(app, grace="10m"))
        task = asyncio.create_task(worker.run())
        await endless.aenqueue()
        await running.acquire()
        if ending == "own task":
            asyncio.get_running_loop().call_soon(interrupt)
            await asyncio.Event().wait()
        if ending == "return while draining":
            drains = asyncio.Event()
            worker.subscribe(lambda event: drains.set() if isinstance(event, WorkerStopping) else None)
            worker.stop()
            await drains.wait()


asyncio.run(with_task() if ending in ("own task", "return", "return while draining") else with_worker())
"""


@pytest.mark.crash
@pytest.mark.parametrize("cancelled", ["once", "twice", "with all tasks"])
async def test_a_worker_that_is_cancelled_ends_after_its_processes(app: App, tmp_path: Path, cancelled: str) -> None:
    task = app.task(process=True, retry=Retry(max_attempts=1))(stubborn.fn)
    place = tmp_path / "pid"
    job = await task.aenqueue(str(place))
    worker = Worker(app)
    heard = Heard(worker)
    others = asyncio.all_tasks()
    running = asyncio.create_task(worker.run())
    pid = await auntil(lambda: writer(place))
    lived: list[bool] = []
    worker.subscribe(lambda event: lived.append(lives(pid)) if isinstance(event, JobHandedBack) else None)
    for task_of_worker in asyncio.all_tasks() - others if cancelled == "with all tasks" else {running}:
        task_of_worker.cancel()
    if cancelled == "twice":
        await auntil(lambda: heard.of(WorkerStopping))
        running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert lived == [False]  # when it was handed back
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt, len(info.failures)) == ("ready", 0, 0)


@pytest.mark.parametrize("own", [asyncio.CancelledError, KeyboardInterrupt])
async def test_what_a_handler_raises_itself_counts_although_its_caller_was_cancelled_before(
    app: App, own: type[BaseException]
) -> None:
    @app.task(retry=Retry(max_attempts=2, initial=0))
    async def raises() -> None:
        raise own

    worker = Worker(app)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await worker.run()  # in a task that still counts that cancel

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await worker.started()
    job = await raises.aenqueue()
    with pytest.raises(JobFailed):
        await job.aresult(timeout="30s")
    worker.stop()
    await working
    info = await job.ainfo()
    assert info is not None
    assert info.attempt == 2


async def test_a_worker_that_is_cancelled_again_while_it_closes_ends_its_lease(
    app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, go = asyncio.Event(), asyncio.Event()

    async def close(processes: Processes) -> None:
        closing.set()
        await go.wait()

    @app.task
    def noop() -> None: ...

    monkeypatch.setattr(Processes, "close", close)
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await worker.started()
    running.cancel()
    await closing.wait()
    running.cancel()
    go.set()
    await asyncio.wait([running])
    assert running.cancelled()
    assert conn.execute("select * from stepwell.worker").fetchall() == []


async def test_a_job_whose_task_was_cancelled_before_its_first_step_is_handed_back_at_once(app: App) -> None:
    @app.task
    async def noop() -> None: ...

    worker = Worker(app)
    heard = Heard(worker)
    others = asyncio.all_tasks()

    def cancel_all() -> None:
        for task in asyncio.all_tasks() - others:
            task.cancel()

    def told(event: object) -> None:
        if isinstance(event, JobsClaimed):  # the tasks of its handlers are made after this
            asyncio.get_running_loop().call_soon(cancel_all)

    worker.subscribe(told)
    job = await noop.aenqueue()
    running = asyncio.create_task(worker.run())
    await asyncio.wait([running])
    assert running.cancelled()
    assert not heard.of(JobStarted)
    assert not heard.of(HandlerAbandoned)
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


async def test_ctrl_c_in_a_replay_that_collects_undos_leaves_them_to_the_next_one(app: App) -> None:
    undone: list[str] = []
    interrupts: list[BaseException] = []

    def save(name: str) -> str:
        return name

    @app.task(retry=Retry(max_attempts=1, initial=0))
    async def order(ctx: Context) -> None:
        await ctx.step(save, "a", key="a", undo=undone.append)
        if interrupts:
            raise interrupts.pop()
        await ctx.step(save, "b", key="b", undo=undone.append)
        interrupts.append(KeyboardInterrupt())  # for the replay
        raise Fail("no seats")

    async with Worker(app):
        job = await order.aenqueue()
        with pytest.raises(JobFailed, match="no seats"):
            await job.aresult(timeout="30s")
    assert (undone, interrupts) == (["b", "a"], [])
