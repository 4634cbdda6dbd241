"""For tests of programs that use Stepwell: set the clock, run what is due, replay every step, and kill workers at each
of their writes.

All of it needs a real Postgres, such as `App("embedded")`, with a database of the test's own; none of it needs pytest.
"""

from stepwell.testing.clock import AsyncStoppedClock, Clock, StoppedClock
from stepwell.testing.draining import adrain, drain
from stepwell.testing.replay import always_replay
from stepwell.testing.sabotage import CrashPoint, When
from stepwell.testing.sweep import Answer, CrashSweep, Effects, Ending, Sweep, SweepFailed, crash_sweep

__all__ = [
    "Answer",
    "AsyncStoppedClock",
    "Clock",
    "CrashPoint",
    "CrashSweep",
    "Effects",
    "Ending",
    "StoppedClock",
    "Sweep",
    "SweepFailed",
    "When",
    "adrain",
    "always_replay",
    "crash_sweep",
    "drain",
]
