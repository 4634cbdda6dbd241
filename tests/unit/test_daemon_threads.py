"""The threads in which a worker calls plain functions."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from stepwell.worker import daemon_threads
from stepwell.worker.daemon_threads import DaemonThreads


def test_calls_run_in_threads_that_are_started_as_they_are_needed() -> None:
    threads = DaemonThreads(2, "some")
    assert [threads.submit(threading.current_thread).result(5).name for _ in range(3)]
    both = threading.Barrier(2)
    assert sorted(future.result(5) for future in [threads.submit(both.wait, 5) for _ in range(2)]) == [0, 1]
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(print)


def test_a_call_that_gets_no_thread_never_runs_and_takes_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = DaemonThreads(1, "some")
    called: list[str] = []

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="start new thread"):
            threads.submit(called.append, "refused")
    threads.submit(called.append, "taken").result(5)
    assert called == ["taken"]
    threads.close()


def test_close_does_not_wait_for_a_call_that_a_thread_takes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end, last_begun = threading.Event(), threading.Event(), threading.Event()

    class LateQueue(SimpleQueue[Any]):
        def empty(self) -> bool:
            was_empty = super().empty()
            end.set()
            last_begun.wait(5)
            return was_empty

    monkeypatch.setattr(daemon_threads, "SimpleQueue", LateQueue)
    threads = DaemonThreads(1, "some")
    threads.submit(lambda: begun.set() or end.wait(5))
    begun.wait(5)
    threads.submit(last_begun.set)
    closing = threading.Thread(target=threads.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    end.set()
