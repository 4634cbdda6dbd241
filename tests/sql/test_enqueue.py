"""What goes in: options, ids, and what is refused before anything is written."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0


def job(conn: Connection, job_id: str) -> tuple[Any, ...]:
    row = conn.execute(
        "select state::text, task, queue, priority, extract(epoch from run_at)::double precision, max_attempts,"
        " args::text, metadata::text from stepwell.jobs where id = %s::uuid",
        (job_id,),
    ).fetchone()
    assert row is not None
    return row


def test_a_job_without_options_is_ready_now(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    job_id = calls.one(conn.execute("select stepwell.enqueue('ship')::text"))
    assert job(conn, job_id) == ("ready", "ship", "default", 0, CLOCK, None, "{}", None)


def test_all_options_are_kept(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    job_id = calls.one(
        conn.execute(
            "select stepwell.enqueue('ship', '{\"n\":  1}', 'slow', 5, delay => '1 minute', metadata => '{\"by\": 7}',"
            " max_attempts => 2)::text"
        )
    )
    # The args keep even their spaces.
    assert job(conn, job_id) == ("scheduled", "ship", "slow", 5, CLOCK + 60, 2, '{"n":  1}', '{"by": 7}')


def test_a_null_option_is_the_default(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    job_id = calls.enqueue(conn, "ship", queue=None, priority=None)
    assert job(conn, job_id)[:5] == ("ready", "ship", "default", 0, CLOCK)


def test_run_at_in_the_past_is_ready_and_keeps_its_place(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    assert job(conn, calls.enqueue(conn, run_at=CLOCK - 60))[::4] == ("ready", CLOCK - 60)
    assert job(conn, calls.enqueue(conn, run_at=CLOCK))[::4] == ("ready", CLOCK)
    assert job(conn, calls.enqueue(conn, run_at=CLOCK + 1))[::4] == ("scheduled", CLOCK + 1)


def test_a_batch_takes_options_for_all_or_for_each(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    ids = calls.enqueue_many(
        conn,
        ['{"n": 1}', '{"n": 2}', '{"n": 3}'],
        tasks=["ship"],
        queues=["a", "b", None],
        priorities=[5],
        delays=[None, 60.0, None],
        run_ats=[None, None, CLOCK + 30],
        metadata=['{"by": 7}'],
        max_attempts=[1, None, 3],
    )
    assert [job(conn, job_id) for job_id in ids] == [
        ("ready", "ship", "a", 5, CLOCK, 1, '{"n": 1}', '{"by": 7}'),
        ("scheduled", "ship", "b", 5, CLOCK + 60, None, '{"n": 2}', '{"by": 7}'),
        ("scheduled", "ship", "default", 5, CLOCK + 30, 3, '{"n": 3}', '{"by": 7}'),
    ]


def test_each_item_of_a_batch_may_be_another_task(conn: Connection) -> None:
    ids = calls.enqueue_many(conn, ["{}", "{}"], tasks=["ship", "mail"])
    assert [job(conn, job_id)[1] for job_id in ids] == ["ship", "mail"]


@pytest.mark.parametrize("tasks", [[], ["ship"]])
def test_an_empty_batch_is_no_jobs(conn: Connection, tasks: list[str]) -> None:
    assert calls.enqueue_many(conn, [], tasks=tasks) == []
    assert calls.enqueue_many(conn, [], tasks=tasks, queues=["a"], priorities=[1], metadata=["{}"]) == []


def test_ids_grow_along_a_batch_and_from_one_to_the_next(conn: Connection) -> None:
    first = calls.enqueue_many(conn, ["{}"] * 1000)
    second = calls.enqueue_many(conn, ["{}"] * 1000)
    assert len({*first, *second}) == 2000
    assert first == sorted(first)
    assert second == sorted(second)
    assert first[-1] < second[-1]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("''", "a task's name must have 1 to 200 characters"),
        ("null", "a task's name must have 1 to 200 characters"),
        ("repeat('x', 201)", "a task's name must have 1 to 200 characters"),
        ("'t', queue => ''", "a queue's name must have 1 to 200 characters"),
        ("'t', queue => repeat('x', 201)", "a queue's name must have 1 to 200 characters"),
        ("'t', priority => 32768", "priority must be between -32767 and 32767"),
        ("'t', priority => -32768", "priority must be between -32767 and 32767"),
        ("'t', delay => '-1 second'", "delay must be between 0 and 100 years"),
        ("'t', delay => '101 years'", "delay must be between 0 and 100 years"),
        ("'t', run_at => 'infinity'", "run_at must be between 1970 and 100 years from now"),
        ("'t', run_at => '-infinity'", "run_at must be between 1970 and 100 years from now"),
        ("'t', run_at => '1969-12-31 23:59:59+00'", "run_at must be between 1970 and 100 years from now"),
        ("'t', run_at => '3000-01-01'", "run_at must be between 1970 and 100 years from now"),
        ("'t', delay => '1 hour', run_at => now()", "delay and run_at exclude each other"),
        ("'t', max_attempts => 0", "max_attempts must be between 1 and 1000000"),
        ("'t', '[1]'", "args must be a JSON object of arguments by name"),
        ("'t', '\"{\"'", "args must be a JSON object of arguments by name"),
        ("'t', 'null'", "args must be a JSON object of arguments by name"),
        ("'t', null", "args must be a JSON object of arguments by name"),
        ("'t', '{\"name\": \"a\\u0000b\"}'", "args hold a NUL character"),
        ("'t', '{\"name\": \"\\\\\\u0000\"}'", "args hold a NUL character"),
        ("'t', metadata => '[1]'", "metadata must be a JSON object"),
        ("'t', metadata => 'null'", "metadata must be a JSON object"),
    ],
)
def test_nonsense_is_refused_in_words(conn: Connection, options: LiteralString, complaint: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"stepwell: {complaint}"):
        conn.execute("select stepwell.enqueue(" + options + ")")
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tasks": []}, "0 tasks for 2 args: give one task, or one for each"),
        ({"tasks": ["a", "b", "c"]}, "3 tasks for 2 args: give one task, or one for each"),
        ({"tasks": ["a", None]}, "a task's name must have 1 to 200 characters"),
        ({"queues": ["a", "b", "c"]}, "an option has neither one element nor 2"),
        ({"queues": []}, "an option has neither one element nor 2"),
        ({"priorities": [1, 2, 3]}, "an option has neither one element nor 2"),
        ({"delays": [1.0, 2.0, 3.0]}, "an option has neither one element nor 2"),
        ({"run_ats": [1.0, 2.0, 3.0]}, "an option has neither one element nor 2"),
        ({"max_attempts": [1, 2, 3]}, "an option has neither one element nor 2"),
        ({"metadata": ["{}", "{}", "{}"]}, "an option has neither one element nor 2"),
        ({"delays": [float("nan")]}, "delay must be between 0 and 100 years"),
        ({"delays": [float("inf")]}, "delay must be between 0 and 100 years"),
        ({"delays": [0.0, -0.001]}, "delay must be between 0 and 100 years"),
        ({"delays": [1.0], "run_ats": [CLOCK]}, "delay and run_at exclude each other"),
        ({"delays": [None, 1.0], "run_ats": [CLOCK]}, "delay and run_at exclude each other"),
        ({"delays": [1.0], "run_ats": [None, CLOCK]}, "delay and run_at exclude each other"),
        ({"metadata": ["[]"]}, "metadata must be a JSON object"),
        ({"metadata": [None, "7"]}, "metadata must be a JSON object"),
    ],
)
def test_nonsense_in_a_batch_is_refused_in_words(conn: Connection, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"stepwell: {complaint}"):
        calls.enqueue_many(conn, ["{}", "{}"], **options)
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 0


@pytest.mark.parametrize("args", ['{"n": 1', "{n: 1}", '{"n": 1} x'])
def test_args_that_are_no_json_are_refused(conn: Connection, args: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        calls.enqueue_many(conn, ["{}", args])
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 0


def test_an_escaped_backslash_before_u0000_is_no_nul(conn: Connection) -> None:
    args = r'{"path": "\\u0000"}'
    assert job(conn, calls.enqueue(conn, args=args))[6] == args


def test_args_may_begin_with_white_space(conn: Connection) -> None:
    assert job(conn, calls.enqueue(conn, args=" \n\t{}"))[6] == " \n\t{}"


def test_the_furthest_options_are_taken(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    names = "x" * 200
    job_id = calls.enqueue(conn, names, queue=names, priority=-32767, run_at=0.0, max_attempts=1_000_000)
    assert job(conn, job_id)[:6] == ("ready", names, names, -32767, 0.0, 1_000_000)


@pytest.mark.parametrize("tasks", ["[0:0]={work}", "{{work}}", "[2:3]={work,work}"])
def test_arrays_that_do_not_begin_at_one_are_refused(conn: Connection, tasks: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="does not begin at 1"):
        conn.execute("select stepwell.enqueue_many(%s::text[], %s::text[])", (tasks, ["{}", "{}"]))
