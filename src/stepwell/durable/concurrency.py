"""`ctx.gather`, `ctx.map` and `ctx.first`: branches of a handler that run concurrently."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from stepwell.durable.branches import (
    BranchEnd,
    Raised,
    Returned,
    Start,
    as_start,
    close_unused,
    keys_of,
    run_branches,
    run_first,
    settle,
)
from stepwell.durable.children import Child, child_result, spawned_by
from stepwell.durable.exits import Suspend
from stepwell.durable.function_info import name_of
from stepwell.durable.run_state import RunState
from stepwell.errors import ConfigError, StepChanged
from stepwell.values.bounds import check_whole
from stepwell.values.step import NewStep


class First(NamedTuple):
    """The branch of `ctx.first` that ended first, counted from 0, and the value that it returned."""

    branch: int
    value: Any


async def gather(run: RunState, branches: Sequence[Awaitable[Any]], *, return_exceptions: bool) -> list[Any]:
    """Run branches concurrently, and wait for children together: one wait, until all have ended."""
    journal = run.journal
    name = journal.number_branch("gather")
    ends: list[BranchEnd | None] = [None] * len(branches)
    children = {index: branch for index, branch in enumerate(branches) if isinstance(branch, Child)}
    try:
        starts = {
            index: (f"{name}[{index}]", as_start(branch))
            for index, branch in enumerate(branches)
            if index not in children
        }
    except ConfigError:
        close_unused(branches)
        raise
    for index, end in zip(starts, await run_branches(journal, list(starts.values())), strict=True):
        ends[index] = end
    for index, end in zip(children, await _child_ends(run, list(children.values())), strict=True):
        ends[index] = end
    return settle(journal, [end for end in ends if end is not None], return_exceptions=return_exceptions)


async def _child_ends(run: RunState, children: Sequence[Child[Any]]) -> list[BranchEnd]:
    if children:
        await run.all_spawned()
    ends: list[BranchEnd] = []
    waiting: list[str] = []
    for branch in children:
        child = spawned_by(branch)
        try:
            ends.append(Returned(await child_result(run.effects, child)))
        except Suspend:
            waiting.append(child.key)
            ends.append(Suspend())
        except Exception as error:
            ends.append(Raised(error))
    if waiting:
        ends[next(n for n, end in enumerate(ends) if isinstance(end, Suspend))] = Suspend([waiting])
    return ends


async def map(  # noqa: A001 errors quote the coroutine's name
    run: RunState,
    fn: Callable[..., Any],
    items: Iterable[Any],
    begin: Callable[[Any], Start],
    key: Callable[[Any], str] | None,
    limit: int | None,
) -> list[Any]:
    if limit is not None:
        check_whole(limit, "limit", 1)
    journal = run.journal
    listed, name = list(items), journal.number_branch(f"map:{name_of(fn)}")
    starts = [(f"{name}[{own}]", begin(item)) for own, item in zip(keys_of(listed, key), listed, strict=True)]
    ends = await run_branches(journal, starts, limit)
    if len(ends) < len(starts) and not any(isinstance(end, Suspend) for end in ends):
        raise AssertionError("branches were not started although none waits")
    return settle(journal, ends)


async def first(run: RunState, branches: Sequence[Awaitable[Any]]) -> First:
    """Run branches concurrently until one has ended, save which one, and cancel the others with their children."""
    if not branches:
        raise ConfigError("ctx.first takes at least one branch")
    journal = run.journal
    name = journal.number_branch("first")
    try:
        entry = journal.enter("first", "first")
    except Suspend as suspend:
        close_unused(branches)
        await run.effects.leave(suspend)
    winner: int | None = None if entry.saved is None else msgspec.json.decode(entry.saved.value)
    names = [f"{name}[{index}]" for index in range(len(branches))]
    if winner is not None and winner >= len(branches):
        close_unused(branches)
        raise StepChanged(
            f"branch {winner} won this ctx.first, which has {len(branches)} branches now: put that branch back"
        )
    if journal.undoing:
        # The losers' steps are compensated, too, so every branch is replayed as far as it came.
        ends = await run_branches(journal, list(zip(names, (as_start(branch) for branch in branches), strict=True)))
        values = settle(journal, ends if winner is None else [ends[winner]])
        return First(winner or 0, values[0])
    if winner is not None:
        close_unused([branch for index, branch in enumerate(branches) if index != winner])
        _give_up(run, names, winner)
        # The run that saved the winner may have died before it cancelled the losers.
        await _cancel_losers(run, branches, names, winner)
        end = (await run_branches(journal, [(names[winner], as_start(branches[winner]))]))[0]
        return First(winner, settle(journal, [end])[0])
    await run.all_spawned()
    winner, end = await run_first(journal, list(zip(names, (as_start(branch) for branch in branches), strict=True)))
    if isinstance(end, Suspend) or (isinstance(end, Raised) and end.ends_run):
        settle(journal, [end])
    stale = [key for index, own in enumerate(names) if index != winner for key in journal.waits_in(own)]
    if stale:
        # Else these waits would take events that are meant for others.
        await run.effects.backend.forget_waits(run.job, stale)
    await run.effects.save(journal.notes.and_steps(NewStep(entry.key, entry.n, "first", str(winner))))
    _give_up(run, names, winner)
    await _cancel_losers(run, branches, names, winner)
    journal.was_saved()
    return First(winner, settle(journal, [end])[0])


def _give_up(run: RunState, names: Sequence[str], winner: int) -> None:
    for index, name in enumerate(names):
        if index != winner:
            run.journal.give_up(name)


async def _cancel_losers(run: RunState, branches: Sequence[Awaitable[Any]], names: Sequence[str], winner: int) -> None:
    """Cancel the children that lost, and the children of branches that lost."""
    await run.all_spawned()
    losers = [index for index in range(len(branches)) if index != winner]
    prefixes = tuple(run.journal.prefix_of(names[index]) for index in losers)
    lost = [spawned_by(branch) for index in losers if isinstance(branch := branches[index], Child)]
    lost += [spawned for spawned in run.spawned if spawned.key.startswith(prefixes)]
    live = {child.child_id for child in lost if child.saved is None or child.saved.pending}
    live.update(child_id for index in losers for child_id in run.journal.children_in(names[index]))
    if live:
        await run.effects.backend.cancel(sorted(child_id for child_id in live if child_id is not None))
