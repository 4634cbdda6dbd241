"""Every SQL function that the database lists, and arguments for each: so a new function is called, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from .dice import Dice
from .known import (
    CURSORS,
    EVENT_KEYS,
    EVENTS,
    GROUPS,
    OWNERS,
    QUEUES,
    SCHEDULES,
    STEP_KEYS,
    STRANGE_TASKS,
    TASKS,
    Due,
    Fence,
    Known,
)  # fmt: skip

_FUNCTIONS: LiteralString = """
select p.proname, p.prosecdef, a.name,
  case when a.type = 'anycompatible'::regtype then 'json' else format_type(a.type, null) end,
  a.n > p.pronargs - p.pronargdefaults, a.n is not null
from pg_proc p
left join lateral (
  select p.proargnames[u.n] as name, u.type, u.n
  from unnest(p.proargtypes::oid[]) with ordinality as u (type, n)
) a on true
where p.pronamespace = 'stepwell'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
order by p.proname, p.oid, a.n
"""
_SWITCHES = ("true", "false", "false", None)
_KINDS = (
    "step", "step", "step", "transaction", "retry", "sleep", "wait", "receive", "child", "first", "now", "random",
    "uuid", "patch", "state", "undo", "taken",
)  # fmt: skip
_TO_JOBS = {
    "cancel",
    "retry",
    "run_now",
    "edit_args",
    "delete_jobs",
    "move_jobs",
    "bulk_change",
    "dashboard_export",
    "results",
    "job_changes",
    "fork",
    "send",
}
_TO_SCHEDULES = {"tick", "rewind_schedules", "resume_schedule", "due_schedules", "admit"}


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    optional: bool


@dataclass(frozen=True)
class Function:
    """One that a client may be granted; `public` is false of those that are only called by others."""

    name: str
    public: bool
    parameters: tuple[Parameter, ...]

    def call(self, given: dict[str, Any]) -> sql.Composed:
        """A statement that calls it with these parameters by name."""
        types = {parameter.name: parameter.type for parameter in self.parameters}
        arguments = sql.SQL(", ").join(
            sql.SQL("{} => {}::" + cast("LiteralString", types[name])).format(sql.Identifier(name), sql.Placeholder())
            for name in given
        )
        return sql.SQL("select * from stepwell.{}({})").format(sql.Identifier(self.name), arguments)


@dataclass(frozen=True)
class Subject:
    """What one element of a batch is about."""

    fence: Fence
    job_id: str
    due: Due


def read_functions(conn: psycopg.Connection[Any]) -> list[Function]:
    """All functions of the schema but those of triggers."""
    found: dict[str, tuple[bool, list[Parameter]]] = {}
    for name, public, parameter, type_name, optional, has in conn.execute(_FUNCTIONS):
        parameters = found.setdefault(name, (public, []))[1]
        if has:
            parameters.append(Parameter(parameter, type_name, optional))
    return [Function(name, public, tuple(parameters)) for name, (public, parameters) in found.items()]


class Arguments:
    """Makes arguments by the names of parameters, out of what is known."""

    def __init__(self, dice: Dice, known: Known, *, hostility: float = 0.04) -> None:
        self._dice = dice
        self._known = known
        self._hostility = hostility

    def of(self, function: Function) -> dict[str, Any]:
        """For one call; optional ones are left out at times."""
        dice = self._dice
        count = dice.few()
        subjects = [
            Subject(self._known.fence(dice), self._known.job(dice), self._known.due(dice)) for _ in range(max(count, 1))
        ]
        given: dict[str, Any] = {}
        for parameter in function.parameters:
            if parameter.optional and dice.chance(0.4):
                continue
            given[parameter.name] = self._argument(function.name, parameter, subjects, count)
        if function.name == "start_bulk":
            # Never a hostile filter: it might match the witnesses.
            given["_filter"] = json.dumps({"queue": dice.one(QUEUES)})
        return given

    def _argument(self, function: str, parameter: Parameter, subjects: list[Subject], count: int) -> Any:
        dice = self._dice
        if dice.chance(self._hostility / 2):
            return dice.hostile(parameter.type)
        if not parameter.type.endswith("[]"):
            return self._element(function, parameter.name, parameter.type, subjects[0])
        element_type = parameter.type.removesuffix("[]")
        chosen = subjects[:count]
        if dice.chance(self._hostility / 2):
            chosen = chosen + chosen[:1] if dice.chance(0.5) else chosen[1:]
        elif parameter.optional and dice.chance(0.3):
            chosen = chosen[:1]
        return [self._element(function, parameter.name, element_type, subject) for subject in chosen]

    def _element(self, function: str, name: str, type_name: str, subject: Subject) -> str | None:
        dice = self._dice
        if dice.chance(self._hostility / 4):
            return dice.hostile(type_name)
        made = self._by_name(function, name, subject)
        if made is not None:
            return made()
        return self._by_type(type_name)

    def _by_name(self, function: str, name: str, subject: Subject) -> Callable[[], str | None] | None:
        dice, known, fence, due = self._dice, self._known, subject.fence, subject.due
        exact: dict[str, Callable[[], str | None]] = {
            "claim._ids": lambda: None,
            "claim._ranks": lambda: None,
            "claim._run_ats": lambda: None,
            "claim._worker_id": lambda: known.pick(dice, known.workers),
            "claim._limit": lambda: dice.one(("1", "3", "10")),
            "claim._queues": self._queue,
            "claim_jobs._ids": lambda: None,
            "claim_jobs._ranks": lambda: None,
            "claim_jobs._run_ats": lambda: None,
            "claim_jobs._worker_id": lambda: known.pick(dice, known.workers),
            "claim_jobs._limit": lambda: dice.one(("1", "3", "10")),
            "claim_jobs._queues": self._queue,
            "register_worker._tasks": self._limits,
            "register_worker._pid": lambda: str(dice.randrange(1, 99999)),
            "register_worker._lease": lambda: dice.one(("0.5", "3", "8", "8")),
            "register_worker._begun": lambda: None,
            "register_worker._owner": lambda: dice.one(OWNERS),
            "register_worker._schedules": lambda: dice.one(SCHEDULES),
            "suspend._waits": self._wait,
            "begin_waits._waits": self._wait,
            "save_waits._wait": self._wait,
            "fail._besides": lambda: json.dumps([dice.one(STEP_KEYS)]) if dice.chance(0.3) else None,
            "fail._errors": lambda: "an error",
            "save_steps._errors": lambda: '{"type": "E", "message": "m"}' if dice.chance(0.2) else None,
            "save_steps._large": lambda: dice.one(("true", "false", "false", "false")),
            "finish._states": lambda: dice.one(
                ("succeeded", "succeeded", "cancelled", "failed" if dice.chance(0.05) else None)
            ),
            "finish._errors": lambda: dice.one((None, "why")),
            "put_schedules._catchups": lambda: dice.one(("0", "1", "3")),
            "put_schedules._crons": lambda: None,
            "put_schedules._tzs": lambda: None,
            "put_schedules._nexts": self._soon,
            "put_schedules._names": lambda: dice.one(SCHEDULES),
            "put_schedules._regained_by": lambda: known.pick(dice, known.workers) if dice.chance(0.3) else None,
            "rename_schedules._from": lambda: dice.one(SCHEDULES),
            "rename_schedules._to": lambda: dice.one(SCHEDULES),
            "emit.name": lambda: dice.one(EVENTS),
            "emit.key": lambda: dice.one(EVENT_KEYS),
            "emit.keep": lambda: dice.one(("1 hour", "1 second", "0")),
            "send.name": lambda: dice.one(EVENTS),
            "fork._step": lambda: dice.one(STEP_KEYS + CURSORS),
            "retry._step": lambda: dice.one((*STEP_KEYS, *CURSORS, None, None, None, None)),
            "retry._input": lambda: dice.json() if dice.chance(0.2) else None,
            **{
                f"{each}._id": lambda: dice.one(GROUPS)
                for each in (
                    "open_group",
                    "add_members",
                    "seal_group",
                    "cancel_group",
                    "group_progress",
                    "group_results",
                )
            },
            "write_logs._loggers": lambda: "shop",
            "write_logs._messages": lambda: "a line",
            "backfill_schedule._ats": lambda: due.due_at,
            "find_jobs._states": lambda: dice.one(("ready", "running", "waiting", "failed", "succeeded", "cancelled")),
            "find_jobs._task": lambda: dice.one((*TASKS, None, None)),
            "find_jobs._queue": lambda: dice.one((*QUEUES, None, None)),
            "find_jobs._owner": lambda: dice.one((*OWNERS, None, None)),
            "find_jobs._worker_id": lambda: known.worker(dice) if dice.chance(0.2) else None,
            "find_jobs._error": lambda: dice.one(("boom", None, None)),
            "find_jobs._before": lambda: subject.job_id if dice.chance(0.3) else None,
            "find_jobs._group": lambda: subject.job_id if dice.chance(0.1) else None,
            "set_queue.most": lambda: dice.one(("0", "1", "5", None)),
            "set_queue.rate": lambda: dice.one(("50", "1000", None, None)),
            "set_queue.per": lambda: dice.one(("1", "0.5")),
            "set_queue.burst": lambda: dice.one(("1", "9", None, None)),
            "set_queue.smooth": lambda: dice.one(("true", "false", "false", None)),
            "set_queue.keep": lambda: dice.keep() if dice.chance(0.5) else None,
            "set_queue.keep_failed": lambda: dice.keep() if dice.chance(0.5) else None,
            "set_queue.remove": lambda: dice.one(("limit", "rate", "keep", "keep_failed")),
            "task_settings._settings": lambda: dice.json() if dice.chance(0.3) else None,
            "task_settings._job": lambda: subject.job_id if dice.chance(0.3) else None,
            "register_worker._settings": lambda: dice.one(('{"work": {"queue": {"value": "default"}}}', None)),
            "find_jobs._look": lambda: dice.one(("1", "100", "50000")),
            "dashboard_jobs._state": lambda: dice.one((None, "ready", "running", "waiting", "failed", "succeeded")),
            "dashboard_jobs._queue": lambda: dice.one((*QUEUES, None, None)),
            "dashboard_jobs._worker_id": lambda: known.worker(dice) if dice.chance(0.2) else None,
            "dashboard_jobs._owner": lambda: dice.one((*OWNERS, None, None)),
            "dashboard_jobs._task": lambda: dice.one((*TASKS, None, None)),
            "dashboard_jobs._states": lambda: dice.one(("ready", "running", "waiting", "failed", "succeeded")),
            "dashboard_jobs._group": lambda: dice.one(GROUPS) if dice.chance(0.1) else None,
            **{
                f"{each}.{name}": made
                for each in ("start_bulk", "preview_bulk", "bulk_states", "bulk_matches", "bulk_change")
                for name, made in {
                    "_act": lambda: dice.one(("retry", "cancel", "run", "move", "delete")),
                    "_filter": lambda: dice.one(('{"queue": "slow"}', '{"states": ["failed"]}')),
                    "_options": lambda: dice.one(('{"queue": "slow"}', "{}", "{}")),
                    "_as_of": lambda: None,
                }.items()
            },
            "bulk_chunk._id": lambda: None,
            "continue_bulk._id": lambda: None,
            "stop_bulk._id": lambda: None,
            "dashboard_bulks._id": lambda: None,
            "dashboard_bulks._before": lambda: None,
            "dashboard_workers._before": lambda: dice.one((None, "3")),
            "dashboard_schedules._after_owner": lambda: dice.one((*OWNERS, None)),
            "dashboard_schedules._after_name": lambda: dice.one((*SCHEDULES, None)),
            "add_counts._counts": lambda: '{"ready": 2}',
            "add_counts._more": lambda: '{"ready": 3, "running": 1}',
            "move_jobs._priority": lambda: str(dice.randrange(-3, 4)) if dice.chance(0.3) else None,
            "move_jobs._run_at": lambda: self._soon() if dice.chance(0.3) else None,
            "dashboard_jobs._before": lambda: subject.job_id if dice.chance(0.3) else None,
            "dashboard_jobs._sort": lambda: dice.one(("due", "priority", "runtime", None, None)),
            "dashboard_jobs._offset": lambda: dice.one(("0", "2", None)),
            "save_view._name": lambda: dice.one(("late", "lost", "mine")),
            "save_view._filters": lambda: dice.one(('{"state": "failed"}', "{}")),
            "delete_view._name": lambda: dice.one(("late", "lost", "mine")),
            "count_state._state": lambda: dice.one(("ready", "running", "waiting", "failed", "succeeded", "cancelled")),
            **{
                f"{each}._fingerprints": lambda: known.job(dice)
                for each in ("set_failures", "note_failures", "open_failure_groups")
            },
            "set_failures._state": lambda: dice.one(("open", "resolved", "ignored")),
            "list_failures._sort": lambda: dice.one(("last", "count", None)),
            "dashboard_failures._sort": lambda: dice.one(("last", "count", None)),
            "list_failures._state": lambda: dice.one(("open", "ignored", None, None)),
            "note_failures._counts": lambda: str(dice.randrange(1, 9)),
            "prune_stats._keep": lambda: dice.one(("0", "1 hour", "7 days")),
            "remove_schedules._names": lambda: dice.one(SCHEDULES),
            "make_partitions._keeps": dice.keep,
            "spawn._max_attempts": lambda: dice.one(("1", "3", None)),
            "fail._max_attempts": lambda: dice.one(("1", "3", "20")),
            "lead._lease": dice.seconds,
            "rescue._patience": dice.seconds,
            "rescue_jobs._patience": dice.seconds,
            "tick._nexts": self._soon,
            "rewind_schedules._nexts": self._soon,
            "resume_schedule._next": self._soon,
        }
        common: dict[str, Callable[[], str | None]] = {
            "_epochs": lambda: str(fence.epoch),
            "_epoch": lambda: str(fence.epoch),
            "_worker_id": lambda: fence.worker_id if dice.chance(0.5) else known.worker(dice),
            "_worker": lambda: known.worker(dice) if dice.chance(0.3) else None,
            "_everything": lambda: "true" if dice.chance(0.1) else None,
            "_parent_ids": lambda: subject.job_id if dice.chance(0.2) else None,
            "_lease": dice.seconds,
            "_delays": lambda: dice.seconds() if dice.chance(0.5) else None,
            "delay": lambda: dice.seconds() + " seconds" if dice.chance(0.3) else None,
            "_run_ats": lambda: None,
            "run_at": lambda: self._soon() if dice.chance(0.1) else None,
            "_keeps": dice.keep,
            "_keep": dice.keep,
            "_tasks": self._task,
            "_task": self._task,
            "task": self._task,
            "_queues": self._queue,
            "_queue": self._queue,
            "queue": self._queue,
            "_patterns": lambda: dice.one(("*", "d*", *QUEUES)),
            "_keys": lambda: dice.one(STEP_KEYS),
            "_key": lambda: dice.one(STEP_KEYS),
            "_step": lambda: dice.one(STEP_KEYS),
            "_failed_steps": lambda: dice.one((*STEP_KEYS, None)),
            "_lefts": lambda: dice.one((*CURSORS, None)),
            "_cursors": lambda: dice.one(CURSORS),
            "_inputs": dice.json,
            "_ns": lambda: str(dice.randrange(1, 9)),
            "_kinds": lambda: dice.one(_KINDS),
            "_values": dice.json,
            "_results": dice.json,
            "_progress": dice.json,
            "value": dice.json,
            "args": dice.json,
            "_args": self._args,
            "_metadata": lambda: '{"k": 1}' if dice.chance(0.3) else None,
            "metadata": lambda: '{"k": 1}' if dice.chance(0.3) else None,
            "_policies": lambda: dice.one(
                (None, '{"timeout": 9}', '{"keep_failed": 0}', '{"keep_failed": "Infinity"}')
            ),
            "_priorities": lambda: str(dice.randrange(-3, 4)),
            "priority": lambda: str(dice.randrange(-3, 4)),
            "_max_attempts": lambda: dice.one(("1", "3", None)),
            "max_attempts": lambda: dice.one(("1", "3", None)),
            "_reasons": lambda: dice.one(("error", "timeout", "lease_lost", "bad_args", "bad_result")),
            "_reason": lambda: dice.one(("because", None)),
            "_fingerprints": lambda: dice.one(("1", "2", None)),
            "_owner": lambda: dice.one(OWNERS),
            "_name": lambda: dice.one(SCHEDULES),
            "_versions": lambda: str(due.version),
            "_version": lambda: str(due.version),
            "_dues": lambda: due.due_at,
            "_tick_ids": lambda: due.id,
            "_tick_ats": lambda: due.due_at,
            "_overlaps": lambda: dice.one(("skip", "allow", "queue", "replace")),
            "_everies": lambda: dice.one(("1", "2", "0.5")),
            "_jitters": lambda: dice.one(("0", "0", "0.3")),
            "_from_start": lambda: dice.one(("true", "false")),
            "_declared": lambda: dice.one(_SWITCHES),
            "_except": lambda: subject.due.id if function == "due_schedules" else dice.one(("true", "false", "false")),
            "_limit": lambda: dice.one(("0", "1", "10", "1000")),
            "_concurrency": lambda: "10",
            "_job_id": lambda: subject.job_id,
            "job": lambda: subject.job_id,
            "job_id": lambda: subject.job_id,
        }
        target = due.id if function in _TO_SCHEDULES else subject.job_id if function in _TO_JOBS else fence.job_id
        common |= {"_ids": lambda: target, "_id": lambda: target, "id": lambda: target, "_schedule_ids": lambda: target}
        return exact.get(f"{function}.{name}") or common.get(name)

    def _by_type(self, type_name: str) -> str | None:
        dice = self._dice
        match type_name:
            case "integer" | "bigint" | "smallint":
                return str(dice.randrange(0, 5))
            case "double precision" | "numeric":
                return dice.seconds()
            case "timestamp with time zone":
                return self._soon()
            case "interval":
                return dice.seconds() + " seconds"
            case "json" | "jsonb":
                return dice.json()
            case "uuid":
                return self._known.job(dice)
            case "boolean":
                return dice.one(_SWITCHES)
            case _:
                return dice.one(("a", "b", "some text"))

    def _task(self) -> str:
        return self._dice.one(STRANGE_TASKS if self._dice.chance(0.2) else TASKS)

    def _queue(self) -> str:
        return self._dice.one(QUEUES)

    def _args(self) -> str:
        dice = self._dice
        return dice.json() if dice.chance(0.1) else f'{{"n": {dice.randrange(9)}}}'

    def _soon(self) -> str:
        """A time near the present, as Postgres reads it."""
        return self._dice.one(("now", "now", "today", "tomorrow"))

    def _limits(self) -> str:
        dice = self._dice
        if dice.chance(0.05):
            return dice.json()
        limits: dict[str, Any] = {
            task: {
                "max_attempts": dice.randrange(1, 5),
                "keep_failed": dice.one((86400, "Infinity")),
                "queue": self._queue(),
                "priority": dice.randrange(-3, 4),
            }
            for task in TASKS
        }
        if dice.chance(0.1):
            limits[dice.one(TASKS)] = dice.one(
                (
                    [],
                    None,
                    {"max_attempts": "x"},
                    {"keep_failed": "x"},
                    {"max_attempts": 1e12},
                    {"queue": ""},
                    {"queue": None, "priority": "x"},
                )
            )
        return json.dumps(limits)

    def _wait(self) -> str:
        """What a job may wait for: a sleep, an event, a signal, a child, in one group or several."""
        dice = self._dice
        if dice.chance(0.05):
            return dice.json()
        steps: list[dict[str, Any]] = []
        for key in dice.sample(STEP_KEYS, dice.randrange(0, 4)):
            step: dict[str, Any] = {"key": key, "n": dice.randrange(1, 9), "pending": True}
            match dice.one(("sleep", "wait", "receive", "done")):
                case "sleep":
                    step |= {"kind": "sleep", "delay": float(dice.seconds())}
                case "wait":
                    step |= {"kind": "wait", "event": dice.one(EVENTS), "event_key": dice.one(EVENT_KEYS)}
                    step |= {"delay": float(dice.seconds())} if dice.chance(0.5) else {}
                case "receive":
                    step |= {"kind": "receive", "event": dice.one(EVENTS), "event_key": ""}
                case _:
                    step |= {"kind": "step", "value": 1, "pending": False}
            steps.append(step)
        groups = [[dice.one(STEP_KEYS) for _ in range(dice.randrange(1, 3))] for _ in range(dice.one((1, 1, 2, 2, 0)))]
        if steps and dice.chance(0.03):
            del steps[0][dice.one(("key", "n", "kind"))]
        return json.dumps({"steps": steps, "groups": groups, "at_once": dice.chance(0.1)})
