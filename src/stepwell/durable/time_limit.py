"""Limit how long code may run, and tell the expiry of that limit from every other `TimeoutError`."""

from __future__ import annotations

import asyncio
from types import TracebackType

from stepwell.values.duration import describe


class TimeLimitExpired(TimeoutError):
    """A step, a chain's step or a run exceeded its `timeout`. Handlers, tracebacks and the database see the builtin
    `TimeoutError`; only the class tells our own limit from a `TimeoutError` that the limited code raised itself."""

    __module__ = "builtins"
    __qualname__ = "TimeoutError"

    def __init__(self, what: str, limit: float) -> None:
        super().__init__(f"{what} ran longer than its timeout of {describe(limit)}")


class TimeLimit:
    """`async with TimeLimit(seconds, "step 'pay'")` cancels the block after `seconds` and raises `TimeLimitExpired`."""

    __slots__ = ("_limit", "_timeout", "_what")

    def __init__(self, limit: float, what: str) -> None:
        self._limit = limit
        self._what = what
        self._timeout = asyncio.timeout(limit)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            raise TimeLimitExpired(self._what, self._limit) from expired
        # The block may have turned the cancellation into a TimeoutError of its own.
        if isinstance(error, TimeoutError) and self._timeout.expired():
            raise TimeLimitExpired(self._what, self._limit) from error
