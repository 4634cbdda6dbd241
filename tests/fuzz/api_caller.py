"""Calls the Python API. It may raise Stepwell's own errors, a time-out, and what callers must expect of Postgres."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from stepwell import App
from stepwell.errors import DatabaseError, StepwellError

from .dice import TEXTS, Dice
from .findings import Findings, is_expected
from .known import EVENT_KEYS, EVENTS, QUEUES, SCHEDULES, STEP_KEYS, Known


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1e308, math.nan, math.inf, -math.inf, "", "\0", "a\0b", "\ud800", "\udfff\ud800",
    *TEXTS, b"bytes", [], {}, {"\0": 1}, {"\ud800": 1}, {1: 2}, {None: 1}, {math.nan: 1}, [math.nan],
    {"a": [math.inf]}, object(), datetime(9999, 12, 31), datetime.min.replace(tzinfo=UTC),  # noqa: DTZ001
    datetime.max.replace(tzinfo=UTC), timedelta.max, timedelta.min, {1, 2}, (1, 2), 1j, "y" * 70_000, "z" * 1_200_000,
    "1 century", "-5s", "5m", int,
    ValueError("x"),
)  # fmt: skip

"""For any parameter."""
HOSTILE_VALUES: tuple[Any, ...] = (*HOSTILE, _nested(5_000), {"a": _nested(900)})
"""For what is stored; as a name, even to show these in a message is beyond Python."""


class ApiCaller:
    """A producer and operator in Python. What it puts in is known to all."""

    def __init__(self, dsn: str, dice: Dice, known: Known, findings: Findings) -> None:
        self._app = App(dsn, name="fuzz", pool_size=2)
        self._dice = dice
        self._known = known
        self._findings = findings
        self._tasks = {name: self._stub(name) for name in ("plain", "steps", "family", "listener", "undone")}

    def close(self) -> None:
        self._app.close()

    def __call__(self) -> None:
        calls: tuple[Callable[[], object], ...] = (
            self._enqueue, self._enqueue, self._enqueue_many, self._emit, self._send, self._cancel, self._cancel_jobs,
            self._retry, self._fork, self._result, self._look, self._schedule, self._steer_schedule, self._pause,
            self._resume, self._hurry, self._edit, self._list, self._group, self._group, self._steer_group,
        )  # fmt: skip
        call = self._dice.one(calls)
        what = f"api {call.__name__.strip('_')}"
        try:
            call()
        except DatabaseError as error:
            self._judge(what, error.__cause__ or error)
        except (StepwellError, TimeoutError) as error:
            self._findings.count(what, type(error).__name__)
        except psycopg.Error as error:
            self._judge(what, error)
        except Exception as error:  # that is the finding
            where = "".join(traceback.format_tb(error.__traceback__)[-4:])
            self._findings.add(f"{what} raised {type(error).__name__}: {str(error)[:80]}", f"{error!r}\n{where}")
        else:
            self._findings.count(what)

    def _judge(self, what: str, error: BaseException) -> None:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        self._findings.count(what, state or type(error).__name__)
        # Its connections are killed, too, and whose they were is not known here.
        if not isinstance(error, psycopg.Error) or not is_expected(error, allowed=True, killed=True, isolated=False):
            self._findings.add(f"{what} raised {type(error).__name__} {state}: {str(error)[:80]}", repr(error)[:800])

    def _stub(self, name: str) -> Any:
        def stub(n: Any = 0) -> None:
            """It is run elsewhere: here only its signature counts."""

        return self._app.task(name=name)(stub)

    def _or_hostile(self, decent: Any, odds: float = 0.1) -> Any:
        return self._dice.one(HOSTILE) if self._dice.chance(odds) else decent

    def _value(self, decent: Any) -> Any:
        return self._dice.one(HOSTILE_VALUES) if self._dice.chance(0.1) else decent

    def _job(self) -> Any:
        return self._app.job(self._or_hostile(self._known.job(self._dice), 0.03))

    def _enqueuer(self) -> Any:
        dice = self._dice
        task = self._tasks[dice.one(sorted(self._tasks))]
        options: dict[str, Any] = {}
        if dice.chance(0.3):
            options["queue"] = self._or_hostile(dice.one(QUEUES))
        if dice.chance(0.3):
            options["priority"] = self._or_hostile(dice.randrange(-5, 5))
        if dice.chance(0.2):
            options["delay"] = self._or_hostile(dice.random())
        elif dice.chance(0.1):
            options["run_at"] = self._or_hostile(datetime.now(UTC) + timedelta(seconds=dice.random()))
        if dice.chance(0.2):
            options["metadata"] = self._or_hostile({"by": self._value(1)})
        if dice.chance(0.2):
            options["max_attempts"] = self._or_hostile(3)
        return task.using(**options) if options else task

    def _enqueue(self) -> None:
        self._known.add(self._known.jobs, str(self._enqueuer().enqueue(self._value(self._dice.randrange(9))).id))

    def _enqueue_many(self) -> None:
        items: list[Any] = [{"n": self._value(self._dice.randrange(9))} for _ in range(self._dice.few())]
        if self._dice.chance(0.03):
            items[:1] = [self._dice.one(HOSTILE)]
        for job in self._enqueuer().enqueue_many(items):
            self._known.add(self._known.jobs, str(job.id))

    def _group(self) -> None:
        calls: list[Any] = [
            self._enqueuer().call(self._value(self._dice.randrange(9))) for _ in range(self._dice.few())
        ]
        if self._dice.chance(0.03):
            calls[:1] = [self._dice.one(HOSTILE)]
        group = self._app.group(calls, then=self._or_hostile(self._enqueuer(), 0.05))
        self._known.add(self._known.groups, str(group.id))
        self._known.add(self._known.jobs, str(group.then.id))

    def _steer_group(self) -> None:
        dice = self._dice
        group = self._app.get_group(self._or_hostile(self._known.pick(dice, self._known.groups), 0.05))
        for result in group.results(limit=self._or_hostile(3)):
            self._known.add(self._known.jobs, str(result.id))
        if dice.chance(0.3):
            group.cancel(self._or_hostile("by Python"), then=dice.chance(0.3))
        group.progress()
        if dice.chance(0.3):
            group.result(timeout=0.05)

    def _emit(self) -> None:
        dice = self._dice
        self._app.emit(
            self._or_hostile(dice.one(EVENTS)), key=self._or_hostile(dice.one(EVENT_KEYS) or None),
            value=self._value(1), keep=self._or_hostile("10s"),
        )  # fmt: skip

    def _send(self) -> None:
        self._job().send(self._or_hostile(self._dice.one(EVENTS)), self._value("hello"))

    def _cancel(self) -> None:
        self._job().cancel(self._or_hostile("by Python"))

    def _cancel_jobs(self) -> None:
        # Not by a hostile name: it must not be that of the witnesses.
        if self._dice.chance(0.05):
            self._app.cancel_jobs(queue=self._dice.one(QUEUES), reason=self._or_hostile("all of it"))

    def _retry(self) -> None:
        dice = self._dice
        if dice.chance(0.5):
            self._job().retry()
        else:
            self._job().retry(step=self._or_hostile(dice.one(STEP_KEYS)), from_start=dice.chance(0.2))

    def _hurry(self) -> None:
        self._job().run_now()

    def _edit(self) -> None:
        self._job().edit_args(self._value(self._dice.randrange(9)))

    def _list(self) -> None:
        dice = self._dice
        filters: dict[str, Any] = {}
        for word, decent in (
            ("state", dice.one(("failed", "ready", ["running", "waiting"]))), ("queue", dice.one(QUEUES)),
            ("task", "plain"), ("metadata", {"by": 1}), ("error", "boom"), ("newer_than", "1m"), ("owner", "fuzz"),
        ):  # fmt: skip
            if dice.chance(0.3):
                filters[word] = self._or_hostile(decent)
        self._app.jobs(limit=self._or_hostile(10), before=self._or_hostile(None, 0.05), **filters)
        self._app.count_jobs(at_most=self._or_hostile(100), **filters)
        if dice.chance(0.05):
            self._app.retry_jobs(dice.one(QUEUES), error="boom")

    def _fork(self) -> None:
        self._known.add(
            self._known.jobs, str(self._app.fork(self._job(), step=self._or_hostile(self._dice.one(STEP_KEYS))).id)
        )

    def _result(self) -> None:
        # None would wait for ever.
        limits: tuple[Any, ...] = (0.05, 0.05, 0.05, 0, -1, math.nan, "", "x", b"1")
        self._job().result(timeout=self._dice.one(limits))

    def _look(self) -> None:
        self._job().info()
        self._app.schedules()

    def _schedule(self) -> None:
        dice = self._dice
        self._app.schedule_task(
            self._tasks["plain"],
            self._or_hostile(dice.one(("* * * * *", "@daily", timedelta(seconds=1), "0 0 29 2 *"))),
            name=self._or_hostile(dice.one(SCHEDULES)),
            overlap=self._or_hostile(dice.one(("skip", "queue", "allow", "replace")), 0.03),
            catchup=self._or_hostile(dice.one(("once", "skip", "all")), 0.03),
            jitter=self._or_hostile(0),
            args=self._or_hostile({"n": self._value(1)}),
        )

    def _steer_schedule(self) -> None:
        schedule = self._app.schedule_named(self._or_hostile(self._dice.one(SCHEDULES), 0.03))
        self._dice.one(
            (schedule.pause, schedule.resume, schedule.trigger, schedule.delete, schedule.info, schedule.ticks)
        )()

    def _pause(self) -> None:
        self._app.pause(self._or_hostile(self._dice.one(QUEUES)))

    def _resume(self) -> None:
        self._app.resume(self._or_hostile(self._dice.one(QUEUES)))
