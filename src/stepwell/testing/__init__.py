"""For tests of programs that use Stepwell: set the clock, run due jobs, replay every step, kill workers at each write.

`clock` stops the database's clock, `draining` runs a worker until no job is due, `replay` suspends jobs after every
step. `sweep` is the crash sweep: it runs a job once per write, kills the worker there (`crash_injection`), resumes, and
compares the results (`sweep_result`). Its workers are forked (`sweep_workers`) by a process that has imported the
program once (`fork_server`).

`eager` runs handlers inline, and `unit_context` makes contexts for unit tests; these two need no database.
`assertions` looks for enqueued jobs. The pytest plugin is a package of its own, `pytest_stepwell`.

The rest needs a real Postgres, such as `App("embedded")`, with a database that only the test uses. None of it needs
pytest.
"""

from stepwell.testing.assertions import assert_enqueued
from stepwell.testing.clock import AsyncStoppedClock, Clock, StoppedClock
from stepwell.testing.crash_injection import CrashPoint, When
from stepwell.testing.draining import adrain, drain
from stepwell.testing.eager import EagerHandle, eager
from stepwell.testing.replay import always_replay
from stepwell.testing.sweep import Answer, CrashSweep, Effects, crash_sweep
from stepwell.testing.sweep_result import Ending, Sweep, SweepFailed
from stepwell.testing.unit_context import UnitContext, UnitSyncContext, context, sync_context

__all__ = [
    "Answer",
    "AsyncStoppedClock",
    "Clock",
    "CrashPoint",
    "CrashSweep",
    "EagerHandle",
    "Effects",
    "Ending",
    "StoppedClock",
    "Sweep",
    "SweepFailed",
    "UnitContext",
    "UnitSyncContext",
    "When",
    "adrain",
    "always_replay",
    "assert_enqueued",
    "context",
    "crash_sweep",
    "drain",
    "eager",
    "sync_context",
]
