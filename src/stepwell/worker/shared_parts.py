"""The parts of a worker that the runners of its pools share."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.app import App
from stepwell.postgres.database import Database
from stepwell.telemetry.bus import EventBus
from stepwell.worker.outcomes.writer import OutcomeWriter
from stepwell.worker.process import Processes
from stepwell.worker.run_log_writer import RunLogWriter
from stepwell.worker.script_end import ScriptEnd
from stepwell.worker.steps.step_store import StepStore
from stepwell.worker.worker_connection import WorkerConnection


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts of a worker that its runners share."""

    app: App
    events: EventBus
    outcomes: OutcomeWriter
    steps: StepStore
    processes: Processes
    logs: RunLogWriter
    transactions: Database
    """The connections of handlers with `transaction=True`."""
    connection: WorkerConnection
    """To look up commits that are in doubt."""
    always_replay: bool
    script_end: ScriptEnd
    batches_wait: bool
    """Whether batches that are not full wait for more jobs."""
