"""Jobs by filter: list and count them, retry and cancel all that match."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from cli.commands import Jobs

from stepwell import App, BadArgs, ConfigError, JobInfo
from stepwell.postgres.queries import search


@pytest.fixture
def jobs(conn: psycopg.Connection[Any]) -> Jobs:
    return Jobs(conn)


def ids(listed: list[JobInfo]) -> list[str]:
    return [str(job.id) for job in listed]


async def test_jobs_are_listed_and_counted_by_each_filter(app: App, jobs: Jobs) -> None:
    @app.task
    def greet(name: str) -> None: ...

    failed = jobs.failed("Out of Stock")
    running = jobs.running(task="slow")
    mailed = jobs.ready("greet", '{"name": "a"}', queue="mail", metadata='{"tenant": 7, "plan": "free"}')
    later = jobs.ready("greet", '{"name": "b"}', delay=3600.0, owner="shop")
    cancelled = jobs.ready("other")
    await app.job(cancelled).acancel("not wanted")
    old = jobs.succeeded()
    jobs.connection.execute("update stepwell.history set enqueued_at = now() - interval '2 h' where id = %s", (old,))
    info = await app.job(running).ainfo()
    assert info is not None
    assert info.worker_id is not None
    everything = [old, cancelled, later, mailed, running, failed]
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, everything),
        ({"state": "failed"}, [failed]),
        ({"state": ["failed", "ready"]}, [mailed, failed]),
        ({"state": "running"}, [running]),
        ({"state": ("running", "scheduled")}, [later, running]),
        ({"queue": "mail"}, [mailed]),
        ({"task": "greet"}, [later, mailed]),
        ({"task": greet}, [later, mailed]),
        ({"owner": "shop"}, [later]),
        ({"worker": info.worker_id}, [running]),
        ({"worker": str(info.worker_id), "state": "running"}, [running]),
        ({"metadata": {"tenant": 7}}, [mailed]),
        ({"metadata": {"tenant": 8}}, []),
        ({"error": "out of stock"}, [failed]),
        ({"error": "WANTED"}, [cancelled]),
        ({"error": "%"}, []),
        ({"older_than": "1h"}, [old]),
        ({"newer_than": "1h"}, everything[1:]),
        ({"task": "greet", "queue": "mail", "state": "ready"}, [mailed]),
        ({"task": "greet", "state": "failed"}, []),
        ({"state": None, "task": None, "metadata": None}, everything),
    ]
    for filters, wanted in expected:
        assert ids(await app.ajobs(**filters)) == wanted, filters
        assert await app.acount_jobs(**filters) == len(wanted), filters
    [job] = await app.ajobs(queue="mail")
    assert (job.state, job.args, job.metadata) == ("ready", {"name": "a"}, {"tenant": 7, "plan": "free"})


def test_the_same_for_sync_code(dsn: str, jobs: Jobs) -> None:
    job = jobs.failed()
    with App(dsn) as app:
        assert ids(app.jobs(state="failed")) == [job]
        assert app.count_jobs(state="failed") == 1
        assert app.job(job).exists()
        assert app.retry_jobs(state="failed") == 1
        assert app.cancel_jobs(task="add") == 1
        assert app.count_jobs(state="cancelled") == 1


@pytest.mark.parametrize("look", [1, 3, 50_000])
async def test_pages_meet_each_job_once_however_few_match(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", look)
    jobs.connection.execute(
        "select stepwell.enqueue_many(array[case when mod(n, 7) = 0 then 'rare' else 'usual' end], '{\"{}\"}')"
        " from generate_series(1, 50) as n"
    )
    finished = jobs.succeeded(task="rare")
    page = await app.ajobs(task="rare", limit=3)
    met: list[UUID] = []
    while page:
        met += [job.id for job in page]
        page = await app.ajobs(task="rare", limit=3, before=page[-1])
    assert len(met) == 8
    assert UUID(finished) in met
    assert met == sorted(set(met), reverse=True)
    assert await app.ajobs(task="rare", before=met[2], limit=2) == await app.ajobs(
        task="rare", before=str(met[2]), limit=2
    )
    assert await app.acount_jobs(task="rare") == 8
    assert await app.acount_jobs(task="rare", at_most=8) == 8
    assert await app.acount_jobs(task="rare", at_most=5) == 5
    assert await app.acount_jobs() == 51


async def test_a_look_that_takes_too_long_says_what_to_do(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 1)
    jobs.ready("rare")
    jobs.ready()
    jobs.ready()
    with pytest.raises(TimeoutError, match=r"found 0 of 100 jobs within 0s.*newer_than"):
        await app.ajobs(task="rare", timeout=0)
    with pytest.raises(TimeoutError, match=r"counted 0 jobs within 0s.*at_most"):
        await app.acount_jobs(task="rare", timeout=0)
    # What is found at once is no matter of time.
    assert len(await app.ajobs(limit=1, timeout=0)) == 1


@pytest.mark.parametrize(
    ("filters", "error", "said"),
    [
        ({"state": "done"}, ConfigError, "state is 'done': it must be one of scheduled"),
        ({"state": []}, ConfigError, "state is empty"),
        ({"state": 7}, ConfigError, "state is 7"),
        ({"queue": ""}, ConfigError, "queue is ''"),
        ({"task": "a\0b"}, ConfigError, "task is"),
        ({"error": "\ud800"}, ConfigError, "error is"),
        ({"owner": 7}, ConfigError, "owner is 7"),
        ({"worker": "x"}, ConfigError, "worker is 'x'"),
        ({"metadata": "x"}, BadArgs, "metadata is a str"),
        ({"older_than": "soon"}, ConfigError, "older_than is 'soon'"),
        ({"tsk": "x"}, TypeError, r"ajobs\(\) has no option 'tsk': did you mean 'task'"),
        ({"limit": 0}, ConfigError, "limit is 0"),
        ({"limit": True}, ConfigError, "limit is True"),
        ({"before": "x"}, ConfigError, "'x' is not a job's id"),
    ],
)
async def test_what_cannot_be_a_filter_is_refused(
    app: App, filters: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await app.ajobs(**filters)


async def test_failed_jobs_are_retried_by_filter_and_no_others(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 2)
    gone = [jobs.failed("gone", queue="default", metadata='{"tenant": 7}') for _ in range(5)]
    other, waits = jobs.failed("other"), jobs.failed("gone", delay=3600.0)
    cancelled, planned = jobs.ready(), jobs.ready(delay=3600.0)
    await app.job(cancelled).acancel()
    assert await app.aretry_jobs(error="gone", metadata={"tenant": 8}) == 0
    assert await app.aretry_jobs(error="gone", metadata={"tenant": 7}) == 5
    assert {jobs.state(job) for job in gone} == {"ready"}
    assert [jobs.state(job) for job in (other, waits, cancelled, planned)] == [
        "failed", "scheduled", "cancelled", "scheduled",
    ]  # fmt: skip
    assert await app.aretry_jobs(state=["cancelled", "scheduled"]) == 2
    assert [jobs.state(job) for job in (other, waits, cancelled, planned)] == ["failed", "ready", "ready", "scheduled"]
    # To repeat it changes nothing.
    assert await app.aretry_jobs(state=["cancelled", "scheduled"]) == 0
    assert await app.aretry_jobs(everything=True) == 1


async def test_live_jobs_are_cancelled_by_filters_that_must_all_fit(app: App, jobs: Jobs) -> None:
    mail = jobs.ready("greet", queue="mail", metadata='{"tenant": 7}')
    other = jobs.ready("greet", metadata='{"tenant": 7}')
    running = jobs.running(task="slow")
    failed = jobs.failed(task="add")
    assert await app.acancel_jobs("mail", task="greet", metadata={"tenant": 8}) == 0
    assert await app.acancel_jobs("mail", task="greet", metadata={"tenant": 7}, reason="why") == 1
    assert [jobs.state(job) for job in (mail, other)] == ["cancelled", "ready"]
    assert await app.acancel_jobs(newer_than="1h", state="ready") == 1
    info = await app.job(running).ainfo()
    assert info is not None
    assert await app.acancel_jobs(worker=info.worker_id) == 1
    assert await app.acancel_jobs(everything=True) == 1  # it is asked again
    assert jobs.state(failed) == "failed"


@pytest.mark.parametrize("verb", ["aretry_jobs", "acancel_jobs"])
async def test_a_change_needs_to_be_told_which_jobs_are_meant(app: App, jobs: Jobs, verb: str) -> None:
    job = jobs.ready()
    change = getattr(app, verb)
    with pytest.raises(ConfigError, match=f"{verb} was given nothing"):
        await change()
    with pytest.raises(ConfigError, match=f"{verb} was given nothing"):
        await change(task=None)
    with pytest.raises(ConfigError, match="was given filters and everything="):
        await change("mail", everything=True)
    with pytest.raises(ConfigError, match="two queues"):
        await change("mail", queue="default")
    with pytest.raises(ConfigError, match="everything is 'yes'"):
        await change(everything="yes")
    with pytest.raises(ConfigError, match="state is 'succeeded'"):
        await change(state="succeeded")
    assert jobs.state(job) == "ready"


async def test_whether_a_job_exists(app: App, jobs: Jobs) -> None:
    assert await app.job(jobs.ready()).aexists()
    assert await app.job(jobs.succeeded()).aexists()
    assert not await app.job(jobs.succeeded(keep=0)).aexists()
    assert not await app.job(UUID(int=7)).aexists()
