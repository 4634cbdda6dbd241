"""What the package says it offers is what it offers."""

from __future__ import annotations

import inspect
import re
import types
import typing

import stepwell
from stepwell import errors


def test_all_is_exact_and_sorted() -> None:
    public = {
        name
        for name in dir(stepwell)
        for value in [getattr(stepwell, name)]
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(stepwell.__all__) == public
    assert list(stepwell.__all__) == sorted(stepwell.__all__)


def test_the_tree_of_errors_has_every_error_under_its_base() -> None:
    drawn: dict[str, str] = {}
    bases = ["StepwellError"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([ │]*)[├└]── (\w+) ", line):
            depth = len(found[1]) // 4
            bases[depth + 1 :] = [found[2]]
            drawn[found[2]] = bases[depth]
    defined = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.StepwellError) and kind is not errors.StepwellError
    }
    assert drawn == defined


def test_everything_public_is_documented() -> None:
    undocumented: list[str] = []
    for name in stepwell.__all__:
        thing = getattr(stepwell, name)
        if not inspect.isclass(thing):
            continue
        if not thing.__doc__:
            undocumented.append(name)
        for member, value in vars(thing).items():
            target = value.fget if isinstance(value, property) else value
            if not member.startswith("_") and inspect.isfunction(target) and not target.__doc__:
                undocumented.append(f"{name}.{member}")
    assert undocumented == []


def test_the_annotations_of_everything_public_can_be_read_at_run_time() -> None:
    unread: list[str] = []
    for name in stepwell.__all__:
        thing = getattr(stepwell, name)
        members = {name: thing} if inspect.isclass(thing) or inspect.isfunction(thing) else {}
        if inspect.isclass(thing):
            members |= {f"{name}.{member}": getattr(thing, member) for member in dir(thing) if member[0] != "_"}
        for named, value in members.items():
            target = value.fget if isinstance(value, property) else value
            if inspect.isclass(target) or inspect.isroutine(target):
                try:
                    typing.get_type_hints(target)
                except NameError as error:
                    unread.append(f"{named}: {error}")
    assert unread == []
