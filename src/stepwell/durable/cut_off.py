"""Branches of a `ctx.first` that the error of another branch has cut off.

If that error ends the attempt, the next attempt runs all branches again, so what they wait for is saved. If the handler
has caught the error, they have lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from stepwell.durable.exits import Suspend
from stepwell.durable.wait_text import wait_text
from stepwell.values.step import NewStep

if TYPE_CHECKING:
    from stepwell.durable.run_state import RunState


class CutOff(msgspec.Struct):
    """The branches that one `ctx.first` has cut off."""

    prefix: str
    """The prefix of the branch that this `ctx.first` is in."""
    step: NewStep
    """Says which branch failed. Saved once the error is caught."""
    wait: Suspend
    """What the branches wait for."""
    notes: Sequence[NewStep]
    """What they have noted."""
    unused: Sequence[str]
    """The keys of their waits whose event they have not used."""
    children: Sequence[str]
    """The ids of their children that have not ended."""
    caught: bool = False


async def end_cut_off(run: RunState, error: BaseException | None, repeated: Collection[str]) -> None:
    """See to the branches that were cut off, as the run ends. `repeated` are the steps that the next attempt takes
    again."""
    cuts, notes = run.journal.notes.cut_off, run.journal.notes.all()
    failed = isinstance(error, Exception)
    # A decision that was noted and not saved is lost with the attempt.
    lost = [cut for cut in cuts if cut.caught and not (failed and (cut.step.key in repeated or cut.step in notes))]
    again = [cut for cut in cuts if failed and cut not in lost]
    backend, job = run.effects.backend, run.job
    if again:
        wait = Suspend.all([cut.wait for cut in again])
        if wait.groups:
            noted = [step for cut in again for step in cut.notes]
            await backend.save_waits(job, wait_text(wait, [*noted, *wait.steps]))
    if error is None:
        lost = cuts
    elif unused := [key for cut in lost for key in cut.unused]:
        # Else these waits would take events that are meant for others.
        await backend.forget_waits(job, unused)
    if children := sorted({child_id for cut in lost for child_id in cut.children}):
        await backend.cancel(children)
