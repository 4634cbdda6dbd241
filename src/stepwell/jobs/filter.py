"""Filters that choose jobs, with the same words in Python and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict
from uuid import UUID

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted
from stepwell.jobs.metadata import encode_metadata
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import FINISHED, LIVE, State
from stepwell.values.public_call import refuse_unknown

if TYPE_CHECKING:
    from stepwell.postgres.queries.search import JobMatch

_STATES: tuple[State, ...] = (*LIVE, *FINISHED)


class _HasId(Protocol):
    """A `Group`, whose module imports this one."""

    @property
    def id(self) -> UUID: ...


class JobFilters(TypedDict, total=False):
    """Filters for jobs. A job must match all that are given; None is the same as left out."""

    state: State | Sequence[State] | None
    """Jobs in this state, or in one of these."""
    queue: str | None
    task: str | Task[..., Any] | None
    """Jobs of this task, or of the task of this name."""
    owner: str | None
    """Jobs of the app of this name."""
    worker: UUID | str | None
    """Jobs that this worker runs, or was the last to run."""
    group: _HasId | UUID | str | None
    """Members of this group."""
    metadata: Mapping[str, Any] | None
    """Jobs with all of this in their metadata."""
    failure: UUID | str | None
    """Jobs whose last failed attempt is in this group of failures, by the id that `app.failures()` shows."""
    error: str | None
    """Jobs with this text in their error, ignoring case."""
    older_than: Duration | None
    """Jobs enqueued at least this long ago."""
    newer_than: Duration | None
    """Jobs enqueued at most this long ago."""


class JobSelection(JobFilters, total=False):
    """Filters for jobs to change."""

    everything: bool
    """All jobs: to be given instead of filters."""


def to_match(caller: str, filters: JobFilters, named: Callable[[str], str] = str) -> JobMatch:
    """Check filters and convert them for a query. `named` says how the caller writes a word, for `ConfigError`."""
    refuse_unknown(caller, filters, JobFilters)
    task, worker, metadata = filters.get("task"), filters.get("worker"), filters.get("metadata")
    group, failure = filters.get("group"), filters.get("failure")
    older, newer = filters.get("older_than"), filters.get("newer_than")
    return queries.search.JobMatch(
        _check_states(filters.get("state"), named("state")),
        check_text(filters.get("queue"), named("queue")),
        check_text(task.name if isinstance(task, Task) else task, named("task")),
        None if older is None else seconds(older, named("older_than")),
        None if newer is None else seconds(newer, named("newer_than")),
        None if metadata is None else encode_metadata(metadata),
        None if worker is None else check_worker(worker, named("worker")),
        check_text(filters.get("owner"), named("owner")),
        check_text(filters.get("error"), named("error")),
        None if group is None else _check_group(group, named("group")),
        None if failure is None else check_failure(failure, named("failure")),
    )


def check_worker(worker: UUID | str, what: str = "worker") -> UUID:
    try:
        return worker if isinstance(worker, UUID) else UUID(worker)
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{what} is {quoted(worker)}: give its id, as 'stepwell workers' shows it") from None


def check_failure(failure: UUID | str, what: str = "failure") -> UUID:
    try:
        return failure if isinstance(failure, UUID) else UUID(failure)
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{what} is {quoted(failure)}: give its id, as 'stepwell failures' shows it") from None


def _check_group(group: _HasId | UUID | str, what: str) -> UUID:
    try:
        return group if isinstance(group, UUID) else UUID(group) if isinstance(group, str) else group.id
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{what} is {quoted(group)}: give a group, or its id, which is a UUID") from None


def check_text(text: str | None, what: str) -> str | None:
    """Return the text, if Postgres can compare with it. SQL may create names that Python would refuse."""
    if text is None:
        return None
    try:
        if text and "\0" not in text and len(text.encode()) <= 10_000:
            return text
    except (AttributeError, TypeError, UnicodeEncodeError):
        pass
    raise ConfigError(f"{what} is {quoted(text)}: it must be text of 1 to 10,000 bytes, without NUL")


def _check_states(state: State | Sequence[State] | None, what: str) -> tuple[State, ...] | None:
    if state is None:
        return None
    try:
        states = (state,) if isinstance(state, str) else tuple(state)
    except TypeError:
        raise ConfigError(f"{what} is {quoted(state)}: it must be one or several of {', '.join(_STATES)}") from None
    for one in states:
        if one not in _STATES:
            raise ConfigError(f"{what} is {quoted(one)}: it must be one of {', '.join(_STATES)}")
    if not states:
        raise ConfigError(f"{what} is empty: give at least one of {', '.join(_STATES)}")
    return states
