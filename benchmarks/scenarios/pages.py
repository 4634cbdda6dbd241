"""How long each page of the dashboard takes beside millions of jobs."""

from __future__ import annotations

import asyncio
import http.client
import statistics
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
import uvicorn

from benchmarks.run import BARE, Run
from stepwell import App
from stepwell.web import Dashboard
from stepwell.web.routes import PAGES

_LIMIT = 200.0
_MOST_KILOBYTES = 200.0
_STEPS = 20_000
_LOOKS = 5
_NOT_PLAIN = {"/database/listener", "/jobs/bulk", "/jobs/export"}
"""Pages that wait for something, need a query, or are files."""

# Twenty queues and fifty tasks. Most live jobs are ready or scheduled, and most finished jobs have succeeded.
_LIVE = """
    insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args, metadata)
    select stepwell.uuid7(), now() + (case when n %% 10 < 6 then -1 else 1 end) * (n %% 86400) * interval '1 second',
      now() - (n %% 86400) * interval '1 second', 0,
      (case when n %% 10 < 6 then 'ready' when n %% 1000 = 999 then 'waiting' else 'scheduled' end)::stepwell.state,
      'task-' || n %% 50, 'queue-' || n %% 20, json_build_object('n', n, 'user', 'user-' || n %% 1000),
      case when n %% 5 = 0 then jsonb_build_object('tenant', 'tenant-' || n %% 100) end
    from generate_series(1, %s) as n
"""
_FINISHED = """
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, rank, state, task, queue, args, result, error)
    select stepwell.uuid7(), now() + (1 + n %% 6) * interval '1 day', now() - (n %% 604800) * interval '1 second',
      now() - (n %% 604800 + 2) * interval '1 second', now() - (n %% 604800 + 3) * interval '1 second',
      now() - (n %% 604800 + 1) * interval '1 second', '00000000-0000-7000-8000-000000000000', 1, 1, 0,
      (case when n %% 100 = 7 then 'failed' when n %% 10000 = 8 then 'cancelled' else 'succeeded' end)::stepwell.state,
      'task-' || n %% 50, 'queue-' || n %% 20, json_build_object('n', n, 'user', 'user-' || n %% 1000), '7',
      case when n %% 100 = 7 then 'ValueError: no ' || n %% 30 end
    from generate_series(1, %s) as n
"""
# What a hundred pairs of a task and a queue leave in statistics: a row in each minute, with twelve bins of a histogram.
_STATS = """
    insert into stepwell.stat (minute, task, queue, enqueued, succeeded, failed, seconds, waits, runs)
    select m.minute, 'task-' || p.n %% 50, 'queue-' || p.n %% 20, 60, 59, 1, 3, w.bins, w.bins
    from generate_series(
      date_trunc('minute', now()) - %s * interval '1 minute', date_trunc('minute', now()), interval '1 minute'
    ) as m (minute)
    cross join generate_series(0, 99) as p (n)
    cross join (select array_fill(0, array[12]) || array_fill(5, array[12]) as bins) w
"""
_MANY_STEPS = """
    insert into stepwell.step (job_id, saved_at, seconds, n, epoch, kind, key, value)
    select (select j.id from stepwell.job j where j.state = 'waiting' order by j.id limit 1),
      now() + n * interval '1 millisecond', 0.001, n, 1, 'step', 'part-' || n, json_build_object('n', n)
    from generate_series(1, %s) as n
    returning job_id
"""


def pages(run: Run) -> None:
    """Every page that needs no id, searches that find little, and a job with 20,000 steps."""
    live, finished, minutes = (20_000, 100_000, 120) if run.quick else (1_000_000, 5_000_000, 7 * 24 * 60)
    with run.stage(BARE) as stage:
        job = _fill(stage.dsn, live, finished, minutes)
        with _served(Dashboard(App(stage.dsn))) as port:
            found = {path: _look(port, path) for path in _paths(job)}
    by_time = sorted(found, key=lambda path: statistics.median(found[path][0]))
    for path in by_time:
        milliseconds, kilobytes = found[path]
        run.note(f"   {statistics.median(milliseconds):7.1f} ms {kilobytes:7.1f} KB  {path.replace(job, 'ID')}")
    slowest = by_time[-1]
    beside = f"beside {live:,} live and {finished:,} finished jobs, with statistics of {minutes:,} minutes"
    run.record("pages", f"slowest page, {beside}", found[slowest][0], "ms", limit=_LIMIT)
    run.note(f"   the slowest is {slowest.replace(job, 'ID')}")
    largest = max(kilobytes for path, (_, kilobytes) in found.items() if job in path)
    run.record("pages", f"largest page of a job with {_STEPS:,} steps", [largest], "KB", limit=_MOST_KILOBYTES)


def _fill(dsn: str, live: int, finished: int, minutes: int) -> str:
    """Put in rows as jobs would leave them, only sooner. Returns the id of the job with many steps."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select stepwell.make_partitions(array[86400, 259200, 518400]::double precision[])")
        connection.execute(_LIVE, [live])
        connection.execute(_FINISHED, [finished])
        [(job,), *_] = connection.execute(_MANY_STEPS, [_STEPS]).fetchall()
        connection.execute("update stepwell.job set durable = true where id = %s", [job])
        connection.execute(_STATS, [minutes])
        while connection.execute("select stepwell.sum_stats(1000)").fetchone() != (0,):
            pass
        # What tables that grew in the course of a day have had from autovacuum.
        connection.execute("vacuum analyze")
    return str(job)


def _paths(job: str) -> list[str]:
    plain = [path for path, _, _ in PAGES if "{" not in path and path not in _NOT_PLAIN]
    states = [f"/jobs?state={state}" for state in ("ready", "scheduled", "waiting", "running", "succeeded", "failed")]
    searches = ["arg=user=user-7", "arg=nothing-like-it", "metadata=tenant=tenant-5", "queue=queue-3", "task=task-9"]
    rare = ["/jobs?state=cancelled", "/jobs?state=failed&error=no%2029", "/jobs?sort=oldest"]
    orders = ["sort=runtime", "state=failed&sort=runtime", "sort=priority", "state=waiting&sort=due"]
    # An index has the order of these.
    orders += ["state=scheduled&sort=due", "state=ready&queue=queue-3&sort=priority"]
    return [
        *plain,
        *states,
        *rare,
        *(f"/jobs?{search}" for search in searches + orders),
        f"/jobs/{job}",
        f"/jobs/{job}/steps",
        "/tasks/enqueue?task=task-1",
        *(f"{path}?range={length}" for path in ("/", "/queues", "/tasks") for length in ("1d", "7d")),
        "/jobs/bulk?act=retry&state=failed",
    ]


@contextmanager
def _served(site: Any) -> Generator[int]:
    server = uvicorn.Server(uvicorn.Config(site, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the dashboard did not start")
        time.sleep(0.02)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def _look(port: int, path: str) -> tuple[list[float], float]:
    """Milliseconds of some looks after the first, and the size of the page in KB."""
    took: list[float] = []
    body = b""
    for _ in range(_LOOKS + 1):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        began = time.perf_counter()
        connection.request("GET", path, headers={"Accept": "text/html"})
        response = connection.getresponse()
        body = response.read()
        took.append((time.perf_counter() - began) * 1000)
        connection.close()
        if response.status not in (200, 404):
            raise RuntimeError(f"{path} answered {response.status}: {body[:500].decode()}")
    return took[1:], len(body) / 1024
