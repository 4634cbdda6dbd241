"""The schedules that an app declares in its code, and writing schedules to the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from stepwell.calendar.schedule import OVERLAPS, Catchup, NewSchedule, Overlap, ScheduleInfo, Stale, When, check_catchup
from stepwell.calendar.timing import Timing, parse_timing
from stepwell.errors import BadArgs, ConfigError, ScheduleNotFound
from stepwell.jobs.options import Options
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.bounds import check_choice, check_name
from stepwell.values.duration import Duration, seconds
from stepwell.values.headers import add_headers
from stepwell.values.policy import Keep
from stepwell.values.public_call import refuse_unknown
from stepwell.values.retry import Retry

_PATIENCE = 2.0


class JobOptions(TypedDict, total=False):
    """Options of the jobs of a schedule, as in `using`."""

    queue: str | None
    priority: int | None
    metadata: Mapping[str, Any] | None
    retry: Retry | None
    timeout: Duration | None
    keep: Keep | None
    keep_failed: Keep | None


class ScheduleOptions(JobOptions, total=False):
    """Options of a schedule, as `App.schedule` documents them."""

    tz: str | None
    args: Mapping[str, Any] | None
    name: str | None
    overlap: Overlap
    catchup: Catchup
    jitter: Duration


class Declaration(msgspec.Struct, frozen=True):
    """A schedule as code declares it. Its args are encoded when it is written: their types may be defined later."""

    task: Task[..., Any]
    name: str
    args: Mapping[str, Any]
    timing: Timing
    overlap: Overlap
    catchup: int
    jitter: float
    options: Options
    """The options of its jobs."""
    later_names: tuple[str, ...]
    """The names that it may have had instead, if its task was renamed: it has the first name of the task, so that code
    from before and after the change means one schedule."""

    def schedule(self) -> NewSchedule:
        """Return the schedule to write. Raises `BadArgs` if the args do not fit the task's signature."""
        task, options = self.task, self.options
        args = task.codec.encode_args((), self.args, task.job_store.max_args_size)
        return NewSchedule(
            self.name,
            task.name,
            args,
            options.queue or task.queue,
            task.priority if options.priority is None else options.priority,
            self.timing,
            self.overlap,
            self.catchup,
            self.jitter,
            options.metadata,
            options.max_attempts,
            task.stored_policy(args, options),
        )


def new_declaration(caller: str, task: Task[..., Any], when: When, options: ScheduleOptions) -> Declaration:
    """Check everything that needs no database. `ConfigError` names the field."""
    refuse_unknown(caller, options, ScheduleOptions)
    name, args = options.get("name"), options.get("args")
    if args is not None and not isinstance(args, Mapping):
        raise BadArgs(f"args is {args!r}: give a dict of arguments by name")
    of_jobs: Any = {word: value for word, value in options.items() if word in JobOptions.__annotations__}
    return Declaration(
        task,
        check_name(task.names[0] if name is None else name, "name"),
        dict(args or {}),
        parse_timing(when, options.get("tz")),
        check_choice(options.get("overlap", "skip"), "overlap", OVERLAPS),
        check_catchup(options.get("catchup", "once")),
        seconds(options.get("jitter", 0), "jitter"),
        task.using(**of_jobs).options,
        task.names[1:] if name is None else (),
    )


