"""The durable job that runs a canvas: it spawns the tasks as its children and passes results on.

It holds no slot while it waits. After a crash it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, cast

from stepwell.contrib.celery.options import call_options, options_from_json
from stepwell.durable.context import Context
from stepwell.errors import BadArgs, JobCancelled, JobFailed
from stepwell.values.outcome import Fail

if TYPE_CHECKING:
    from stepwell.contrib.celery.app import Celery

NAME = "stepwell.contrib.celery.canvas"


class UnknownTask(Exception):
    """This worker cannot go on with a canvas, since its app lacks a task of it. The canvas is tried again."""


async def run_canvas(celery: Celery, ctx: Context, node: Mapping[str, Any], given: list[Any]) -> Any:
    """Run a node of a canvas. `given` has the result of the task before, if there was one."""
    if "chain" in node:
        for link in node["chain"]:
            given = [await run_canvas(celery, ctx, link, given)]
        return given[0]
    if "group" in node:
        members = [_spawn(celery, ctx, member, given) for member in node["group"]]
        results = await ctx.gather(*members, return_exceptions=True)
        for result in results:
            _refuse(result)
        return results
    try:
        return await _spawn(celery, ctx, node, given)
    except (JobFailed, JobCancelled) as error:
        raise _refuse(error) from error


def _spawn(celery: Celery, ctx: Context, node: Mapping[str, Any], given: list[Any]) -> Awaitable[Any]:
    options = cast("dict[str, Any]", dict(node.get("options", {})))
    if "task" not in node:
        return ctx.spawn(celery.canvas.using(**call_options("a canvas", options)), node=node, given=given)
    if node["task"] not in celery.app.tasks:
        # A worker of an older version has claimed the canvas, and one of a newer version can go on with it.
        raise UnknownTask(f"this worker has no task {node['task']!r}, which the canvas calls: another one may have it")
    task = celery.task_named(node["task"]).using(**options_from_json(options))
    before = [] if node.get("immutable") else given
    try:
        return ctx.spawn(task, *before, *node["args"], **node["kwargs"])
    except BadArgs as error:
        raise Fail(str(error)) from error  # they fit no better in another run


def _refuse(result: Any) -> Any:
    """Raise `Fail` for a task that failed: its attempts are used up, and another run of the canvas would not help."""
    if isinstance(result, BaseException):
        raise Fail(str(result)) from result
    return result
