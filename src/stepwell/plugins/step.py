"""A step that is under way, as plugins see it."""

from __future__ import annotations

import msgspec

from stepwell.values.job import ClaimedJob


class StepRun(msgspec.Struct, frozen=True):
    """A call of the function of a step, or of one that compensates a step."""

    job: ClaimedJob
    """The job as it was claimed."""
    key: str
    """The step key; in a chain or machine, the name of the step or state."""
