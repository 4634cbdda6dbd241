"""Divide a list of calls into queries, in an order in which two lists do not wait for each other's unique keys.

`JobStore` in `enqueue` sends them. An error about one item names its index in the list.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepwell.errors import BadArgs, StepwellError, TooLarge
from stepwell.postgres import queries
from stepwell.postgres.coalesce import batches
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.jobs import Enqueued
from stepwell.values.job import NewJob

if TYPE_CHECKING:
    from stepwell.jobs.enqueuer import Call

# Small enough that Postgres starts early and that encoding one chunk does not block an event loop for long.
_CHUNK = 2000
_MOST_UNIQUE = 50_000
# Seconds that a chunk of a list waits for a unique key of another transaction while the chunks before it hold theirs.
_PATIENCE = 0.1


def of_item(index: int, error: BadArgs) -> BadArgs:
    return type(error)(f"item {index}: {error}")


@contextmanager
def naming_the_item(calls: list[Call[Any]]) -> Generator[None]:
    """Add the index of the item to the error for a value that the database finds too large. Several chunks may be
    under way, and the server names only the column and its size: the first call with a value of that size is the bad
    item."""
    try:
        yield
    except TooLarge as error:
        for index, call in enumerate(calls):
            text = call.job.args if error.kind == "args" else call.job.metadata
            if text is not None and len(text) <= (error.size or 0) and len(text.encode()) == error.size:
                raise of_item(index, error) from error
        raise


def chunk_queries(calls: Iterable[Call[Any]], made: list[Call[Any]]) -> Iterator[Query[Enqueued]]:
    """Make a query for each chunk of calls, and note each call in `made` as it is taken."""

    def jobs() -> Iterator[NewJob]:
        for call in calls:
            made.append(call)
            yield call.job

    return map(enqueue_query, size_chunks(jobs()))


def enqueue_query(jobs: Sequence[NewJob], *, raises: bool = True) -> Query[Enqueued]:
    if all(job.unique is None for job in jobs):
        return queries.jobs.enqueue(jobs)
    return queries.jobs.enqueue_unique(jobs, raises=raises)


def at_once(
    first: list[Query[Enqueued]], others: Iterator[Query[Enqueued]], made: list[Call[Any]]
) -> Iterator[Query[Enqueued]]:
    """Send chunks as they are made. Each takes its unique keys in order, but one chunk may wait for a key of another
    transaction that waits for a key of the chunk before: so none waits for long."""
    if _has_unique(made):
        yield queries.jobs.wait_at_most(_PATIENCE)
    yield from first
    yield from others


def in_order(
    first: list[Query[Enqueued]], others: Iterator[Query[Enqueued]], made: list[Call[Any]]
) -> list[Query[Enqueued]]:
    """The queries for all calls, as a list that takes all their unique keys in order: then two lists with the same
    keys do not wait for each other."""
    queried = [*first, *others]
    if len(queried) == 1 or not _has_unique(made):
        return queried
    jobs = [call.job for call in made]
    large = [enqueue_query(chunk) for chunk in batches(jobs, _MOST_UNIQUE, _whole_size)]
    if len(large) == 1:
        return large
    return [queries.jobs.hold_keys(list({job.unique.key for job in jobs if job.unique is not None})), *large]


def may_be_out_of_order(error: Exception, made: list[Call[Any]]) -> bool:
    """Whether a list was rolled back because it waited for a key, and may wait as long as it takes in order."""
    from stepwell.postgres.errors import is_rolled_back  # it needs psycopg

    cause = error.__cause__ if isinstance(error, StepwellError) else error
    return cause is not None and is_rolled_back(cause) and _has_unique(made)


def _has_unique(calls: list[Call[Any]]) -> bool:
    return any(call.job.unique is not None for call in calls)


def size_chunks(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Divide jobs into chunks for one query each."""
    return batches(jobs, _CHUNK, job_size)


def job_size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")


def _whole_size(job: NewJob) -> int:
    return job_size(job) + len(job.whole_policy or "")
