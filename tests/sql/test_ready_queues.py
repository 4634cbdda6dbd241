"""Which queues have something ready, for workers that claim by pattern."""

from __future__ import annotations

import pytest

from . import calls
from .calls import Connection


@pytest.fixture
def queues(conn: Connection) -> None:
    for queue in ("default", "mail", "mail.eu", "mail.us", "mailbox", "Mail.eu", "100%", "a_b", "*"):
        calls.enqueue_many(conn, ["{}"] * 3, queues=[queue])


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*"], {"default", "mail", "mail.eu", "mail.us", "mailbox", "Mail.eu", "100%", "a_b", "*"}),
        (["mail.*"], {"mail.eu", "mail.us"}),
        (["mail*"], {"mail", "mail.eu", "mail.us", "mailbox"}),
        (["mail"], {"mail"}),
        (["mail.e*", "default"], {"mail.eu", "default"}),
        (["100%*", "a_*"], {"100%", "a_b"}),
        (["%*", "_*", "nothing*", "nobody"], set[str]()),
        ([], set[str]()),
    ],
)
def test_the_queues_that_fit_a_pattern_are_found_once(conn: Connection, patterns: list[str], found: set[str]) -> None:
    assert sorted(calls.ready_queues(conn, *patterns)) == sorted(found)


def test_only_ready_jobs_count(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    for queue in ("claimed", "empty", "ready"):
        calls.enqueue(conn, queue=queue)
    calls.enqueue(conn, queue="later", delay=60.0)
    held = calls.claim(conn, worker, queues=["claimed", "empty"])
    calls.finish(conn, [job for job in held if job.queue == "empty"])
    assert calls.ready_queues(conn, "*") == ["ready"]


@pytest.mark.usefixtures("queues")
def test_a_paused_queue_is_left_out_until_resumed(conn: Connection) -> None:
    conn.execute("select stepwell.pause('mail.eu'), stepwell.pause('mail'), stepwell.resume('mail')")
    assert sorted(calls.ready_queues(conn, "mail*")) == ["mail", "mail.us", "mailbox"]
    conn.execute("select stepwell.resume('mail.eu')")
    assert "mail.eu" in calls.ready_queues(conn, "mail.*")


def test_without_a_ready_job_there_is_none(conn: Connection) -> None:
    assert calls.ready_queues(conn, "*") == []
