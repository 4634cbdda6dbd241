"""The supervisor: keeps a number of worker processes running. It knows no app and no database.

Each process has a numbered seat. When it ends, its exit code (`exit_codes`) decides whether another takes its seat.
The first signal drains the processes, the second makes them hand back their jobs, the third kills them. Nothing else
kills a process, because a process that does not stop still runs a job. There is one exception: after a change in the
code, a process that blocks the reload must end itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from stepwell.errors import StepwellError
from stepwell.errors.text import describe_exit
from stepwell.supervisor import code_changes, exit_codes
from stepwell.supervisor.lifeline import Command
from stepwell.supervisor.worker_process import WorkerProcess
from stepwell.telemetry import supervisor as events
from stepwell.telemetry.bus import log

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_HEALTHY_AGE = 60.0


class RestartDelay:
    """Half a second, doubled after each crash up to 30 s, and reset once a process has lived for a minute. Jitter keeps
    processes that crashed together from all starting together."""

    def __init__(self) -> None:
        self._next = _FIRST_DELAY

    def after(self, age: float) -> float:
        if age >= _HEALTHY_AGE:
            self._next = _FIRST_DELAY
        delay = self._next
        self._next = min(delay * 2, _LONGEST_DELAY)
        return delay * random.uniform(0.8, 1.2)  # noqa: S311


# After a change in the code, running jobs are handed back after _RELOAD_GRACE seconds. A process that is still blocked
# by a job after _RELOAD_PATIENCE seconds must end on the spot.
_RELOAD_GRACE = 2.0
_RELOAD_PATIENCE = 10.0
_CANNOT_START = (exit_codes.MISCONFIGURED, exit_codes.REFUSED)


class ProcessObserver(Protocol):
    """Watches the processes from outside, such as a server that has their metrics."""

    def arguments(self, number: int) -> Sequence[str]:
        """The arguments that a process in this seat gets beside the others."""
        ...

    def started(self, number: int) -> None:
        """A process was started in this seat."""
        ...


def supervise(
    arguments: Sequence[str], processes: int, *, reloading: bool = False, observer: ProcessObserver | None = None
) -> int:
    """Run `stepwell` with these arguments in several processes until all have ended; return the exit code."""
    if reloading:
        code_changes.check_installed()
    # -P keeps the current directory out of sys.path, as in the console script: files there must not hide our modules.
    argv = [sys.executable, "-P", "-m", "stepwell", *arguments]
    here = Path.cwd()
    changes = code_changes.changes(here) if reloading else None
    return asyncio.run(Supervisor(argv, processes, changes, observer).run())


@dataclass(slots=True)
class Seat:
    """One process after another takes this seat. `hurry` cuts short the wait before the next process starts."""

    number: int
    process: WorkerProcess | None = None
    delay: RestartDelay = field(default_factory=RestartDelay)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Keeps several processes of one command. `changes` yields bursts of changed files; each restarts all processes."""

    def __init__(
        self,
        argv: Sequence[str],
        processes: int,
        changes: AsyncIterator[list[str]] | None = None,
        observer: ProcessObserver | None = None,
    ) -> None:
        self._argv = argv
        self._observer = observer
        self._seats = [Seat(number) for number in range(1, processes + 1)]
        self._changes = changes
        self._signals = 0
        self._stopping = False
        self._one_started = False
        self._code = exit_codes.DONE

    async def run(self) -> int:
        """Run until all processes have ended; return the exit code, 0 if all ended because they were asked to."""
        with self._listening():
            watching = asyncio.create_task(self._follow_changes()) if self._changes else None
            async with asyncio.TaskGroup() as group:
                for seat in self._seats:
                    group.create_task(self._keep(seat))
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        return self._code

    def receive(self, number: int) -> None:
        self._signals += 1
        command: Command = "drain" if self._signals == 1 else "hand back" if self._signals == 2 else "end"
        if processes := self._processes():
            log(events.ProcessesStopping(len(processes), command))
        self._stop(command)
        if command == "end":
            self._code = 128 + number
            for process in processes:
                process.kill()

    def restart(self) -> None:
        """Replace all processes, and start those that wait for their delay or a change."""
        loop = asyncio.get_running_loop()
        for seat in self._seats:
            seat.hurry.set()
            if seat.process is not None:
                seat.process.send("drain")
                loop.call_later(_RELOAD_GRACE, seat.process.send, "hand back")
                loop.call_later(_RELOAD_PATIENCE, seat.process.send, "end")

    def _stop(self, command: Command) -> None:
        self._stopping = True
        for seat in self._seats:
            seat.hurry.set()
        for process in self._processes():
            process.send(command)

    def _processes(self) -> list[WorkerProcess]:
        return [seat.process for seat in self._seats if seat.process is not None]

    async def _keep(self, seat: Seat) -> None:
        """Keep this seat filled until the supervisor stops or the seat needs no other process."""
        while not self._stopping:
            seat.hurry.clear()
            try:
                process = seat.process = WorkerProcess(self._argv_of(seat))
            except OSError as error:
                delay = seat.delay.after(0)
                log(events.ProcessNotStarted(seat.number, str(error), delay))
                await self._pause(seat, delay)
                continue
            log(events.ProcessStarted(seat.number, process.pid))
            if self._observer is not None:
                self._observer.started(seat.number)
            code = await process.ended
            seat.process = None
            # Once a process could start, neither the app nor its settings are to blame for later exits.
            self._one_started = self._one_started or code not in _CANNOT_START
            if self._stopping:
                self._judge(seat, process, code)
            elif seat.hurry.is_set():
                seat.delay = RestartDelay()  # it ended for the new code, which has not failed yet
            elif not await self._follow(seat, process, code):
                return

    def _argv_of(self, seat: Seat) -> Sequence[str]:
        return self._argv if self._observer is None else [*self._argv, *self._observer.arguments(seat.number)]

    async def _follow(self, seat: Seat, process: WorkerProcess, code: int) -> bool:
        """After a process ended unasked, wait until it is time for the next. False: the seat stays empty."""
        number, pid = seat.number, process.pid
        if code == exit_codes.DONE:
            log(events.ProcessEnded(number, pid))
            return False
        if code == exit_codes.USAGE:
            log(events.ProcessRefused(number, pid))
            self._code = exit_codes.USAGE
            self._stop("drain")
            return False
        if code in _CANNOT_START and self._changes is None and not self._one_started:
            # No process can start: end visibly instead of trying for ever.
            log(events.ProcessRefused(number, pid))
            self._code = exit_codes.TROUBLE
            self._stop("drain")
            return False
        if code == exit_codes.RECYCLE:
            log(events.ProcessRecycled(number, pid))
        elif code == exit_codes.MISCONFIGURED and self._changes is not None:
            log(events.ProcessWaitsForChange(number, pid))
            await seat.hurry.wait()
        else:
            delay = seat.delay.after(process.age)
            log(events.ProcessDied(number, pid, describe_exit(code), delay))
            await self._pause(seat, delay)
        return True

    def _judge(self, seat: Seat, process: WorkerProcess, code: int) -> None:
        """Note a process that did not end as asked while the supervisor was stopping."""
        # A SIGTERM from elsewhere may reach a process before it handles signals.
        as_asked = code in (exit_codes.DONE, exit_codes.RECYCLE, -signal.SIGTERM)
        # If one process is refused, the others are refused for the same reason.
        refused_like_others = code == self._code == exit_codes.USAGE or (code in _CANNOT_START and self._code)
        if as_asked or self._signals > 2 or refused_like_others:
            return
        log(events.ProcessDiedAtEnd(seat.number, process.pid, describe_exit(code)))
        self._code = self._code or exit_codes.TROUBLE

    async def _pause(self, seat: Seat, delay: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await seat.hurry.wait()

    async def _follow_changes(self) -> None:
        assert self._changes is not None
        try:
            async for files in self._changes:
                if not self._stopping:
                    log(events.CodeChanged(tuple(files)))
                    self.restart()
        except Exception as error:
            self._stop("drain")
            raise StepwellError(f"cannot watch the code for changes any longer: {error}") from error

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Handle signals. Entered before the first process starts, so that a signal leaves none behind."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.receive, number)
        loop.add_signal_handler(signal.SIGCHLD, self._check_processes)
        try:
            yield
        finally:
            for number in (*numbers, signal.SIGCHLD):
                loop.remove_signal_handler(number)

    def _check_processes(self) -> None:
        for process in self._processes():
            process.check()
