"""Random lives of many jobs, step by step against the model: nothing is lost, doubled, or written by a late worker."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import sql

from . import calls
from .calls import FRONT, Connection, Held, Position
from .model import NO_RULES, Model, Rules, Worker
from .tables import next_rate_due, read_failures, read_jobs, read_permits, read_unique_keys

TASKS = ("mail", "ship")
QUEUES = ("default", "slow")
LIMITS: dict[str, dict[str, float]] = {"mail": {"max_attempts": 2}, "ship": {"max_attempts": 3, "keep_failed": 0.0}}
MIDNIGHT = 1_800_000_000.0
RULES = (
    NO_RULES,
    Rules("one", most=1),
    Rules("two", most=2),
    Rules("held", most=1, hold=True),
    Rules("rate", interval=8.0, burst=2),
    Rules("smooth", interval=8.0, burst=1, slack=0.75),
    Rules(unique="u"),
    Rules("two", most=2, unique="v"),
)

tasks = st.sampled_from(TASKS)
queues = st.sampled_from(QUEUES)
priorities = st.sampled_from([0, -1, 5])
delays = st.sampled_from([None, 0.0, 5.0, 60.0])
some_limit = st.sampled_from([None, 1, 2])
keeps = st.sampled_from([60.0, 0.0, inf])
some_rules = st.sampled_from(RULES)
some_jobs = st.lists(st.tuples(tasks, queues, priorities, delays, some_limit, some_rules), min_size=1, max_size=6)
reasons = st.sampled_from([None, "enough", "mistake"])


class JobLives(RuleBasedStateMachine):
    """Each rule makes one call and tells the model; then all tables are compared."""

    def __init__(self, conn: Connection, sessions: list[Connection]) -> None:
        super().__init__()
        self.conn = conn
        self.sessions = sessions
        self.model = Model(MIDNIGHT)
        self.enqueued: set[str] = set()
        self.fences: list[Held] = []
        """Every claim ever made: most are stale."""
        self.registered: list[str] = []
        self.session_of: dict[str, Connection] = {}
        # On a few rows cheaper than truncating some twenty partitions.
        for table in ("job", "history", "failure", "worker", "control", "permit", "bucket", "unique_key"):
            conn.execute(sql.SQL("delete from {}").format(sql.Identifier("stepwell", table)))
        calls.set_clock(conn, MIDNIGHT)
        for session in sessions:
            session.execute("select pg_advisory_unlock_all()")
            self.register(session)

    @initialize(items=some_jobs)
    def start(self, items: list[tuple[str, str, int, float | None, int | None, Rules]]) -> None:
        self.enqueue_many(items)

    def register(self, session: Connection) -> None:
        worker = calls.register_worker(session, tasks=LIMITS, lease=30.0)
        self.registered.append(worker)
        self.session_of[worker] = session
        self.model.workers[worker] = Worker(worker, self.model.now + 30.0, LIMITS)

    @precondition(lambda self: len(self.model.live) < 12)
    @rule(task=tasks, queue=queues, priority=priorities, delay=delays, max_attempts=some_limit)
    def enqueue(self, task: str, queue: str, priority: int, delay: float | None, max_attempts: int | None) -> None:
        job = calls.enqueue(self.conn, task, queue=queue, priority=priority, delay=delay, max_attempts=max_attempts)
        self.put(job, task, queue, priority, delay, max_attempts)

    @precondition(lambda self: len(self.model.live) < 12)
    @rule(items=some_jobs)
    def enqueue_many(self, items: list[tuple[str, str, int, float | None, int | None, Rules]]) -> None:
        some_tasks, some_queues, some_priorities, some_delays, limits, rules = zip(*items, strict=True)
        jobs = calls.enqueue_many(
            self.conn,
            ["{}"] * len(items),
            tasks=some_tasks,
            queues=some_queues,
            priorities=some_priorities,
            delays=some_delays,
            max_attempts=limits,
            policies=[None if each == NO_RULES else each.policy for each in rules],
        )
        new = list(dict.fromkeys(job for job in jobs if job not in self.enqueued))
        assert new == sorted(new)
        for job, item in zip(jobs, items, strict=True):
            holder = self.model.holder(item[-1].unique)
            if holder is None:
                self.put(job, *item)
            else:
                assert job == holder, "not the job that has the unique key"

    def put(
        self,
        job: str,
        task: str,
        queue: str,
        priority: int,
        delay: float | None,
        max_attempts: int | None,
        rules: Rules = NO_RULES,
    ) -> None:
        assert job not in self.enqueued
        self.enqueued.add(job)
        self.model.enqueue(job, task, queue, priority, delay, max_attempts, rules)

    @precondition(lambda self: self.model.alive() and any(self.model.claimable(q, TASKS, FRONT) for q in QUEUES))
    @rule(data=st.data())
    def claim_from_the_front(self, data: st.DataObject) -> None:
        """What a worker does most of the time."""
        worker = data.draw(st.sampled_from(self.model.alive()), "worker")
        limit = data.draw(st.integers(1, 4), "limit")
        self.claim_as(worker, QUEUES, TASKS, limit, [FRONT, FRONT])

    @rule(
        data=st.data(),
        some_queues=st.permutations(QUEUES) | st.lists(queues, min_size=1, max_size=1),
        some_tasks=st.just(TASKS) | st.tuples(tasks),
        limit=st.integers(1, 6),
    )
    def claim(self, data: st.DataObject, some_queues: list[str], some_tasks: tuple[str, ...], limit: int) -> None:
        worker = data.draw(st.sampled_from(self.registered), "worker")
        known = [job.place for job in self.model.live.values()]
        somewhere = st.just(FRONT) | st.sampled_from(known) if known else st.just(FRONT)
        after = [data.draw(somewhere, "after") for _ in some_queues]
        self.claim_as(worker, some_queues, some_tasks, limit, after)

    def claim_as(
        self, worker: str, some_queues: Sequence[str], some_tasks: Sequence[str], limit: int, after: list[Position]
    ) -> None:
        if worker not in self.model.alive():
            with pytest.raises(psycopg.Error, match="has no lease") as refused:
                calls.claim(self.conn, worker, limit, queues=some_queues, tasks=some_tasks, positions=after)
            assert refused.value.sqlstate == "SW001"
            return
        claimable = {
            queue: self.model.claimable(queue, some_tasks, position)
            for queue, position in zip(some_queues, after, strict=True)
        }
        taken = calls.claim(self.conn, worker, limit, queues=some_queues, tasks=some_tasks, positions=after)
        assert len(taken) == min(limit, sum(len(jobs) for jobs in claimable.values()))
        fair = limit // sum(queue not in self.model.paused for queue in some_queues) if taken else 0
        for queue, jobs in claimable.items():
            mine = [held.id for held in taken if held.queue == queue]
            assert mine == [job.id for job in jobs[: len(mine)]], "not the first ones in claim order"
            assert len(mine) == len(jobs) or len(mine) >= fair, "less than a fair share, and there was more"
        for held in taken:
            job = self.model.claim(held.id, worker)
            assert held == Held(job.id, job.queue, job.task, job.epoch, job.attempt, job.rank, job.run_at)
        self.fences += taken

    @precondition(lambda self: self.current())
    @rule(data=st.data(), end=st.sampled_from(["finish", "fail", "snooze"]))
    def end_runs(self, data: st.DataObject, end: str) -> None:
        some = st.lists(st.sampled_from(self.current()), min_size=1, max_size=4, unique_by=lambda fence: fence.id)
        getattr(self, end)(data, data.draw(some, "fences"))

    @precondition(lambda self: self.fences)
    @rule(data=st.data(), end=st.sampled_from(["finish", "fail", "snooze"]))
    def end_runs_late(self, data: st.DataObject, end: str) -> None:
        """Most of these claims are no longer valid, and some of their jobs run again."""
        again = [f for f in self.fences if f.id in self.model.live and f.epoch < self.model.live[f.id].epoch]
        one = st.sampled_from(again or self.fences) | st.sampled_from(self.fences)
        fences = data.draw(st.lists(one, min_size=1, max_size=4, unique_by=lambda fence: fence.id), "fences")
        for fence in fences:
            assert calls.still_held(self.conn, fence) == (self.model.held(fence.id, fence.epoch) is not None)
        getattr(self, end)(data, fences)

    def current(self) -> list[Held]:
        return [fence for fence in self.fences if self.model.held(fence.id, fence.epoch)]

    def finish(self, data: st.DataObject, fences: list[Held]) -> None:
        state = data.draw(st.sampled_from(["succeeded", "cancelled"]), "state")
        keep = data.draw(keeps, "keep")
        result = "7" if state == "succeeded" else None
        refused = calls.finish(self.conn, fences, result=result, keep=keep, state=state)
        assert set(refused) == {f.id for f in fences if not self.model.finish(f.id, f.epoch, state, result, keep)}

    def fail(self, data: st.DataObject, fences: list[Held]) -> None:
        delay = data.draw(delays, "delay")
        limit = data.draw(st.integers(1, 3), "max_attempts")
        keep = data.draw(keeps, "keep")
        refused = calls.fail(self.conn, fences, delay=delay, max_attempts=limit, keep=keep)
        assert set(refused) == {
            f.id for f in fences if not self.model.fail(f.id, f.epoch, "error", "ValueError", delay, limit, keep)
        }

    def snooze(self, data: st.DataObject, fences: list[Held]) -> None:
        delay = data.draw(st.sampled_from([0.0, 5.0]), "delay")
        refused = calls.snooze(self.conn, fences, delay=delay)
        assert set(refused) == {f.id for f in fences if not self.model.snooze(f.id, f.epoch, delay)}

    def some_jobs(self, data: st.DataObject) -> list[str]:
        """In any state, the forgotten ones included."""
        return data.draw(st.lists(st.sampled_from(sorted(self.enqueued)), min_size=1, max_size=4, unique=True), "jobs")

    @precondition(lambda self: self.enqueued)
    @rule(data=st.data(), reason=reasons)
    def cancel(self, data: st.DataObject, reason: str | None) -> None:
        jobs = self.some_jobs(data)
        expected = {job: self.model.cancel(job, reason) for job in jobs}
        found = calls.cancel(self.conn, jobs, reason)
        assert found == {job: state for job, state in expected.items() if state is not None}

    @precondition(lambda self: self.enqueued)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        # Of those with the same unique key, the first can be retried.
        jobs = sorted(self.some_jobs(data))
        assert set(calls.retry(self.conn, jobs)) == {job for job in jobs if self.model.retry(job)}

    @precondition(lambda self: self.model.due())
    @rule(limit=st.sampled_from([5000, 1]))
    def promote(self, limit: int) -> None:
        due = sorted(self.model.due(), key=lambda job: job.run_at)
        promoted, next_due = calls.promote(self.conn, limit)
        assert promoted == min(limit, len(due))
        for job in due:
            # Among equal times any may go first.
            if calls.state(self.conn, job.id) in ("ready", "blocked"):
                job.state = "ready"
                assert job.run_at <= due[promoted - 1].run_at
        assert sum(job.state == "ready" for job in due) == promoted
        # A rate whose bucket will have a token again is due, too.
        expected = [due for due in (self.model.next_due(), next_rate_due(self.conn)) if due is not None]
        assert next_due == (min(expected) if expected else None)

    @rule(queue=queues, paused=st.sampled_from([False, False, True]))
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        if paused:
            self.conn.execute("select stepwell.pause(%s)", (queue,))
            self.model.paused.add(queue)
        else:
            self.conn.execute("select stepwell.resume(%s)", (queue,))
            self.model.paused.discard(queue)

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 10.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.model.now += seconds
        calls.set_clock(self.conn, self.model.now)

    @rule(data=st.data(), act=st.sampled_from(["renew", "lose_session", "unregister", "start_again", "die"]))
    def worker_life(self, data: st.DataObject, act: str) -> None:
        worker = data.draw(st.sampled_from(self.registered), "worker")
        getattr(self, act)(worker)

    def renew(self, worker: str) -> None:
        stop = calls.renew(self.session_of[worker], worker, 30.0)
        assert (None if stop is None else set(stop)) == self.model.renew(worker, 30.0)

    def lose_session(self, worker: str) -> None:
        """What the others see when a worker's process is killed."""
        self.session_of[worker].execute("select pg_advisory_unlock_all()")
        for known in self.model.workers.values():
            if self.session_of[known.id] is self.session_of[worker]:
                known.lock_held = False

    def unregister(self, worker: str) -> None:
        assert set(calls.unregister_worker(self.conn, worker)) == self.model.leave(worker)

    def start_again(self, worker: str) -> None:
        """It dies, and another starts in its place at once."""
        self.lose_session(worker)
        self.register(self.session_of[worker])

    def die(self, worker: str) -> None:
        """Killed, and found out by two looks."""
        self.renew(worker)
        self.lose_session(worker)
        self.rescue()
        self.wait(1.0)
        self.rescue()

    @precondition(lambda self: any(self.model.is_suspect(worker) for worker in self.model.workers.values()))
    @rule()
    def rescue(self) -> None:
        assert set(calls.rescue(self.conn)) == self.model.rescue()

    @invariant()
    def the_tables_are_as_the_model_says(self) -> None:
        # What a worker does when it hears of blocked jobs.
        while calls.one(self.conn.execute("select admitted from stepwell.admit_keys(stepwell.lines())")) > 0:
            pass
        self.model.admit()
        shown = self.model.live | self.model.kept()
        apart = ("rules", "has_permit")
        assert read_jobs(self.conn) == {
            job_id: {name: value for name, value in vars(job).items() if name not in apart}
            for job_id, job in shown.items()
        }
        assert read_failures(self.conn) == sorted(self.model.failures)
        live = self.model.live.values()
        assert read_permits(self.conn) == sorted((str(job.rules.key), job.id) for job in live if job.has_permit)
        assert read_unique_keys(self.conn) == sorted(
            (job.rules.unique, job.id) for job in live if job.rules.unique is not None
        )

    @invariant()
    def no_job_is_lost_and_only_running_ones_have_a_worker(self) -> None:
        kept = self.model.live.keys() | self.model.history.keys()
        assert kept | self.model.forgotten == self.enqueued
        assert not kept & self.model.forgotten
        for job in self.model.live.values():
            assert (job.worker is not None) == (job.state == "running")


@contextmanager
def quick_session(dsn: str) -> Generator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set synchronous_commit = off")
        yield conn


@pytest.mark.timeout(600)  # when it fails, it looks for the shortest way to fail
def test_jobs_live_as_the_model_says(dsn: str) -> None:
    with ExitStack() as stack:
        conn = stack.enter_context(quick_session(dsn))
        sessions = [stack.enter_context(quick_session(dsn)) for _ in range(2)]

        class JobLivesHere(JobLives):
            def __init__(self) -> None:
                super().__init__(conn, sessions)

        run_state_machine_as_test(
            JobLivesHere,
            settings=settings(
                max_examples=30,
                stateful_step_count=50,
                deadline=None,
                print_blob=True,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
