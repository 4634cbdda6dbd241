"""An enqueue that is under way, as plugins see it."""

from __future__ import annotations

import msgspec


class Enqueue(msgspec.Struct, eq=False):
    """Jobs that are being enqueued by one call. A plugin may add to `headers`."""

    task: str | None
    """The task of the jobs; None: they are of several tasks."""
    queue: str | None
    """The queue of the jobs; None: they go to several queues."""
    count: int
    """The calls that are made, with the callback of a group. One whose unique key is taken counts, though it makes no
    job."""
    many: bool
    """Whether a call for many jobs enqueues them, such as `enqueue_many` or `app.group`, even if `count` is 1."""
    in_transaction: bool
    """Whether the jobs exist only once the caller commits a transaction of its own."""
    parent_id: str | None = None
    """The job whose children they are; None: they are no children."""
    scheduled: bool = False
    """Whether a schedule is made at run time, whose runs get the headers. Then no job is enqueued yet."""
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Stored with each of the jobs, apart from its metadata, such as the trace that it belongs to. Runs, retries and
    children of the job get them, too."""
    job_ids: list[str] = msgspec.field(default_factory=list[str])
    """The ids of the jobs, once they are enqueued, in order. A job that had its unique key already is among them. The
    ids of the members of a group are not known."""
