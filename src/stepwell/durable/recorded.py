"""Values that every run of a job must see alike: the time, random numbers, and whether a patch applies."""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec

from stepwell.durable.effects import Effects
from stepwell.durable.exits import Suspend
from stepwell.durable.journal import Journal
from stepwell.values.bounds import check_name
from stepwell.values.step import NewStep


async def now(effects: Effects) -> datetime:
    journal = effects.journal
    try:
        entry = journal.enter("now", "now")
        if entry.saved is not None:
            return msgspec.json.decode(entry.saved.value, type=datetime).astimezone(UTC)
        journal.stop_if_undoing()
        at = await effects.save(journal.notes.and_steps(NewStep(entry.key, entry.n, "now")))
    except Suspend as suspend:
        await effects.leave(suspend)
    # Outside the `try`: with `always_replay` this suspends the run, which would look like a suspension caught before.
    journal.was_saved()
    return at.astimezone(UTC)


def draw(journal: Journal, kind: Literal["random", "uuid"]) -> bytes:
    """A random value, the same in each run of one life of a job: derived from the job's id, its life and the step's
    key, so the handler need not wait until it is saved. It is noted all the same, for a fork, which has another id: see
    `save_draws`."""
    entry = journal.enter(kind, kind)
    if entry.saved is not None:
        return bytes(entry.saved.value)
    journal.stop_if_undoing()
    # Nothing for the first life: the same seed as before jobs had several lives.
    life = f"~{journal.life}" if journal.life else ""
    chance = random.Random(f"{journal.job.id}{life}/{entry.key}")  # noqa: S311
    drawn = chance.random() if kind == "random" else str(UUID(int=chance.getrandbits(128), version=4))
    encoded = msgspec.json.encode(drawn)
    journal.notes.add(NewStep(entry.key, entry.n, kind, encoded.decode()))
    return encoded


async def save_draws(effects: Effects) -> None:
    """Save the values that were drawn since the last step, as the attempt fails: the step that failed may have handed
    them on, and a fork that begins at that step must use the same."""
    if draws := [step for step in effects.journal.notes.all() if step.kind in ("random", "uuid")]:
        # The handler's error says more than one of this: without the values, only a fork would draw others.
        with contextlib.suppress(Exception):
            await effects.save(draws)


def patched(journal: Journal, name: str) -> bool:
    """Whether this job runs the new code: it did so at its first visit, or has no saved steps left to replay. Each
    branch has a first visit of its own, since branches come to it in any order."""
    key = f"patch:{check_name(name, 'name')}"
    full = journal.branch.prefix + key
    if full not in journal.patches:
        # A later visit has the answer of the first, even if the replay has ended in between.
        journal.patches[full] = _runs_new_code(journal, key, full)
    return journal.patches[full]


def _runs_new_code(journal: Journal, key: str, full: str) -> bool:
    if journal.peek(full) is None and (journal.replaying or journal.undoing):
        return False
    entry = journal.enter("patch", key, key)
    if entry.saved is None:
        journal.notes.add(NewStep(entry.key, entry.n, "patch"))
    return True
