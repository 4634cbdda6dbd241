"""Events of the supervisor and of the worker processes that it starts, watches and replaces."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import Telemetry, counted, first_few


class ProcessEvent(Telemetry, frozen=True):
    """Something that happened to a worker process, which keeps its number when it is replaced."""

    number: int
    pid: int

    @property
    def process(self) -> str:
        return f"worker process {self.number} (pid {self.pid})"


class ProcessStarted(ProcessEvent, frozen=True):
    level = logging.DEBUG
    line = "worker process {0.number} is pid {0.pid}"


class ProcessNotStarted(Telemetry, frozen=True):
    level = logging.ERROR
    number: int
    error: str
    delay: float
    line = "worker process {0.number} could not be started, trying again in {0.delay:.1f} s: {0.error}"


class ProcessDied(ProcessEvent, frozen=True):
    level = logging.WARNING
    how: str
    delay: float
    line = "{0.process} {0.how}: starting another in {0.delay:.1f} s"


class ProcessDiedAtEnd(ProcessEvent, frozen=True):
    level = logging.ERROR
    how: str
    line = "{0.process} {0.how} while it was stopping"


class ProcessEnded(ProcessEvent, frozen=True):
    line = "{0.process} was asked to end, not by us: it is not replaced"


class ProcessRecycled(ProcessEvent, frozen=True):
    line = "{0.process} has reached its limit and ended: starting another"


class ProcessRefused(ProcessEvent, frozen=True):
    level = logging.ERROR
    line = "{0.process} cannot run with these settings, and neither could its successor: ending"


class ProcessWaitsForChange(ProcessEvent, frozen=True):
    level = logging.WARNING
    line = "{0.process} could not use the app (the reason is above): waiting for a change in the code"


class ProcessesStopping(Telemetry, frozen=True):
    running: int
    command: str

    def text(self) -> str:
        processes = counted(self.running, "worker process", "worker processes")
        match self.command:
            case "drain":
                return f"stopping {processes}; after another signal running jobs are handed back"
            case "hand back":
                return f"handing back the jobs of {processes}; another signal kills"
            case _:
                return f"killing {processes}"


class CodeChanged(Telemetry, frozen=True):
    files: tuple[str, ...]

    def text(self) -> str:
        return f"{first_few(self.files, len(self.files))} changed: restarting"


class SupervisorGone(Telemetry, frozen=True):
    level = logging.WARNING
    line = "the supervisor has ended: stopping"


class RunLimitReached(Telemetry, frozen=True):
    ended: int
    most: int
    line = "this process has run {0.ended} jobs, its limit being {0.most}: stopping, to be replaced"


class MemoryLimitReached(Telemetry, frozen=True):
    held: int
    most: int

    def text(self) -> str:
        return f"this process holds {_megabytes(self.held)}, over {_megabytes(self.most)}: stopping, to be replaced"


class MemoryLimitTooLow(Telemetry, frozen=True):
    level = logging.WARNING
    held: int
    most: int

    def text(self) -> str:
        return (
            f"this process holds {_megabytes(self.held)} before its first job has ended, over {_megabytes(self.most)}: "
            "raise the limit, or the process is replaced again and again"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:.0f} MB"
