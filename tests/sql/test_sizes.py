"""How large a text may be: every function that writes one refuses what is larger than the owner allows."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest

from . import calls
from .calls import DAY, Connection

MIB = 1024 * 1024


def value(size: int) -> str:
    """A JSON text of so many bytes."""
    return json.dumps("x" * (size - 2))


def args(size: int) -> str:
    """A JSON object of so many bytes."""
    return json.dumps({"x": "x" * (size - 9)})


def held(conn: Connection, worker: str) -> calls.Held:
    job_id = calls.enqueue(conn)
    return next(job for job in calls.claim(conn, worker) if job.id == job_id)


def step(conn: Connection, worker: str, text: str | None, error: str | None = None) -> None:
    job = held(conn, worker)
    conn.execute(
        "select stepwell.save_steps(array[%s]::uuid[], array[%s], '{a}', '{1}', '{step}', array[%s], array[%s])",
        (job.id, job.epoch, text, error),
    )


def advance(conn: Connection, worker: str, text: str) -> None:
    job = held(conn, worker)
    conn.execute(
        "select stepwell.advance(array[%s]::uuid[], array[%s], '{a}', '{b}', array[%s], '{2}')",
        (job.id, job.epoch, text),
    )


def suspend(conn: Connection, worker: str, text: str) -> None:
    job = held(conn, worker)
    steps = [{"key": "a", "n": 1, "kind": "step", "value": json.loads(text)}]
    conn.execute(
        "select stepwell.suspend(array[%s]::uuid[], array[%s], array[%s])",
        (job.id, job.epoch, json.dumps({"steps": steps, "groups": [], "at_once": True})),
    )


def restart(conn: Connection, worker: str, text: str) -> None:
    job = held(conn, worker)
    conn.execute("select stepwell.restart(array[%s]::uuid[], array[%s], array[%s])", (job.id, job.epoch, text))


def spawn(conn: Connection, worker: str, text: str) -> None:
    job = held(conn, worker)
    conn.execute(
        "select stepwell.spawn(array[%s]::uuid[], array[%s], '{a}', '{1}', '{work}', array[%s])",
        (job.id, job.epoch, text),
    )


def progress(conn: Connection, worker: str, text: str) -> None:
    calls.report_progress(conn, [held(conn, worker)], text)


def finish(conn: Connection, worker: str, text: str) -> None:
    calls.finish(conn, [held(conn, worker)], result=text)


def send(conn: Connection, worker: str, text: str) -> None:
    conn.execute("select stepwell.send(%s::uuid, 'hello', %s::json)", (held(conn, worker).id, text))


def schedule(conn: Connection, _worker: str, text: str) -> None:
    conn.execute(
        "select stepwell.put_schedules('app', false, '{a}', '{work}', array[%s], '{default}', '{0}', '{null}',"
        " '{null}', '{60}', '{skip}', '{1}', '{0}', '{2100-01-01}')",
        (text,),
    )


Write = Callable[[Connection, str, str], object]

WRITES: list[tuple[str, str, int, Callable[[int], str], Write]] = [
    ("enqueue", "args", MIB, args, lambda conn, _, text: calls.enqueue(conn, "work", text)),
    ("enqueue_many", "args", MIB, args, lambda conn, _, text: calls.enqueue_many(conn, ["{}", text])),
    ("metadata", "metadata", 65536, args, lambda conn, _, text: calls.enqueue_many(conn, ["{}"], metadata=[text])),
    ("spawn", "args", MIB, args, spawn),
    ("restart", "args", MIB, args, restart),
    ("schedule", "args", MIB, args, schedule),
    ("emit", "event", MIB, value, lambda conn, _, text: conn.execute("select stepwell.emit('e', null, %s)", (text,))),
    ("send", "signal", MIB, value, send),
    ("finish", "result", MIB, value, finish),
    ("save_steps", "step", MIB, value, step),
    ("save_steps, an error", "step", MIB, value, lambda conn, worker, text: step(conn, worker, None, text)),
    ("advance", "step", MIB, value, advance),
    ("suspend", "step", MIB, value, suspend),
    ("progress", "progress", 65536, value, progress),
]


@pytest.mark.parametrize(("limit", "most", "text", "write"), [pytest.param(*case[1:], id=case[0]) for case in WRITES])
def test_a_text_over_the_limit_is_refused_and_the_error_names_the_command(
    conn: Connection, limit: str, most: int, text: Callable[[int], str], write: Write
) -> None:
    worker = calls.register_worker(conn)
    write(conn, worker, text(most))
    with pytest.raises(psycopg.DataError, match=rf'{limit} of \d+ bytes.*"stepwell sizes set {limit} (2MB|128kB)"'):
        write(conn, worker, text(most + 8))


@pytest.mark.parametrize(("limit", "most", "text", "write"), [pytest.param(*case[1:], id=case[0]) for case in WRITES])
def test_the_owner_can_allow_more(
    conn: Connection, limit: str, most: int, text: Callable[[int], str], write: Write
) -> None:
    with conn.transaction(force_rollback=True):
        worker = calls.register_worker(conn)
        assert calls.one(conn.execute("select stepwell.set_size_limit(%s, %s)", (limit, most + 8))) == most
        write(conn, worker, text(most + 8))


@pytest.mark.parametrize("number", ["1e131071", "-2.5E+99999", "1e-16000"])
def test_metadata_counts_as_it_is_written_out(conn: Connection, number: str) -> None:
    with pytest.raises(psycopg.DataError, match=r"metadata of \d+ bytes"):
        calls.enqueue_many(conn, ["{}"], metadata=[f'{{"a": [{", ".join([number] * 10)}]}}'])
    calls.enqueue_many(conn, ["{}"], metadata=['{"a": [1e20, 1.5e-10], "sha": "3e99999"}'])


def test_a_value_that_is_stored_compressed_counts_in_full(conn: Connection) -> None:
    conn.execute("create temp table stored as select array[repeat('x', 2000000)] as texts")
    conn.execute("create temp table big as select json_build_object('x', repeat('x', 2000000)) as args")
    with pytest.raises(psycopg.DataError, match="args of 2000010 bytes"):
        conn.execute("select stepwell.enqueue('work', args) from big")
    with pytest.raises(psycopg.DataError, match="args of 2000010 bytes"):
        conn.execute("select stepwell.enqueue_many('{work}', array[args::text, args::text]) from big")


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("args", 65535, "between 64 kB and 512 MB"),
        ("args", 2**30, "between 64 kB and 512 MB"),
        ("args", None, "between 64 kB and 512 MB"),
        ("arg", MIB, "no limit named 'arg': give one of args, event, job"),
        ("args", 128 * MIB, '131136 kB, which is more: first run "stepwell sizes set job 131136kB"'),
        ("job", MIB, "would be 1024 kB, .* together 1088 kB, which is more: lower those of args or metadata first"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(conn: Connection, name: str, size: int | None, why: str) -> None:
    with pytest.raises(psycopg.Error, match=why):
        conn.execute("select stepwell.set_size_limit(%s, %s)", (name, size))


def test_the_texts_of_a_failure_are_cut(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    job = held(conn, worker)
    long = "x" * 2_000_000
    conn.execute(
        "select stepwell.fail(array[%s]::uuid[], array[%s], array[%s], array[%s], array[%s], array[%s], '{null}',"
        " '{1}', array[%s])",
        (job.id, job.epoch, long, long, long, long, DAY),
    )
    lengths = conn.execute(
        "select length(reason), length(type), length(message), length(traceback) from stepwell.failures"
    ).fetchone()
    assert lengths == (200, 1000, 10_000, 100_000)


def test_the_reason_of_a_cancel_is_limited(conn: Connection) -> None:
    job_id = calls.enqueue(conn)
    with pytest.raises(psycopg.DataError, match="at most 10000 characters"):
        calls.cancel(conn, [job_id], "x" * 10_001)
    assert calls.cancel(conn, [job_id], "x" * 10_000) == {job_id: "cancelled"}
