"""Fields that the forms of all acts have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.web.visit import Refused


def one(form: Mapping[str, Sequence[str]], name: str) -> str:
    """The value of a field that must be there."""
    found = form.get(name) or ()
    if len(found) != 1 or not found[0]:
        raise Refused(400, f"the form has no {name!r}: give one")
    return found[0]


def back(form: Mapping[str, Sequence[str]], otherwise: str) -> str:
    """The page that the act came from, with its filters."""
    return next(iter(form.get("back") or ()), otherwise)
