"""Who makes the noise: threads, each with a connection, a role and dice of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from .findings import Findings
from .functions import Arguments, Function
from .known import TASKS, WITNESS_QUEUE, Known
from .roles import Role
from .session import Refused, Session

_BACKLOG = 1_500
_WITNESSES = ("witness_plain", "witness_steps", "witness_paid")


class Actor(threading.Thread):
    """Acts until it is told to stop. An error that is none of the database's is a finding."""

    def __init__(
        self, name: str, act: Callable[[], object], findings: Findings, stop: threading.Event, pause: float = 0
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._act = act
        self._findings = findings
        self._stop_asked = stop
        self._pause = pause

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                self._act()
            except psycopg.OperationalError as error:
                # It was cut off between two calls, or is not let in for the moment.
                self._findings.count(self.name, type(error).__name__)
                self._stop_asked.wait(0.05)
            except Exception as error:
                self._findings.add(f"{self.name} met {type(error).__name__}", f"{error}"[:500])
                self._stop_asked.wait(0.05)
            if self._pause:
                self._stop_asked.wait(self._pause)


class Caller:
    """Calls functions out of a list, with arguments that fit them more or less."""

    def __init__(self, session: Session, functions: list[Function], known: Known, *, hostility: float = 0.04) -> None:
        self._session = session
        self._functions = functions
        self._arguments = Arguments(session.dice, known, hostility=hostility)

    def __call__(self) -> None:
        self._session.in_a_mood(self._call)

    def _call(self) -> None:
        function = self._session.dice.one(self._functions)
        self._session.call(function, self._arguments.of(function))


class Producer:
    """Enqueues what the workers know how to run, unless they are behind."""

    def __init__(self, session: Session, owner: Session, functions: Mapping[str, Function]) -> None:
        self._session = session
        self._owner = owner
        self._enqueue_many = functions["enqueue_many"]
        self._full = 0

    def __call__(self) -> None:
        self._full -= 1
        if self._full <= 0:
            self._full = 10
            while not self._session.stop.is_set() and self._backlog() > _BACKLOG:
                self._session.stop.wait(0.1)
        self._session.in_a_mood(self._put)

    def _backlog(self) -> int:
        row = self._owner.connection.execute("select count(*) from stepwell.job where state = 'ready'").fetchone()
        return row[0] if row else 0

    def _put(self) -> None:
        dice = self._session.dice
        count = dice.few()
        tasks = [dice.one(TASKS if dice.chance(0.99) else ("apart",)) for _ in range(count)]
        given: dict[str, Any] = {"_tasks": tasks, "_args": [args_of(task, dice.randrange(9)) for task in tasks]}
        if dice.chance(0.5):
            given["_policies"] = [self._policy() for _ in tasks]
        self._session.call(self._enqueue_many, given)

    def _policy(self) -> str | None:
        """Limits, rates, turns and unique keys, one by one and together."""
        dice = self._session.dice
        admission: dict[str, Any] = {}
        if dice.chance(0.4):
            keys = ["one", "two"] if dice.chance(0.2) else [dice.one(("one", "two", "three"))]
            hold = dice.chance(0.2)
            most = {"one": 1, "two": 2, "three": 30}
            admission["limits"] = [{"key": key, "most": most[key], "hold": hold} for key in keys]
        if dice.chance(0.2):
            admission["rates"] = [{"key": "rate", "interval": 0.002, "burst": 20}]
        if dice.chance(0.2):
            admission["fair"] = {"key": dice.one(("big", "small")), "weight": 1}
        if dice.chance(0.3):
            conflict = dice.one(("ignore", "raise", "replace", "reschedule", "throttle"))
            unique: dict[str, Any] = {"key": f"u{dice.randrange(12)}", "conflict": conflict}
            if conflict == "throttle" or dice.chance(0.2):
                unique["period"] = dice.one((0.5, 5.0))
            elif dice.chance(0.3):
                unique["until_start"] = True
            admission["unique"] = unique
        return json.dumps({"admission": admission}) if admission else None


class Witness:
    """Enqueues jobs that nobody can touch, and notes each in the transaction that put it in."""

    def __init__(self, owner: Session) -> None:
        self._owner = owner

    def __call__(self) -> None:
        dice = self._owner.dice
        with self._owner.connection.transaction():
            self._owner.connection.execute(
                "insert into fuzz.witness (job_id, task)"
                " select stepwell.enqueue(w.task, w.args, queue => w.queue), w.task"
                " from (values (%s::text, %s::json, %s::text)) as w (task, args, queue)",
                (dice.one(_WITNESSES), json.dumps({"n": dice.randrange(9)}), WITNESS_QUEUE),
            )


class RawWorker:
    """Lives a worker's life by SQL alone: it registers, claims, and ends its jobs in one way or another, or not."""

    def __init__(self, session: Session, functions: Mapping[str, Function], known: Known) -> None:
        self._session = session
        self._functions = functions
        self._arguments = Arguments(session.dice, known, hostility=0.002)
        self._known = known

    def __call__(self) -> None:
        dice = self._session.dice
        if not self._known.workers or dice.chance(0.03):
            self._session.in_a_mood(lambda: self._do("register_worker"))
            return
        what = dice.one(
            ("claim", "claim_jobs", "claim_jobs", "finish", "finish", "fail", "snooze", "suspend", "suspend", "advance",
            "restart", "save_steps", "save_steps", "spawn", "report_progress", "renew", "forget_waits", "save_waits",
            "step_saved", "still_held")
        )  # fmt: skip
        self._session.in_a_mood(lambda: self._do(what))

    def _do(self, name: str) -> None:
        function = self._functions[name]
        self._session.call(function, self._arguments.of(function))


class Onlooker:
    """Reads every view, as whoever may and whoever may not."""

    def __init__(self, session: Session, views: list[str], role: Role) -> None:
        self._session = session
        self._views = views
        self._role = role

    def __call__(self) -> None:
        view = self._session.dice.one(self._views)
        try:
            self._session.look(view, allowed=view in self._role.views)
        except Refused:
            return


def args_of(task: str, n: int) -> str:
    """Arguments that the task takes."""
    given: dict[str, Any] = {"state": {"Count": {"n": n}}} if task == "machine" else {"n": n}
    return json.dumps(given)
