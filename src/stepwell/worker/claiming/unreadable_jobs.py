"""Jobs whose contents could not be sent with a claim: read them one by one, and refuse those that cannot be read.

The contents of a job may be too large for a message, damaged, or in an encoding that Postgres cannot convert to ours.
Such a job must not keep the others from being claimed. So it is claimed without its contents, which cannot fail, and
then failed like any job that this worker holds: by its fence, without reading it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import psycopg

from stepwell.errors import StepwellError
from stepwell.errors.text import error_message, error_name
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, HandedBack, Outcome

Read = Callable[[Query[tuple[str, str | None, str | None]]], Awaitable[list[tuple[str, str | None, str | None]] | None]]
Refuse = Callable[[ClaimedJob, Outcome], None]

# SQLSTATE classes about the data: values, program limits, damage; and a row that is too large for the memory.
_DATA = ("22", "54", "XX", "53200")
# A job that cannot be read for another reason is handed back for this long.
_PUT_OFF = 60.0


async def read_each(jobs: Sequence[ClaimedJob], read: Read, refuse: Refuse) -> list[ClaimedJob] | None:
    """Read each of these jobs by itself, and refuse those that cannot be read. None: the lease is gone."""
    readable: list[ClaimedJob] = []
    for job in jobs:
        try:
            found = await read(queries.claims.read_claimed(job.id, job.epoch))
        except StepwellError:
            raise
        except Exception as error:
            refuse(job, _unreadable(error) if _is_data(error) else HandedBack(_PUT_OFF))
            continue
        if found is None:
            return None
        for args, metadata, journal in found:
            readable.append(msgspec.structs.replace(job, args=args, metadata=metadata, journal=journal, unread=None))
    return readable


def without_too_large(jobs: list[ClaimedJob], refuse: Refuse) -> list[ClaimedJob]:
    """The jobs that came with their contents. The others are larger than a worker may claim, and are refused."""
    if all(job.unread is None for job in jobs):
        return jobs
    for job in jobs:
        if job.unread is not None:
            refuse(job, _too_large(job, job.unread))
    return [job for job in jobs if job.unread is None]


def _too_large(job: ClaimedJob, size: int) -> Failed:
    message = (
        f"its args, metadata and saved steps have {size} bytes, more than a worker may claim: have the owner of the "
        f'schema run "stepwell sizes set job {_room_for(size)}", and then "stepwell jobs retry {job.id}"'
    )
    return Failed("unreadable", "TooLarge", message, None, None)


def _room_for(size: int) -> str:
    """The limit that stepwell.check_sizes would advise."""
    return f"{-(-size // 1024**2)}MB" if size > 15 * 65536 else f"{-(-size // 65536) * 64}kB"


def _unreadable(error: Exception) -> Failed:
    message = f"its args, metadata or saved steps cannot be read: {error_message(error)}"
    return Failed("unreadable", error_name(error), message, None, None, error=error)


def _is_data(error: Exception) -> bool:
    if isinstance(error, psycopg.Error):
        return error.sqlstate is not None and error.sqlstate.startswith(_DATA)
    return isinstance(error, ValueError | MemoryError | OverflowError)
