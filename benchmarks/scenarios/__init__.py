"""What is measured, in the order in which it runs. Each scenario is a function of the run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.run import Run
from benchmarks.scenarios.backlog import backlog
from benchmarks.scenarios.batches import batch_handlers
from benchmarks.scenarios.cost import cost
from benchmarks.scenarios.drain import drain
from benchmarks.scenarios.enqueue import enqueue
from benchmarks.scenarios.groups import groups
from benchmarks.scenarios.growth import growth
from benchmarks.scenarios.latency import latency
from benchmarks.scenarios.lateness import lateness
from benchmarks.scenarios.limits import limits
from benchmarks.scenarios.pages import pages
from benchmarks.scenarios.snapshot import snapshot
from benchmarks.scenarios.soak import soak
from benchmarks.scenarios.steps import steps
from benchmarks.scenarios.telemetry import telemetry
from benchmarks.scenarios.unique import unique

SCENARIOS: dict[str, Callable[[Run], None]] = {
    "drain": drain,
    "enqueue": enqueue,
    "latency": latency,
    "lateness": lateness,
    "snapshot": snapshot,
    "soak": soak,
    "cost": cost,
    "growth": growth,
    "backlog": backlog,
    "steps": steps,
    "batches": batch_handlers,
    "groups": groups,
    "limits": limits,
    "unique": unique,
    "telemetry": telemetry,
    "pages": pages,
}
QUICK = ("drain", "enqueue", "latency", "lateness", "snapshot", "soak", "cost")
