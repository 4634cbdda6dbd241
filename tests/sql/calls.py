"""Every function of the schema as a call, for tests that speak to Postgres directly.

What a test does not care about has a default here. Times are seconds since 1970, so that "for ever" is infinity.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]

DAY = 86400.0


def processor_time(conn: Connection) -> float:
    """The seconds for which the server process of this session has run; where the system does not say, the time."""
    try:
        return int(Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return time.perf_counter()


class Held(NamedTuple):
    """A claimed job: its fence, and where it stood."""

    id: str
    queue: str
    task: str
    epoch: int
    attempt: int
    rank: int
    run_at: float

    @property
    def place(self) -> Position:
        return Position(self.rank, self.run_at, self.id)


class Position(NamedTuple):
    """After which job to claim; Nones: from the front."""

    rank: int | None = None
    run_at: float | None = None
    id: str | None = None


FRONT = Position()


class FirstReady(NamedTuple):
    """Where the first ready job of a queue stands, of this rank or of all ranks up to the last."""

    queue: str
    rank: int
    last_rank: int
    run_at: float


def enqueue(
    conn: Connection,
    task: str = "work",
    args: str = "{}",
    *,
    queue: str | None = "default",
    priority: int | None = 0,
    delay: float | None = None,
    run_at: float | None = None,
    max_attempts: int | None = None,
) -> str:
    return one(
        conn.execute(
            "select stepwell.enqueue(%s, %s, queue => %s, priority => %s, delay => make_interval(secs => %s),"
            " run_at => to_timestamp(%s), max_attempts => %s)::text",
            (task, args, queue, priority, delay, run_at, max_attempts),
        )
    )


def enqueue_many(
    conn: Connection,
    args: Sequence[str | None],
    *,
    tasks: Sequence[str | None] = ("work",),
    queues: Sequence[str | None] | None = None,
    priorities: Sequence[int | None] | None = None,
    delays: Sequence[float | None] | None = None,
    run_ats: Sequence[float | None] | None = None,
    metadata: Sequence[str | None] | None = None,
    max_attempts: Sequence[int | None] | None = None,
    policies: Sequence[str | None] | None = None,
) -> list[str]:
    return one(
        conn.execute(
            "select stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[], %s::double precision[],"
            " (select array_agg(to_timestamp(u.s) order by u.n) from unnest(%s::double precision[])"
            " with ordinality as u (s, n)), %s::text[], %s::integer[], _policies => %s::text[])::text[]",
            [
                None if option is None else list(option)
                for option in (tasks, args, queues, priorities, delays, run_ats, metadata, max_attempts, policies)
            ],
        )
    )


def register_worker(
    conn: Connection, *, tasks: dict[str, dict[str, float]] | None = None, lease: float = 3600.0, pid: int = 1
) -> str:
    return one(
        conn.execute(
            "select stepwell.register_worker('host', %s, '0', '{default}', %s::text, 10, %s)::text",
            (pid, Jsonb(tasks or {}), lease),
        )
    )


def claim(
    conn: Connection,
    worker: str,
    limit: int = 100,
    *,
    queues: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("work",),
    positions: Sequence[Position] | None = None,
    shares: Sequence[float] | None = None,
    last_ranks: Sequence[int] | None = None,
) -> list[Held]:
    """In the order of the positions, whatever order the rows came in."""
    after = positions or [FRONT] * len(queues)
    with conn.cursor(row_factory=class_row(Held)) as cursor:
        cursor.execute(
            "select id, queue, task, epoch, attempt, rank, run_at / 1e6::double precision as run_at"
            " from stepwell.claim_jobs(%s::uuid, %s::text[], %s::integer[],"
            " (select array_agg((u.s * 1e6)::bigint order by u.n) from unnest(%s::double precision[])"
            " with ordinality as u (s, n)), %s::uuid[], %s::text[], %s, %s::double precision[],"
            " _last_ranks => %s::integer[])",
            (
                worker,
                list(queues),
                [position.rank for position in after],
                [position.run_at for position in after],
                [position.id for position in after],
                list(tasks),
                limit,
                None if shares is None else list(shares),
                None if last_ranks is None else list(last_ranks),
            ),
        )
        return sorted(cursor, key=lambda held: (held.rank, held.run_at, held.id))


def first_ready(conn: Connection, worker: str, *patterns: str, tasks: Sequence[str] = ("work",)) -> list[FirstReady]:
    rows = conn.execute(
        "select queue, rank, last_rank, extract(epoch from run_at)::double precision"
        " from stepwell.first_ready(%s::uuid, %s::text[], %s::text[])",
        (worker, list(patterns), list(tasks)),
    )
    return [FirstReady(*row) for row in rows]


def ready_queues(conn: Connection, *patterns: str) -> list[str]:
    return [row[0] for row in conn.execute("select stepwell.ready_queues(%s::text[])", (list(patterns),))]


def finish(
    conn: Connection, held: Sequence[Held], *, result: str | None = "null", keep: float = DAY, state: str = "succeeded"
) -> list[str]:
    """Returns the ids that were refused, as do `fail` and `snooze`."""
    return one(
        conn.execute(
            "select stepwell.finish(%s::uuid[], %s::integer[], %s::text[], %s::double precision[],"
            " %s::stepwell.state[])::text[]",
            (ids(held), epochs(held), [result] * len(held), [keep], [state]),
        )
    )


def fail(
    conn: Connection,
    held: Sequence[Held],
    *,
    delay: float | None = 0.0,
    max_attempts: int = 3,
    keep: float = DAY,
    reason: str = "error",
) -> list[str]:
    count = len(held)
    return one(
        conn.execute(
            "select stepwell.fail(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
            " %s::double precision[], %s::integer[], %s::double precision[])::text[]",
            (
                ids(held),
                epochs(held),
                [reason] * count,
                ["ValueError"] * count,
                ["no such order"] * count,
                ["Traceback"] * count,
                [delay] * count,
                [max_attempts] * count,
                [keep] * count,
            ),
        )
    )


def snooze(conn: Connection, held: Sequence[Held], *, delay: float = 0.0, began: bool | None = None) -> list[str]:
    """`began` is None in the calls of older workers."""
    return one(
        conn.execute(
            "select stepwell.snooze(%s::uuid[], %s::integer[], %s::double precision[], %s::boolean)::text[]",
            (ids(held), epochs(held), [delay] * len(held), began),
        )
    )


def report_progress(conn: Connection, held: Sequence[Held], progress: str = "1") -> None:
    conn.execute(
        "select stepwell.report_progress(%s::uuid[], %s::integer[], %s::text[])",
        (ids(held), epochs(held), [progress] * len(held)),
    )


def still_held(conn: Connection, held: Held) -> bool:
    return one(conn.execute("select stepwell.still_held(%s::uuid, %s)", (held.id, held.epoch)))


def cancel(conn: Connection, job_ids: Sequence[str], reason: str | None = None) -> dict[str, str]:
    rows = conn.execute("select id::text, state::text from stepwell.cancel(%s::uuid[], %s)", (list(job_ids), reason))
    return dict(rows.fetchall())


def retry(conn: Connection, job_ids: Sequence[str]) -> list[str]:
    return one(conn.execute("select stepwell.retry(%s::uuid[])::text[]", (list(job_ids),)))


def promote(conn: Connection, limit: int = 5000) -> tuple[int, float | None]:
    row = conn.execute("select promoted, next_due from stepwell.promote(%s)", (limit,)).fetchone()
    assert row is not None
    return row[0], row[1]


def renew(conn: Connection, worker: str, lease: float = 3600.0) -> list[str] | None:
    """The jobs to stop; None: the worker was declared dead."""
    row = conn.execute("select cancelling::text[] from stepwell.renew(%s::uuid, %s, 0)", (worker, lease)).fetchone()
    return None if row is None else row[0]


def rescue(conn: Connection) -> list[str]:
    return one(conn.execute("select stepwell.rescue()::text[]"))


def unregister_worker(conn: Connection, worker: str) -> list[str]:
    return one(conn.execute("select stepwell.unregister_worker(%s::uuid)::text[]", (worker,)))


def make_partitions(conn: Connection, *keeps: float) -> list[str]:
    return one(conn.execute("select stepwell.make_partitions(%s::double precision[])", (list(keeps),)))


def prune(conn: Connection) -> list[str]:
    return one(conn.execute("select stepwell.prune()"))


def set_clock(conn: Connection, at: float | str) -> None:
    """Freeze stepwell.now(), at seconds since 1970 or at a time written out."""
    conn.execute("delete from stepwell.clock")
    if isinstance(at, str):
        conn.execute("insert into stepwell.clock (at) values (%s::timestamptz)", (at,))
    else:
        conn.execute("insert into stepwell.clock (at) values (to_timestamp(%s))", (at,))


def state(conn: Connection, job_id: str) -> str | None:
    """None: it is not kept."""
    row = conn.execute("select state::text from stepwell.jobs where id = %s::uuid", (job_id,)).fetchone()
    return None if row is None else row[0]


def ids(held: Sequence[Held]) -> list[str]:
    return [job.id for job in held]


def epochs(held: Sequence[Held]) -> list[int]:
    return [job.epoch for job in held]


def one(cursor: psycopg.Cursor[Any]) -> Any:
    """The only column of the only row."""
    row = cursor.fetchone()
    assert row is not None
    return row[0]


def blocked(conn: Connection, other: Connection) -> bool:
    """Whether the other session waits for a lock."""
    return one(conn.execute("select cardinality(pg_blocking_pids(%s)) > 0", (other.info.backend_pid,)))


def sleeping(conn: Connection, other: Connection) -> bool:
    """Whether the other session is in pg_sleep."""
    query = "select wait_event is not distinct from 'PgSleep' from pg_stat_activity where pid = %s"
    return one(conn.execute(query, (other.info.backend_pid,)))
