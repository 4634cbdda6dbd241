"""Whether this worker leads, and how soon it therefore looks for due jobs and schedules."""

from __future__ import annotations

import random

_LONGEST_NAP = 15.0
_RARE_NAP = 60.0
_LONGEST_NAP_IF_DEAF = 1.0
# The other workers look this much later than the leader: enough that they find nothing to do while it lives.
_BEHIND = 0.5


class Leadership:
    """Shared by the parts of upkeep. `leads` is set by `Upkeep`, `deaf` when notifications stop or start to arrive."""

    def __init__(self) -> None:
        self.leads = False
        self.deaf = False

    @property
    def behind(self) -> float:
        """How much later than the leader this worker looks, in seconds."""
        return 0.0 if self.leads else _BEHIND * random.uniform(1, 1.5)  # noqa: S311

    @property
    def longest_nap(self) -> float:
        """How long to wait at most when nothing is known to be due."""
        return _LONGEST_NAP_IF_DEAF if self.deaf else _LONGEST_NAP

    @property
    def rare_nap(self) -> float:
        """The same for what no job waits for once a notification was lost: an idle worker asks little."""
        return _LONGEST_NAP_IF_DEAF if self.deaf else _RARE_NAP
