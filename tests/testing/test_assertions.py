"""Look for jobs among many, and by arguments that were left to their defaults."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import App
from stepwell.testing import assert_enqueued


def test_a_job_is_found_behind_more_than_a_page_of_others(app_of: App) -> None:
    @app_of.task
    def send(to: int) -> None: ...

    first = send.enqueue(-1)
    send.enqueue_many([{"to": n} for n in range(2000)])
    [job] = assert_enqueued(send, {"to": -1})
    assert job.id == first.id
    assert len(assert_enqueued(send, count=2001)) == 2001
    with pytest.raises(AssertionError, match=r"1 job send\(to=-1\) was enqueued, not 0;(?s:.*)and 1996 more"):
        assert_enqueued(send, {"to": -1}, count=0)


def test_an_argument_that_was_not_given_has_its_default(app_of: App) -> None:
    @app_of.task
    def send(to: int, wait: timedelta = timedelta(hours=1), how: object = object) -> None: ...

    send.enqueue(1)
    assert_enqueued(send, {"to": 1, "wait": timedelta(hours=1)}, count=1)
    assert_enqueued(send, {"wait": timedelta(hours=2)}, count=0)
    assert_enqueued(send, {"how": 1}, count=0)
