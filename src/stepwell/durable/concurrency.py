"""`ctx.gather`, `ctx.map` and `ctx.first`: branches of a handler that run concurrently."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from stepwell.durable.branches import (
    BranchEnd,
    Raised,
    Returned,
    Start,
    as_start,
    keys_of,
    run_branches,
    run_first,
    settle,
)
from stepwell.durable.children import Child, child_result, spawned_by
from stepwell.durable.exits import Suspend, wait_text
from stepwell.durable.function_info import name_of
from stepwell.durable.notes import CutOff
from stepwell.durable.run_state import RunState
from stepwell.durable.saved_error import describe_error, tag_decision
from stepwell.durable.unawaited import close_unused
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
    ends: list[BranchEnd | None] = [None] * len(branches)
    children = {index: branch for index, branch in enumerate(branches) if isinstance(branch, Child)}
    try:
        name = journal.number_branch("gather")
        starts = {
            index: (f"{name}[{index}]", as_start(branch))
            for index, branch in enumerate(branches)
            if index not in children
        }
    except BaseException:
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
    """Run branches concurrently until one has ended, save which one, and cancel the others with their children.

    If it ended with an error, which one is saved only if the handler catches that: see `CutOff`."""
    if not branches:
        raise ConfigError("ctx.first takes at least one branch")
    journal = run.journal
    try:
        name = journal.number_branch("first")
        entry = journal.enter("first", "first")
        starts = [(f"{name}[{index}]", as_start(branch)) for index, branch in enumerate(branches)]
    except Suspend as suspend:
        close_unused(branches)
        await run.effects.leave(suspend)
    except BaseException:
        close_unused(branches)
        raise
    winner: int | None = None if entry.saved is None else msgspec.json.decode(entry.saved.value)
    names = [own for own, _ in starts]
    if winner is not None and winner >= len(branches):
        close_unused(branches)
        raise StepChanged(
            f"branch {winner} won this ctx.first, which has {len(branches)} branches now: put that branch back"
        )
    if journal.undoing:
        # The losers' steps are compensated, too, so every branch is replayed as far as it came.
        ends = await run_branches(journal, starts)
        values = settle(journal, ends if winner is None else [ends[winner]])
        return First(winner or 0, values[0])
    if winner is not None:
        close_unused([branch for index, branch in enumerate(branches) if index != winner])
        # The run that saved the winner may have died before it gave up the losers.
        losers = _losers(names, winner)
        await _forget_waits(run, [key for own in losers for key in journal.waits_in(own, pending=True)])
        _give_up(run, losers)
        await _cancel(run, await _live_children(run, branches, names, winner))
        end = (await run_branches(journal, [starts[winner]]))[0]
        if isinstance(end, Raised) and isinstance(end.error, Exception):
            tag_decision(end.error, entry.key)
        return First(winner, settle(journal, [end])[0])
    await run.all_spawned()
    winner, end, waiting = await run_first(journal, starts)
    if isinstance(end, Suspend) or (isinstance(end, Raised) and end.ends_run):
        settle(journal, [end])
    losers = _losers(names, winner)
    unused = [key for own in losers for key in journal.waits_in(own)]
    decision = NewStep(entry.key, entry.n, "first", str(winner))
    if isinstance(end, Raised) and isinstance(end.error, Exception):
        # Only if the handler catches the error, this branch has won. Else the next attempt runs all of them again.
        tag_decision(end.error, entry.key)
        prefixes = tuple(journal.prefix_of(own) for own in losers)
        noted = [step for step in journal.notes.all() if step.key.startswith(prefixes)]
        decision.error = describe_error(end.error)
        children = await _live_children(run, branches, names, winner)
        journal.notes.cut_off.append(
            CutOff(journal.branch.prefix, decision, Suspend.all(waiting), noted, unused, children)
        )
        _give_up(run, losers)
        raise end.error
    await _forget_waits(run, unused)
    await run.effects.save(journal.notes.and_steps(decision))
    _give_up(run, losers)
    for own in losers:
        journal.notes.give_up(journal.prefix_of(own))
    await _cancel(run, await _live_children(run, branches, names, winner))
    journal.was_saved()
    return First(winner, settle(journal, [end])[0])


async def end_cut_off(run: RunState, *, failed: bool, repeated: Collection[str] = ()) -> None:
    """See to the branches that were cut off, as the run ends: it has failed, or else returns or is suspended.
    `repeated` are the steps that the next attempt takes again."""
    notes = run.journal.notes
    dropped = notes.all() if failed else ()
    lost = [cut for cut in notes.cut_off if cut.has_lost(dropped, repeated)]
    if failed and (again := [cut for cut in notes.cut_off if cut not in lost]):
        wait = Suspend.all([cut.wait for cut in again])
        if wait.groups:
            noted = [step for cut in again for step in cut.notes]
            await run.effects.backend.save_waits(run.job, wait_text(wait, [*noted, *wait.steps]))
    await _forget_waits(run, [key for cut in lost for key in cut.unused])
    children = sorted({child_id for cut in lost for child_id in cut.children})
    if children and not failed and (decisions := notes.and_steps()):
        # Before the children are cancelled: else an attempt after a crash meets the error of a cancelled child.
        await run.effects.save(decisions)
    await _cancel(run, children)


def _losers(names: Sequence[str], winner: int) -> Sequence[str]:
    return [name for index, name in enumerate(names) if index != winner]


def _give_up(run: RunState, losers: Sequence[str]) -> None:
    for name in losers:
        run.journal.give_up(name)


async def _forget_waits(run: RunState, keys: list[str]) -> None:
    if keys:
        # Else these waits would take events that are meant for others.
        await run.effects.backend.forget_waits(run.job, keys)


async def _live_children(
    run: RunState, branches: Sequence[Awaitable[Any]], names: Sequence[str], winner: int
) -> list[str]:
    """The ids of the children that lost, and of the children of branches that lost, unless they have ended."""
    await run.all_spawned()
    losers = [index for index in range(len(branches)) if index != winner]
    prefixes = tuple(run.journal.prefix_of(names[index]) for index in losers)
    lost = [spawned_by(branch) for index in losers if isinstance(branch := branches[index], Child)]
    lost += [spawned for spawned in run.spawned if spawned.key.startswith(prefixes)]
    live = {child.child_id for child in lost if child.saved is None or child.saved.pending}
    live.update(child_id for index in losers for child_id in run.journal.children_in(names[index]))
    return sorted(child_id for child_id in live if child_id is not None)


async def _cancel(run: RunState, children: list[str]) -> None:
    if children:
        await run.effects.backend.cancel(children)
