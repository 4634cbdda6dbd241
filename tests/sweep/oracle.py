"""What a program of `interpret` must come to, if nothing ever crashed: its trace, or how it fails, and its effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class Failing(Exception):
    """A program fails: `by_child` if it is a child's failure that nobody caught."""

    def __init__(self, *, by_child: bool) -> None:
        self.by_child = by_child


class Unforeseeable(Exception):
    """What a program comes to depends on which attempt it is."""


@dataclass(slots=True)
class World:
    """What was done outside."""

    done: set[str] = field(default_factory=set[str])
    paid: list[str] = field(default_factory=list[str])
    undone: set[str] = field(default_factory=set[str])
    stumbles: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """How the job ends, and what it leaves."""

    state: str
    trace: list[Any] | None
    by_child: bool
    world: World


def foresee(ops: list[Any]) -> Expected:
    """Interpret a program without a database, a worker or a clock."""
    world = World()
    try:
        return Expected("succeeded", _job(ops, "", world), False, world)
    except Failing as failing:
        return Expected("failed", None, failing.by_child, world)


def _job(ops: list[Any], path: str, world: World) -> list[Any]:
    undoable: list[str] = []
    try:
        return _run(ops, path, world, undoable)
    except Failing:
        world.undone.update(undoable)
        raise


def _child(ops: list[Any], path: str, world: World) -> list[Any]:
    try:
        return _job(ops, path, world)
    except Failing:
        raise Failing(by_child=True) from None


def _run(ops: list[Any], path: str, world: World, undoable: list[str]) -> list[Any]:
    return [_one(op, f"{path}/{place}", world, undoable) for place, op in enumerate(ops)]


def _one(op: list[Any], path: str, world: World, undoable: list[str]) -> Any:
    match op:
        case ["step" | "plain", value]:
            world.done.add(path)
            return value
        case ["late", _, _]:
            world.done.add(path)
            return "late"
        case ["wrong", _, _]:
            world.done.add(path)
            raise Failing(by_child=False)
        case ["undoable"]:
            world.done.add(path)
            undoable.append(path)
            return path
        case ["pay", value]:
            world.paid.append(path)
            return value
        case ["stumble"]:
            world.stumbles += 1
            return "stood up"
        case ["overdraw"]:
            raise Failing(by_child=False)
        case ["sleep", _]:
            return "slept"
        case ["wait" | "receive", name]:
            return name
        case ["time out"] | ["chance"] | ["now"] | ["patched"]:
            return True
        case ["own"]:
            return path
        case ["child", ops]:
            return _child(ops, path, world)
        case ["children", programs]:
            return [_or_failed(ops, f"{path}.{n}", world) for n, ops in enumerate(programs)]
        case ["gather", programs]:
            return _all([(ops, f"{path}.{n}") for n, ops in enumerate(programs)], world, undoable)
        case ["map", items, _]:
            for item in items:
                world.done |= {f"{path}.{item}", f"{path}.{item}b"}
            return [item + 1 for item in items]
        case ["first" | "first child", ops]:
            return [0, _run(ops, path, world, undoable)]
        case ["if", value, yes, no]:
            world.done.add(path)
            return _run(yes if value else no, path, world, undoable)
        case ["try", ops]:
            try:
                return _run(ops, path, world, undoable)
            except Failing as failing:
                return ["caught", failing.by_child]
        case _:
            raise AssertionError(f"the oracle does not know {op!r}")


def _or_failed(ops: list[Any], path: str, world: World) -> Any:
    try:
        return _child(ops, path, world)
    except Failing:
        return "failed"


def _all(branches: list[tuple[list[Any], str]], world: World, undoable: list[str]) -> list[Any]:
    """All are run to their end; then the first that failed, in their order, fails the whole.

    If one stumbles beside another that fails, it is the first attempt that fails for good, and what comes behind the
    stumble is not done; unless a crash has made it the second.
    """
    ends: list[Any] = []
    failed: list[Failing] = []
    stumbles: list[int] = []
    for ops, path in branches:
        before = world.stumbles
        try:
            ends.append(_run(ops, path, world, undoable))
        except Failing as failing:
            failed.append(failing)
        stumbles.append(world.stumbles - before)
    if failed and any(stumbles):
        raise Unforeseeable
    if failed:
        raise failed[0]
    return ends
