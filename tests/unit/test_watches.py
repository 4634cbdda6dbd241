"""Watches of jobs: each caller gets each state, however late it asks."""

from __future__ import annotations

import threading

import pytest

from stepwell.jobs.watches import Watch, Watches
from stepwell.values.change import JobSnapshot


def snapshot(mark: int) -> JobSnapshot:
    return JobSnapshot("a", mark, "running", "work", 1, None, None, None, None, ())


def test_a_caller_whose_time_was_up_at_the_moment_of_a_delivery_gets_the_state_with_its_next_call() -> None:
    watches = Watches(threading.Lock())
    watch = Watch("a")
    watches.add(watch)
    watches.take_unasked()
    given_up = watches.next(watch)
    watches.found([snapshot(1)], knows_all=True)
    assert given_up.done()  # but the caller had stopped waiting, and never looked
    assert watches.next(watch).result(timeout=0).mark == 1


def test_a_caller_gets_no_state_twice() -> None:
    watches = Watches(threading.Lock())
    watch = Watch("a")
    watches.add(watch)
    watches.take_unasked()
    watches.found([snapshot(1)], knows_all=True)
    watch.mark = watches.next(watch).result(timeout=0).mark
    following = watches.next(watch)
    watches.found([snapshot(1)], knows_all=True)
    watches.found([snapshot(2)], knows_all=True)
    assert following.result(timeout=0).mark == 2


def test_a_look_that_began_before_a_caller_came_is_not_for_it() -> None:
    watches = Watches(threading.Lock())
    first, second = Watch("a"), Watch("a")
    watches.add(first)
    watches.take_unasked()
    watches.add(second)  # while the query for the first one runs
    watches.found([snapshot(1)], knows_all=True)
    following = watches.next(second)
    assert not following.done()
    assert watches.take_unasked() == ["a"]
    watches.found([snapshot(2)], knows_all=True)
    assert following.result(timeout=0).mark == 2


def test_each_caller_gets_the_error_that_ended_its_watch_although_another_watches_anew() -> None:
    lock = threading.Lock()
    watches = Watches(lock)
    first, second = Watch("a"), Watch("a")
    watches.add(first)
    with lock:
        watches.fail(ValueError("gone"))
        watches.add(second)
    with pytest.raises(ValueError, match="gone"):
        watches.next(first).result(timeout=0)
    assert not watches.next(second).done()


def test_a_job_that_nobody_watches_any_more_is_not_looked_up_again() -> None:
    watches = Watches(threading.Lock())
    watch = Watch("a")
    watches.add(watch)
    watches.remove(watch)  # while the query for it runs
    watches.found([JobSnapshot("a", 0, None, None, None, None, None, None, None, ())], knows_all=True)
    assert not watches.doubtful
