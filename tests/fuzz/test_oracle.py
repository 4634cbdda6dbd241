"""The oracle can fail: each fault, planted by hand, is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
import pytest

from .oracle import AT_REST, WHEN_EMPTY, consult
from .round import LEDGER

_ALL: dict[str, LiteralString] = {**AT_REST, **WHEN_EMPTY}
_ID = "00000000-0000-7000-8000-000000000001"
_OTHER = "00000000-0000-7000-8000-000000000002"

# A live job in a state, one in history, and what stands by them; {id} and {other} are the two jobs.
_JOB = (
    "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
    " values ('{id}', now(), now(), 'ready', 't', 'q', '{{}}')"
)
_ENDED = (
    "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank, state,"
    " task, queue, args)"
    " values ('{id}', now() + interval '9 days', now(), now(), now(), 1, 1, 0, 'succeeded', 't', 'q', '{{}}')"
)
_STEP = "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key) values ('{id}', now(), 1, 1, 'step', 'k')"
_LARGE = "insert into stepwell.large_value (job_id, expires_at, key, value) values ('{id}', 'infinity', 'k', '1')"
_SIGNAL = (
    "insert into stepwell.event (emitted_at, expires_at, job_id, name, key) values (now(), 'infinity', '{id}', 'e', '')"
)
_EVENT = (
    "insert into stepwell.event (emitted_at, expires_at, name, key) values (now(), now() + interval '1 day', 'e', '')"
)
_FAILURE = (
    "insert into stepwell.failure (job_id, expires_at, failed_at, epoch, attempt, reason, type, message)"
    " values ('{id}', now() + interval '9 days', now(), 1, 1, 'error', 'E', 'm')"
)
_WORKER = (
    "insert into stepwell.worker (id, host, pid, version, queues, tasks, concurrency, started_at, renewed_at,"
    " lease_until) values ('{other}', 'h', 1, '0', '{{q}}', '{{}}', 1, now(), now(), now() - interval '1 minute')"
)
_PERMIT = "insert into stepwell.permit (key, job_id, rate, hold) values ('k', '{id}', false, false)"
_WAITING = "update stepwell.job set state = 'waiting', run_at = 'infinity', durable = true, epoch = 1, awaits = 1"

_GROUP = (
    "insert into stepwell.job_group (id, created_at, keep, then_id, added, total)"
    " values ('{other}', now(), 60, '{id}', 0, 0)"
)

_PLANTED: Mapping[str, tuple[LiteralString, ...]] = {
    "a job is live and in history": (_JOB, _ENDED),
    "a log line is of no job that is looked after": (
        "insert into stepwell.run_log (job_id, line, attempt, at, level, logger, message)"
        " values ('{id}', 1, 1, now(), 20, 'l', 'm')",
    ),
    "all members of a group have ended, and the group has not": (_GROUP,),
    "a group has lost a member, or counts one twice": (_GROUP, "update stepwell.job_group set added = 1, total = 1"),
    "a group has ended, and its callback does not start": (
        _JOB,
        _GROUP,
        "update stepwell.job_group set finished_at = now()",
    ),
    "a callback started before the end of its group": (_JOB, _GROUP, "update stepwell.job_group set total = null"),
    "the end of a member was not added to its group": (
        "insert into stepwell.group_tally (group_id, failed) values ('{id}', 1)",
    ),
    "a permit is for a job that does not need it": (_PERMIT,),
    "a permit is left": (_JOB, _PERMIT),
    "a unique key is taken by a job that is not live": (
        "insert into stepwell.unique_key (key, job_id, live, until_start) values ('k', '{id}', true, false)",
    ),
    "a live job has lost its unique key": (
        _JOB,
        'update stepwell.job set admission = \'{{"unique": {{"key": "k", "conflict": "ignore"}}}}\'',
    ),
    "more jobs are admitted than their limit allows": (
        _JOB,
        'update stepwell.job set admission = \'{{"limits": [{{"key": "k", "most": 0}}]}}\'',
        _PERMIT,
    ),
    "a job is in line, and its limit has room": (
        _JOB,
        "update stepwell.job set state = 'blocked', blocked_by = 'k',"
        ' admission = \'{{"limits": [{{"key": "k", "most": 1}}]}}\'',
    ),
    "a job is in line that is not blocked, or that none blocks": (_JOB, "update stepwell.job set blocked_by = 'k'"),
    "a job is twice in history": (_ENDED, _ENDED),
    "a job became ready, and the workers were not told where": ("set session_replication_role = origin", _JOB),
    "a job runs under a worker that is not registered": (
        _JOB,
        "update stepwell.job set state = 'running', worker_id = '{other}', attempt = 1, epoch = 1",
    ),
    "a job that runs has no worker, or one that does not has one": (
        _JOB,
        "update stepwell.job set state = 'running', attempt = 1, epoch = 1",
    ),
    "a job is due, and nobody makes it ready": (
        _JOB,
        "update stepwell.job set state = 'scheduled', run_at = now() - interval '1 minute'",
    ),
    "a job that does not run is to be cancelled": (_JOB, "update stepwell.job set cancelling = true"),
    "a job waits for what has come": (_JOB, _WAITING),
    "a job waits for nothing": (_JOB, _WAITING, "update stepwell.job set awaits = null"),
    "a job waits for an event that is there": (
        _JOB,
        _WAITING,
        _EVENT,
        _STEP,
        "update stepwell.step set pending = true, awaited = 1, kind = 'wait', event = 'e', event_key = ''",
    ),
    "a parent waits for a child that has ended": (
        _JOB,
        _WAITING,
        _STEP,
        "update stepwell.step set pending = true, awaited = 1, kind = 'child', child_id = '{other}'",
    ),
    "a step has no job": (_STEP,),
    "a job has steps and is not durable": (_JOB, _STEP),
    "a large value has no step": (_JOB, _LARGE),
    "a large value is kept for ever though its job has ended, or not while it lives": (
        _ENDED,
        _LARGE,
        'update stepwell.history set steps = \'[["k", 1, "step", 1, 0, 0, null, null, {{"large": true}}]]\'',
    ),
    "a step has lost its large value": (_JOB, _STEP, "update stepwell.step set large = true"),
    "a signal is for nobody": (_SIGNAL, _ENDED),
    "a signal would outlive its job": (_JOB, _SIGNAL, "update stepwell.job set durable = false"),
    "an event was taken twice by one job": (
        _JOB,
        _STEP,
        "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key) values ('{id}', now(), 2, 1, 'wait', 'l')",
        "update stepwell.step set event_id = 1",
    ),
    "a failure is on record twice": (_FAILURE, _FAILURE),
    "a failure is of a run that never was": (_JOB, _FAILURE),
    "a job failed, and no failure is on record": (_ENDED, "update stepwell.history set state = 'failed'"),
    "attempts do not fit epochs": (_JOB, "update stepwell.job set attempt = 2, epoch = 1"),
    "a run is blocked, and no run before it is live": (
        _JOB,
        "update stepwell.job set state = 'blocked', schedule_id = '{other}', scheduled_for = now()",
    ),
    "a tick was run twice": (
        _JOB,
        _ENDED,
        "update stepwell.history set id = '{other}'",
        "update stepwell.job set schedule_id = '{id}', scheduled_for = 'epoch'",
        "update stepwell.history set schedule_id = '{id}', scheduled_for = 'epoch'",
    ),
    "a worker's lease has ended, and it is still registered": (_WORKER,),
    "a control is for a worker that is gone": (
        "insert into stepwell.control (action, scope, name, asked_at) values ('pause', 'worker', '{id}', now())",
    ),
    "a session holds a lock for ever": ("select pg_advisory_lock(1937007984, 7)",),
    "what has expired is still there": (_EVENT, "update stepwell.event set expires_at = now() - interval '1 hour'"),
    "a bulk operation has counted wrong, or has ended without an end": (
        "select stepwell.start_bulk('retry', '{{}}')",
        "update stepwell.bulk set done = 1",
    ),
    "a job is stuck": (_JOB,),
    "a step is left": (_STEP,),
    "a witness is missing, or did not succeed": ("insert into fuzz.witness (job_id, task) values ('{id}', 't')",),
    "a transaction was not done exactly once": (_ENDED, "update stepwell.history set task = 'witness_paid'"),
}


def test_where_nothing_is_wrong_the_oracle_names_nothing(conn: psycopg.Connection[Any]) -> None:
    conn.execute(LEDGER)
    assert consult(conn, _ALL) == {}


@pytest.mark.slow
@pytest.mark.parametrize("title", [title for title in _ALL if title != "a session is idle in a transaction"])
def test_a_planted_fault_is_named(conn: psycopg.Connection[Any], title: str) -> None:
    conn.execute(LEDGER)
    # Triggers would mend some of them.
    conn.execute("set session_replication_role = replica")
    for statement in _PLANTED[title]:
        conn.execute(statement.format(id=_ID, other=_OTHER).encode())
    assert title in consult(conn, _ALL)


def test_a_session_that_holds_its_transaction_open_is_named(dsn: str, conn: psycopg.Connection[Any]) -> None:
    title = "a session is idle in a transaction"
    # The other session need not grow old: the same query without the limit tells the same.
    query: LiteralString = _ALL[title].replace("interval '5 seconds'", "interval '0'")
    with psycopg.connect(dsn) as other:
        other.execute("select")
        assert title in consult(conn, {title: query})
    assert consult(conn, {title: query}) == {}
