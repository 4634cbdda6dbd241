"""Log lines of runs, on their way from the handler to the database."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

_OVERHEAD = 300


class LogLine(msgspec.Struct, frozen=True):
    """One log record of a run."""

    job_id: str
    attempt: int
    at: float
    """Seconds since 1970."""
    level: int
    logger: str
    message: str

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    @property
    def size(self) -> int:
        return len(self.message) + len(self.logger) + _OVERHEAD


class LogBatch(msgspec.Struct, frozen=True):
    """Lines to write, and how many older lines of each job were cut."""

    lines: list[LogLine]
    cut: dict[str, int]