class Scheduler:
    """Writes an app's schedules to the database. `stale_after` is in seconds. `named`: the app was given a name, so the
    jobs of its schedules belong to it."""

    def __init__(self, owner: str, database: Database, stale: Stale, stale_after: float, *, named: bool) -> None:
        self._owner = owner
        self._named = named
        self._database = database
        self._stale = stale
        self._stale_after = stale_after
        self._declared: dict[str, Declaration] = {}

    @property
    def names(self) -> list[str]:
        return list(self._declared)

    @property
    def declared(self) -> list[Declaration]:
        return list(self._declared.values())

    @property
    def stale_after(self) -> float | None:
        """How many seconds after the last live worker had it in its code a schedule is removed; None: it is kept."""
        return None if self._stale == "keep" else self._stale_after

    @property
    def is_idle(self) -> bool:
        """Whether a worker that starts has nothing to write: the leader removes what is stale within half a minute."""
        if self._declared or self._stale == "remove_all":
            return False
        return self._stale == "keep" or self._stale_after > 0

    def hurry(self) -> None:
        """Remove stale schedules without waiting: for a worker that is the only one of this app."""
        self._stale_after = 0.0

    def declare(self, declaration: Declaration) -> None:
        name = declaration.name
        if name in self._declared:
            other = self._declared[name].task.name
            raise ConfigError(
                f"two schedules are named {name!r}, of tasks {other!r} and {declaration.task.name!r}: "
                "give one another name with @app.schedule(..., name=...)"
            )
        if declaration.task.codec.ready:
            declaration.schedule()  # so that bad args raise where they are declared
        self._declared[name] = declaration

    async def put_declared(self, database: Database, regained_by: str | None = None) -> list[str]:
        """Write the declared schedules, and remove stale ones if the app wants that. Returns the removed schedules,
        which may belong to other apps whose grace has passed. `database` is the app's, with the caller's pools.
        `regained_by` is a worker that had lost its lease: it only creates what is missing, because meanwhile newer code
        may have changed the schedules."""
        schedules = [declaration.schedule() for declaration in self._declared.values()]
        [now] = await database.afetch(queries.reads.clock())
        nexts = [schedule.timing.after(now) for schedule in schedules]
        # A transaction of a user may hold a lock on a schedule for any time.
        patience: queries.Query[Any] = queries.locks.limit_lock_wait(_PATIENCE)
        if regained_by is not None:
            missing = queries.schedules.put_schedules(
                self._owner, schedules, nexts, declared=True, named=self._named, regained_by=regained_by
            )
            await database.afetch_each([patience, missing])
            return []
        # In a transaction of its own: the next one locks all schedules in the order of their ids.
        if renames := self._renames(self._declared.values(), declared=True):
            await database.afetch_each([patience, renames])
        changes = [patience]
        if schedules:
            changes.append(
                queries.schedules.put_schedules(self._owner, schedules, nexts, declared=True, named=self._named)
            )
        if self._stale == "remove_all":
            changes.append(queries.schedules.remove_schedules(self._owner, self.names, except_these=True))
        if self._stale == "remove_stale":
            changes.append(queries.schedules.remove_stale_schedules())
        answers = await database.afetch_each(changes)
        if self._stale == "keep":
            return []
        return answers[-1] if self._stale == "remove_stale" else [f"{name} of {self._owner}" for name in answers[-1]]

    def put(self, declaration: Declaration, headers: str | None = None) -> QueryPlan[ScheduleInfo]:
        """Make or change a schedule at run time. Its runs get these headers, encoded as JSON."""
        schedule = declaration.schedule()
        if headers is not None:
            schedule = msgspec.structs.replace(schedule, policy=add_headers(schedule.policy, headers))
        [now] = yield queries.reads.clock()
        nexts = [schedule.timing.after(now)]
        if renames := self._renames([declaration], declared=False):
            yield renames
        yield queries.schedules.put_schedules(self._owner, [schedule], nexts, declared=False, named=self._named)
        made = yield queries.schedules.schedules(self._owner, schedule.name)
        if not made:
            raise ScheduleNotFound(
                f"schedule {schedule.name!r} of {self._owner!r} was made, but has been deleted since: make it again"
            )
        return made[0]

    def _renames(self, declarations: Iterable[Declaration], *, declared: bool) -> queries.Query[None] | None:
        """The query that gives schedules of renamed tasks their names, if they were put in under a later one."""
        pairs = [
            (later, declaration.name)
            for declaration in declarations
            for later in declaration.later_names
            if later not in self._declared
        ]
        if not pairs:
            return None
        old, new = zip(*pairs, strict=True)
        return queries.schedules.rename_schedules(self._owner, old, new, declared=declared)
