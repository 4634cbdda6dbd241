"""What the SQL functions promise, as plain Python: one job at a time, no concurrency, no indexes.

A transition returns whether the fence let it through. Times are seconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, inf

from .calls import FRONT, Position

DEFAULT_MAX_ATTEMPTS = 20
DEFAULT_KEEP_FAILED = 30 * 86400.0
PATIENCE = 1.0


@dataclass(frozen=True)
class Rules:
    """The admission of a job: a limit or a rate with a key, and a unique key."""

    key: str | None = None
    most: int | None = None
    """How many may run at once; None: it is a rate."""
    hold: bool = False
    interval: float = 0.0
    burst: int = 0
    slack: float = 0.0
    unique: str | None = None

    @property
    def policy(self) -> str:
        admission: dict[str, object] = {}
        if self.most is not None:
            admission["limits"] = [{"key": self.key, "most": self.most, "hold": self.hold}]
        elif self.key is not None:
            admission["rates"] = [{"key": self.key, "interval": self.interval, "burst": self.burst, "late": self.slack}]
        if self.unique is not None:
            admission["unique"] = {"key": self.unique}
        return json.dumps({"admission": admission})


NO_RULES = Rules()


@dataclass
class Job:
    id: str
    task: str
    queue: str
    rank: int
    max_attempts: int | None
    run_at: float
    enqueued_at: float
    state: str
    epoch: int = 0
    attempt: int = 0
    worker: str | None = None
    claimed_at: float | None = None
    cancelling: bool = False
    error: str | None = None
    """Why it failed or was cancelled; while it runs, why it shall be."""
    finished_at: float | None = None
    expires_at: float | None = None
    result: str | None = None
    rules: Rules = NO_RULES
    has_permit: bool = False

    @property
    def place(self) -> Position:
        """Where it stands in its queue."""
        return Position(self.rank, self.run_at, self.id)


@dataclass(frozen=True, order=True)
class Failure:
    job_id: str
    epoch: int
    attempt: int
    reason: str
    worker: str
    claimed_at: float
    failed_at: float
    expires_at: float


@dataclass
class Worker:
    id: str
    lease_until: float
    limits: dict[str, dict[str, float]]
    lock_claimed: bool = False
    """It said at its last renewal that its session holds the lock."""
    lock_held: bool = False
    """Its session does hold the lock."""
    lock_missing_since: float | None = None
    overdue_since: float | None = None
    renewed_at: float = 0.0


@dataclass
class Model:
    now: float
    live: dict[str, Job] = field(default_factory=dict[str, Job])
    history: dict[str, Job] = field(default_factory=dict[str, Job])
    forgotten: set[str] = field(default_factory=set[str])
    """Ended, and kept for no time at all."""
    failures: list[Failure] = field(default_factory=list[Failure])
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    paused: set[str] = field(default_factory=set[str])
    used: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Of each rate, how many tokens were missing from its bucket, and when."""

    def enqueue(
        self,
        job_id: str,
        task: str,
        queue: str,
        priority: int,
        delay: float | None,
        max_attempts: int | None,
        rules: Rules = NO_RULES,
    ) -> None:
        run_at = self.now + (delay or 0.0)
        state = "scheduled" if run_at > self.now else "ready"
        self.live[job_id] = Job(job_id, task, queue, -priority, max_attempts, run_at, self.now, state, rules=rules)

    def holder(self, unique: str | None) -> str | None:
        """The job that has this unique key."""
        if unique is None:
            return None
        return next((job.id for job in self.live.values() if job.rules.unique == unique), None)

    def admit(self) -> None:
        """Block the ready jobs that need a permit, and admit the first in each line while there is room."""
        for job in self.live.values():
            if job.state == "ready" and job.rules.key is not None and not job.has_permit:
                job.state = "blocked"
        for job in sorted(self.live.values(), key=lambda job: job.place):
            if job.state == "blocked" and self.room(job.rules) > 0:
                job.state, job.has_permit = "ready", True

    def room(self, rules: Rules) -> int:
        held = sum(job.has_permit and job.rules.key == rules.key for job in self.live.values())
        if rules.most is not None:
            return rules.most - held
        return floor(rules.burst + rules.slack - self._missing(rules) + 1e-6) - held

    def _missing(self, rules: Rules) -> float:
        """How many tokens are missing from the bucket of a rate."""
        used, at = self.used.get(rules.key or "", (0.0, self.now))
        return max(0.0, used - (self.now - at) / rules.interval)

    def claimable(self, queue: str, tasks: Sequence[str], after: Position) -> list[Job]:
        """In the order in which they must go."""
        if queue in self.paused:
            return []
        waiting = [job for job in self.live.values() if job.state == "ready" and job.queue == queue]
        return sorted(
            (job for job in waiting if job.task in tasks and (after == FRONT or job.place > after)),
            key=lambda job: job.place,
        )

    def claim(self, job_id: str, worker: str) -> Job:
        job = self.live[job_id]
        job.state, job.worker, job.claimed_at = "running", worker, self.now
        job.epoch += 1
        job.attempt += 1
        if job.rules.key is not None and job.rules.most is None:
            self.used[job.rules.key] = (self._missing(job.rules) + 1, self.now)
            job.has_permit = False
        return job

    def held(self, job_id: str, epoch: int) -> Job | None:
        """The fence."""
        job = self.live.get(job_id)
        return job if job is not None and job.state == "running" and job.epoch == epoch else None

    def finish(self, job_id: str, epoch: int, state: str, result: str | None, keep: float) -> bool:
        job = self.held(job_id, epoch)
        if job is None:
            return False
        self._end(job, state, keep, job.error if state == "cancelled" else None)
        job.result = result
        return True

    def fail(
        self, job_id: str, epoch: int, reason: str, text: str, delay: float | None, max_attempts: int, keep: float
    ) -> bool:
        job = self.held(job_id, epoch)
        if job is None:
            return False
        assert job.worker is not None
        assert job.claimed_at is not None
        if keep > 0:
            self.failures.append(
                Failure(job_id, epoch, job.attempt, reason, job.worker, job.claimed_at, self.now, self._expiry(keep))
            )
        limit = max_attempts if job.max_attempts is None else job.max_attempts
        if job.cancelling:
            self._end(job, "cancelled", keep, job.error)
        elif delay is None or job.attempt >= limit:
            self._end(job, "failed", keep, text)
        else:
            self._give_back(job, delay)
            job.run_at = self.now + delay
        return True

    def snooze(self, job_id: str, epoch: int, delay: float) -> bool:
        job = self.held(job_id, epoch)
        if job is None:
            return False
        job.attempt -= 1
        self._give_back(job, delay)
        if delay > 0:
            job.run_at = self.now + delay
        if job.cancelling:
            self.cancel(job_id, None)
        return True

    def cancel(self, job_id: str, reason: str | None) -> str | None:
        """The state it answers with; None: there is no such live job."""
        job = self.live.get(job_id)
        if job is None:
            return None
        job.error = job.error if reason is None else reason
        if job.state == "running":
            job.cancelling = True
            return "running"
        self._end(job, "cancelled", self._keep_failed(job.task), job.error)
        return "cancelled"

    def retry(self, job_id: str) -> bool:
        job = self.live.get(job_id)
        if job is not None and job.state == "scheduled" and job.attempt > 0:
            job.state, job.run_at = "ready", self.now
            return True
        job = self.kept().get(job_id)
        if job is None or job.state == "succeeded" or self.holder(job.rules.unique) is not None:
            return False
        del self.history[job_id]
        self.live[job_id] = Job(
            job_id, job.task, job.queue, job.rank, job.max_attempts, self.now, job.enqueued_at, "ready",
            epoch=job.epoch, claimed_at=job.claimed_at, rules=job.rules,
        )  # fmt: skip
        return True

    def kept(self) -> dict[str, Job]:
        """What has ended and can be looked at: it goes by the time, not by when it is pruned."""
        return {job.id: job for job in self.history.values() if job.expires_at and job.expires_at > self.now}

    def due(self) -> list[Job]:
        return [job for job in self.live.values() if job.state == "scheduled" and job.run_at <= self.now]

    def next_due(self) -> float | None:
        times = [job.run_at for job in self.live.values() if job.state == "scheduled"]
        return max(0.0, min(times) - self.now) if times else None

    def alive(self) -> list[str]:
        """The workers that may claim."""
        return [worker.id for worker in self.workers.values() if worker.lease_until > self.now]

    def is_suspect(self, worker: Worker) -> bool:
        """Whether a rescue has anything to do with this worker."""
        return worker.lease_until <= self.now or (worker.lock_claimed and not worker.lock_held)

    def renew(self, worker_id: str, lease: float) -> set[str] | None:
        worker = self.workers.get(worker_id)
        if worker is None:
            return None
        worker.renewed_at = self.now
        worker.lease_until = self.now + lease
        worker.lock_claimed = worker.lock_held = True
        worker.lock_missing_since = worker.overdue_since = None
        return {job.id for job in self.live.values() if job.worker == worker_id and job.cancelling}

    def rescue(self) -> set[str]:
        rescued: set[str] = set()
        for worker in list(self.workers.values()):
            if self._is_dead(worker):
                rescued |= self.leave(worker.id)
        return rescued

    def leave(self, worker_id: str) -> set[str]:
        """A worker goes, and what it held is failed as lease_lost."""
        worker = self.workers.pop(worker_id, None)
        limits = {} if worker is None else worker.limits
        held = [job for job in self.live.values() if job.worker == worker_id]
        for job in held:
            limit = limits.get(job.task, {})
            self.fail(
                job.id,
                job.epoch,
                "lease_lost",
                "LeaseLost",
                0.0,
                int(limit.get("max_attempts", DEFAULT_MAX_ATTEMPTS)),
                limit.get("keep_failed", DEFAULT_KEEP_FAILED),
            )
        return {job.id for job in held}

    def _is_dead(self, worker: Worker) -> bool:
        if worker.lease_until <= self.now:
            return not (worker.lock_claimed and worker.lock_held) or self._is_overdue(worker)
        if not worker.lock_claimed:
            return False
        missing_since = worker.lock_missing_since
        if worker.lock_held:
            worker.lock_missing_since = None
        elif missing_since is None:
            worker.lock_missing_since = self.now
        return not worker.lock_held and missing_since is not None and missing_since <= self.now - PATIENCE

    def _is_overdue(self, worker: Worker) -> bool:
        """Whether it has not renewed for half a lease since it was first found late."""
        if worker.overdue_since is None:
            worker.overdue_since = self.now
            return False
        return self.now - worker.overdue_since >= (worker.lease_until - worker.renewed_at) / 2

    def _keep_failed(self, task: str) -> float:
        """As any worker that knows the task would keep a failure of it."""
        limits = [worker.limits[task] for worker in self.workers.values() if task in worker.limits]
        return limits[0].get("keep_failed", DEFAULT_KEEP_FAILED) if limits else DEFAULT_KEEP_FAILED

    def _give_back(self, job: Job, delay: float) -> None:
        job.state = "scheduled" if delay > 0 else "ready"
        job.worker = None
        job.has_permit = job.has_permit and job.rules.hold

    def _end(self, job: Job, state: str, keep: float, error: str | None) -> None:
        del self.live[job.id]
        job.has_permit = False
        if keep <= 0:
            self.forgotten.add(job.id)
            return
        job.state, job.error, job.cancelling = state, error, False
        job.finished_at, job.expires_at = self.now, self._expiry(keep)
        self.history[job.id] = job

    def _expiry(self, keep: float) -> float:
        return self.now + keep if keep < inf else inf
