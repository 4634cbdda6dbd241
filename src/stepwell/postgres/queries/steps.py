"""Calls of durable jobs: save steps and spawn children."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from stepwell.postgres.queries.arrays import bare, shared, texts, unless_none
from stepwell.postgres.queries.jobs import columns
from stepwell.postgres.queries.query import WITHIN, Query, as_tuple, milliseconds, one_column
from stepwell.values.job import NewJob
from stepwell.values.step import SHORT, NewStep, is_large


class Saving(msgspec.Struct, frozen=True, gc=False):
    """Steps to save, and the run that saves them."""

    job_id: str
    epoch: int
    steps: Sequence[NewStep]


_SAVE: LiteralString = (
    "stepwell.save_steps(%s::uuid[], %s::integer[], %s::text[], %s::integer[], %s::text[], %s::text[], %s::text[],"
    " %s::integer[], %s::double precision[], %s::boolean[], %s::boolean[], %s::boolean[])"
)


_SAVE_WITHIN: LiteralString = (
    "select (s.saved).refused, (s.saved).saved_at from (select " + _SAVE + " as saved" + WITHIN + ") as s"  # noqa: S608
)


def save_steps(savings: Sequence[Saving], within: float | None = None) -> Query[tuple[list[UUID], datetime]]:
    """`within`: the lock timeout in seconds."""
    steps = [step for saving in savings for step in saving.steps]
    # Mostly a job saves one step at a time.
    owners = savings if len(steps) == len(savings) else [saving for saving in savings for _ in saving.steps]
    values = [step.value for step in steps]
    large = [value is not None and len(value) > SHORT and is_large(value) for value in values]
    replaced = [step.replaced for step in steps]
    params = (
        texts([saving.job_id for saving in owners]),
        bare([saving.epoch for saving in owners]),
        texts([step.key for step in steps]),
        bare([step.n for step in steps]),
        shared([step.kind for step in steps], texts),
        texts(values),
        _errors(steps),
        unless_none([step.fingerprint for step in steps]),
        unless_none([step.seconds for step in steps]),
        shared([step.undo for step in steps]),
        bare(large) if any(large) else None,
        bare(replaced) if any(replaced) else None,
    )
    if within is None:
        return Query("select refused, saved_at from " + _SAVE, params, as_tuple)  # noqa: S608
    return Query(_SAVE_WITHIN, (*params, milliseconds(within)), as_tuple)


def _errors(steps: Sequence[NewStep]) -> str | None:
    errors = [step.error for step in steps]
    if not any(errors):
        return None
    return texts(None if error is None else msgspec.json.encode(error).decode() for error in errors)


class Spawning(msgspec.Struct, frozen=True, gc=False):
    """A child to enqueue, and the run that spawns it."""

    job_id: str
    epoch: int
    step: NewStep
    job: NewJob


def spawn(children: Sequence[Spawning]) -> Query[list[UUID | None]]:
    return Query(
        "select stepwell.spawn(%s::uuid[], %s::integer[], %s::text[], %s::integer[], %s::text[], %s::text[],"
        " %s::text[], %s::integer[], %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[],"
        " %s::text[])",
        (
            bare(child.job_id for child in children),
            bare(child.epoch for child in children),
            texts(child.step.key for child in children),
            bare(child.step.n for child in children),
            *columns([child.job for child in children]),
        ),
        one_column,
    )


def forget_waits(job_id: str, epoch: int, keys: list[str]) -> Query[bool]:
    return Query(
        "select stepwell.forget_waits(%s::uuid, %s::integer, %s::text[])", (job_id, epoch, texts(keys)), one_column
    )


def save_waits(job_id: str, epoch: int, wait: str) -> Query[bool]:
    return Query("select stepwell.save_waits(%s::uuid, %s::integer, %s::text)", (job_id, epoch, wait), one_column)


def large_value(job_id: str, key: str) -> Query[str]:
    return Query("select stepwell.large_value(%s::uuid, %s::text)::text", (job_id, key), one_column)


def step_saved(job_id: str, epoch: int, key: str) -> Query[bool | None]:
    return Query("select stepwell.step_saved(%s::uuid, %s::integer, %s::text)", (job_id, epoch, key), one_column)
