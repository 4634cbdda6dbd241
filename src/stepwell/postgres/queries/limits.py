"""Calls that read and set limits and rates by key, and the settings of queues, and read those of tasks."""

from __future__ import annotations

import msgspec

from stepwell.postgres.queries.query import Act, Query, repeatable_query
from stepwell.values.limit_info import LimitInfo
from stepwell.values.setting import Setting


def limits(key: str | None = None) -> Query[LimitInfo]:
    """List the limits and rates; `key`: only this one."""
    return repeatable_query(
        "select key, most, most_is_set, held, rate, burst, rate_is_set, next_at, waiting, set_at"
        " from stepwell.list_limits(%s::text)",
        (key,),
        LimitInfo,
    )


def set_limit(key: str, most: int | None) -> Query[None]:
    act = Act("set limit", f"key {key}: {'as in the code' if most is None else most}")
    return repeatable_query("select stepwell.set_limit(%s::text, %s::integer)", (key, most), act=act)


class QueueSettings(msgspec.Struct, frozen=True):
    """Settings of a queue to change. None: it stays as it is. `remove` names those to remove."""

    limit: int | None = None
    count: int | None = None
    per: float = 1.0
    burst: int | None = None
    keep: float | None = None
    keep_failed: float | None = None
    paused: bool | None = None
    remove: tuple[str, ...] = ()
    smooth: bool = False

    @property
    def text(self) -> str:
        """The changes in a line."""
        rate = None if self.count is None else _rate_text(self.count, self.per, self.smooth)
        given = {"limit": self.limit, "rate": rate, "keep": self.keep, "keep_failed": self.keep_failed}
        given |= {"paused": self.paused} | dict.fromkeys(self.remove, "removed")
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def set_queue(queue: str, settings: QueueSettings) -> Query[None]:
    given = settings
    return repeatable_query(
        "select stepwell.set_queue(%s::text, %s::integer, %s::integer, %s::double precision, %s::integer,"
        " %s::double precision, %s::double precision, %s::boolean, %s::text[], %s::boolean)",
        (
            queue,
            given.limit,
            given.count,
            given.per,
            given.burst,
            given.keep,
            given.keep_failed,
            given.paused,
            list(given.remove),
            given.smooth,
        ),
        act=Act("set queue", f"queue {queue}: {given.text}"),
    )


def task_settings(task: str, settings: str | None, job_id: str | None) -> Query[Setting]:
    """`settings`: those in the code, as JSON; None: as a live worker has them. `job_id`: those of one of its jobs."""
    return repeatable_query(
        "select name, value, source from stepwell.task_settings(%s::text, %s::jsonb, %s::uuid)",
        (task, settings, job_id),
        Setting,
    )


def set_rate(key: str, count: int | None, per: float | None, burst: int | None, smooth: bool = False) -> Query[None]:
    text = "as in the code" if count is None or per is None else _rate_text(count, per, smooth)
    return repeatable_query(
        "select stepwell.set_rate(%s::text, %s::integer, %s::double precision, %s::integer, %s::boolean)",
        (key, count, per, burst, smooth),
        act=Act("set rate", f"key {key}: {text}"),
    )


def _rate_text(count: int, per: float, smooth: bool) -> str:
    return f"{count} per {per:g} s{', smooth' if smooth else ''}"
