"""A database whose clock the test sets, worker processes, and an oracle that is told of all that happens.

The clock stands still between steps, at some second between 31 and 33, and no schedule is ever due between 31 and 44:
so a step has one outcome, whenever in it a worker looks.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.worker.upkeep.ticker import rewound
from tests.crash.fleet import WorkerProcess, until

from .audit import audit_ticks
from .oracle import Oracle, Rule
from .program import QUEUES, make_app, options, task_for

# Far more than it takes: who waits so long waits for ever.
_PATIENCE = 30.0
_NUDGE = timedelta(seconds=2)
_LAST_NUDGE_BEFORE = 42

# Of open queues everything is waited for. Else: that what is to wait at the gate has got there, and that what was
# cancelled has heard of it, unless it is in a worker that is frozen.
_LEFT = """
select 'due', s.name, null from stepwell.schedule s where s.next_tick_at <= stepwell.now()
union all
select j.state::text, j.args ->> 'name', j.worker_id::text from stepwell.job j
where case
  when j.queue = any (%(open)s) then j.state <> 'scheduled' or j.run_at <= stepwell.now()
  else (j.cancelling and j.worker_id::text <> all (%(frozen)s))
    or (j.state = 'ready' and j.queue = 'held' and %(claimed)s)
end
"""
# Of schedules whose runs go one after the other, and always have, those with more than one that does not stand in line.
_CROWDED = """
select j.args ->> 'name', array_agg(j.scheduled_for || ' ' || j.state) from stepwell.job j
join stepwell.tick t on t.job_id = j.id
where j.args ->> 'name' = any (%s) and j.state <> 'blocked' and not t.triggered
group by 1 having count(*) > 1
"""
_MISSED_ONCE = """
select exists (
  select from stepwell.worker w
  where w.lock_missing_since between stepwell.now() - interval '0.999999s' and stepwell.now()
)
"""


@dataclass(eq=False, slots=True)
class Member:
    """One worker of the fleet."""

    process: WorkerProcess
    id: str = ""
    """Empty: it has not started yet."""
    frozen: bool = False
    paused: bool = False


class World:
    """Everything there is on that day. `declared` schedules stand in the workers' code."""

    def __init__(
        self,
        dsn: str,
        conn: psycopg.Connection[Any],
        gate: Path,
        oracle: Oracle,
        dice: random.Random,
        start: datetime,
        declared: Sequence[Rule],
    ) -> None:
        self.conn = conn
        self.app = make_app(dsn, gate)
        self.oracle = oracle
        self.members: list[Member] = []
        self.rest_is_open = True
        self.now = datetime.min.replace(tzinfo=UTC)
        self._gate = gate
        self._dice = dice
        self._told: dict[str, object] = {
            "dsn": dsn,
            "gate": str(gate),
            "declared": [asdict(rule) for rule in declared],
        }
        self._processes: list[WorkerProcess] = []
        self._in_line: set[str] = set()
        self._noted_at = time.monotonic()
        self.go_to(start)
        for rule in declared:
            self._put(rule)

    @property
    def tickers(self) -> list[Member]:
        """Those that fire schedules."""
        return [member for member in self.members if member.id and not member.frozen]

    @property
    def claimers(self) -> list[Member]:
        """Those that run jobs."""
        return [member for member in self.tickers if not member.paused]

    @property
    def gate_is_open(self) -> bool:
        return not self._gate.exists()

    @property
    def open_queues(self) -> list[str]:
        """Where runs end: in others they stay live."""
        is_open = {"main": True, "rest": self.rest_is_open, "held": self.gate_is_open}
        return [queue for queue in QUEUES if is_open[queue] and self.claimers]

    def note(self, what: str) -> None:
        """Shown by pytest if the test failed."""
        now = time.monotonic()
        print(f"{now - self._noted_at:6.3f} s  {self.now:%d %H:%M:%S}  {what}")
        self._noted_at = now

    def go_to(self, at: datetime) -> None:
        """Set the clock to some second of that minute, and tell everybody to look at it."""
        was = self.now
        self._set_clock(at.replace(second=31, microsecond=0) + timedelta(seconds=self._dice.uniform(0, 2)))
        if self.now < was:
            self.oracle.rewind(self.now)
            until(self._is_rewound, "every schedule goes on from there")

    def settle(self) -> None:
        """Wait until everything that is due and can be done has been done. If no worker lives, nothing is."""
        for member in self.members:
            assert member.process.alive, f"worker {member.process.pid} ended by itself: {member.process.lines}"
            if not member.id and member.process.has_started():
                member.id = member.process.heard("WorkerStarted")[0]["worker_id"]
        if not self.tickers:
            return
        self.oracle.tick(self.now)
        deadline = time.monotonic() + _PATIENCE
        while left := self._left():
            assert time.monotonic() < deadline, f"this is left, and nobody does it: {left[:10]}"
            crowded = self.conn.execute(_CROWDED, (list(self._in_line),)).fetchall()
            assert crowded == [], f"these go beside each other: {crowded}"
            time.sleep(0.005)
        self.oracle.end(self.open_queues)
        if self.conn.execute("select count(*) from stepwell.tick").fetchone() != (self.oracle.count,):
            audit_ticks(self.conn, self.oracle)  # to say at once what is wrong
            raise AssertionError("a schedule that the oracle does not know has ticks")

    def launch(self, *, wait: bool = False) -> None:
        """A worker joins; unless the test waits for it, at a moment nobody knows."""
        process = WorkerProcess(Path(__file__).with_name("program.py"), self._told)
        self._processes.append(process)
        self.members.append(Member(process))
        if wait:
            self.await_launches()

    def await_launches(self) -> None:
        for member in self.members:
            until(member.process.has_started, "the worker has started")
            member.id = member.process.heard("WorkerStarted")[0]["worker_id"]

    def kill(self, member: Member) -> None:
        member.process.kill()
        self.members.remove(member)

    def freeze(self, member: Member) -> None:
        member.process.send(signal.SIGSTOP)
        member.frozen = True

    def thaw(self, member: Member) -> None:
        member.process.send(signal.SIGCONT)
        member.frozen = False

    def pause(self, member: Member) -> None:
        self.app.pause(worker=member.id)
        member.paused = True

    def resume(self, member: Member) -> None:
        self.app.resume(worker=member.id)
        member.paused = False

    def open_rest(self, is_open: bool) -> None:
        (self.app.resume if is_open else self.app.pause)("rest")
        self.rest_is_open = is_open

    def open_gate(self, is_open: bool) -> None:
        if is_open:
            self._gate.unlink(missing_ok=True)
        else:
            self._gate.touch()

    def put(self, rule: Rule) -> None:
        """Make or change a schedule at run time."""
        self.app.schedule_task(task_for(self.app, rule.queue), **options(asdict(rule)))
        self._put(rule)

    def close(self) -> None:
        self.app.close()
        for process in self._processes:
            process.close()
        for process in self._processes:
            print(f"worker {process.pid}:", *process.lines[-20:], sep="\n  ")

    @property
    def noise(self) -> list[str]:
        """What workers printed that is no event: tracebacks, mostly."""
        return [line for process in self._processes for line in process.noise]

    def _is_rewound(self) -> bool:
        """Does what the leader does every ten seconds: at once, so that it is known when."""
        found = [(schedule, rewound(schedule)) for schedule in fetch(self.conn, queries.schedules.schedule_times(None))]
        wrong = [(schedule, following) for schedule, following in found if following is not None]
        if wrong:  # those that somebody holds still are, afterwards
            fetch(self.conn, queries.schedules.rewind_schedules([each for each, _ in wrong], [at for _, at in wrong]))
        return not wrong

    def _put(self, rule: Rule) -> None:
        if rule.overlap == "allow":
            self._in_line.discard(rule.name)
        elif rule.name not in self.oracle.names:
            self._in_line.add(rule.name)
        self.oracle.put(rule, self.now)

    def _left(self) -> list[tuple[str, str, str | None]]:
        """What is still to be done, and who holds it. Sees to it that it can be done."""
        frozen = {member.id: member for member in self.members if member.frozen}
        asked: dict[str, Any] = {"open": self.open_queues, "frozen": list(frozen), "claimed": bool(self.claimers)}
        left = self.conn.execute(_LEFT, asked).fetchall()
        if not any(what == "due" for what, *_ in left):
            # Frozen in the middle of a run that is not to stay undone.
            for holder in {holder for *_, holder in left} & set(frozen):
                self.note(f"thaw {frozen[holder].process.pid} for what it holds")
                self.thaw(frozen[holder])
        # A worker is taken for dead when it was missed twice, a second apart by this clock.
        if left and self.conn.execute(_MISSED_ONCE).fetchone() == (True,):
            assert self.now.second < _LAST_NUDGE_BEFORE, "nudged too often"
            self._set_clock(self.now + _NUDGE)
            self.note("nudge")
        return left

    def _set_clock(self, at: datetime) -> None:
        self.now = at
        with self.conn.transaction():
            self.conn.execute("delete from stepwell.clock")
            self.conn.execute("insert into stepwell.clock (at) values (%s)", (at,))
            self.conn.execute("select pg_notify('stepwell_tick', ''), pg_notify('stepwell_due', '0')")
