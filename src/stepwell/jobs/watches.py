"""The jobs that callers of this process watch, and what is known of each. The waiter's thread looks them up together.

Any number of callers may watch one job. A caller that is slow gets the newest state, not each one before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from stepwell.errors import StepwellError
from stepwell.jobs.doubts import Doubts
from stepwell.values.change import JobSnapshot


class Watch:
    """One caller's view of one job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.mark: int | None = None
        """The mark of the state that the caller has got last. The caller sets it: one whose time was up at the moment
        of a delivery has not got the state, and asks for it again."""
        self.future: Future[JobSnapshot] | None = None
        self.error: Exception | None = None
        """Why nobody looks at the job for this caller any more."""


class _WatchedJob:
    """A job, the newest snapshot of it, and who watches it."""

    __slots__ = ("snapshot", "watches")

    def __init__(self) -> None:
        self.snapshot: JobSnapshot | None = None
        self.watches: list[Watch] = []


class Watches:
    """All watches of a process. Each method may be called from any thread; `lock` is the waiter's."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._jobs: dict[str, _WatchedJob] = {}
        self._unasked: set[str] = set()
        self._doubts = Doubts()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __bool__(self) -> bool:
        return bool(self._jobs)

    @property
    def doubtful(self) -> bool:
        """Whether a job was not found, and must be looked up once more."""
        return bool(self._doubts)

    def add(self, watch: Watch) -> None:
        """Watch a job. The caller holds the lock. What other callers know of it may be from before: it is looked up."""
        job = self._jobs.setdefault(watch.job_id, _WatchedJob())
        job.watches.append(watch)
        job.snapshot = None
        self._unasked.add(watch.job_id)

    def remove(self, watch: Watch) -> None:
        with self._lock:
            job = self._jobs.get(watch.job_id)
            if job is not None and watch in job.watches:
                job.watches.remove(watch)
                if not job.watches:
                    self._forget(watch.job_id)

    def next(self, watch: Watch) -> Future[JobSnapshot]:
        """A future for the next state that this caller has not got."""
        future: Future[JobSnapshot] = Future()
        with self._lock:
            job = self._jobs.get(watch.job_id)
            if job is None or watch not in job.watches:
                future.set_exception(watch.error or _forked())
            else:
                watch.future = future
                if job.snapshot is not None:
                    _deliver(watch, job.snapshot)
        return future

    def take_unasked(self) -> list[str]:
        """The jobs that nobody has looked up yet. The caller holds the lock."""
        asked, self._unasked = list(self._unasked), set()
        return asked

    def marks(self, job_ids: Iterable[str] | None = None) -> list[tuple[str, int | None]]:
        """Each job, by default all, with the mark of what is known of it."""
        with self._lock:
            jobs = {job_id: self._jobs.get(job_id) for job_id in (self._jobs if job_ids is None else job_ids)}
            return [(i, job.snapshot.mark if job.snapshot else None) for i, job in jobs.items() if job is not None]

    def found(self, snapshots: Sequence[JobSnapshot], *, knows_all: bool) -> None:
        """Give callers what was found. Without `knows_all`, a job that was not found may exist: see `Doubts`."""
        with self._lock:
            for snapshot in snapshots:
                # Nobody watches it any more, or a caller came after this look had begun.
                if snapshot.id not in self._jobs or snapshot.id in self._unasked:
                    continue
                if not self._doubts.is_certain(snapshot.id, found=snapshot.state is not None, knows_all=knows_all):
                    continue
                job = self._jobs[snapshot.id]
                job.snapshot = snapshot
                for watch in job.watches:
                    _deliver(watch, snapshot)

    def fail(self, error: Exception) -> None:
        """Give every caller this error: nobody looks any more. The caller holds the lock."""
        jobs, self._jobs = self._jobs, {}
        self._unasked.clear()
        self._doubts.clear()
        for job in jobs.values():
            for watch in job.watches:
                watch.error = error
                future, watch.future = watch.future, None
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def _forget(self, job_id: str) -> None:
        del self._jobs[job_id]
        self._unasked.discard(job_id)
        self._doubts.forget(job_id)


def _forked() -> StepwellError:
    return StepwellError("this process was forked while it watched a job, and only its parent still does: watch again")


def _deliver(watch: Watch, snapshot: JobSnapshot) -> None:
    if snapshot.mark == watch.mark:
        return
    future, watch.future = watch.future, None
    if future is not None and future.set_running_or_notify_cancel():
        future.set_result(snapshot)
