"""The app and its jobs."""

from __future__ import annotations

import logging

from chancy import Chancy, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery
from program import DSN, open_tally

log = logging.getLogger("chancy")
log.setLevel(logging.WARNING)
app = Chancy(DSN, log=log, no_default_plugins=True, plugins=[Leadership(), Pruner(), Recovery()])
tally = open_tally()


@job(queue="default")
async def noop() -> None:
    """Nothing."""
    tally.hit()


@job(queue="default")
async def answer(*, sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
