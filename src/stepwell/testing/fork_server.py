"""The fork server: a process that has imported the user's program once, and forks a worker of it in milliseconds.

It reads commands as lines of JSON on standard input, and reports on the descriptor that it is given. When its input
ends, it kills its workers and ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
import traceback
from typing import Any

from stepwell.app import App
from stepwell.postgres.address import ENVIRONMENT
from stepwell.testing.crash_injection import CrashInjector, CrashPoint, SharedPage
from stepwell.worker import Worker


def main(program: str, output: int) -> None:
    os.set_inheritable(output, False)
    app = _load(program)
    # Only this process holds the write end, so end of file tells the workers that it is gone.
    alive, held = os.pipe()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # With a handler set, even one that does nothing, the signal writes to the wakeup descriptor.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    page = SharedPage()
    pids: set[int] = set()
    pending = b""

    def report(**what: Any) -> None:
        os.write(output, json.dumps(what).encode() + b"\n")

    report(loaded=program)
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(pids):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    pids.discard(pid)
                    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                    report(died=pid, killed=killed, at=page.died_at)
        if 0 not in ready:
            continue
        read = os.read(0, 65536)
        if not read:
            break
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            command = json.loads(line)
            match command["do"]:
                case "arm":
                    report(armed=page.arm(CrashPoint(command["write"], command["when"]) if command["write"] else None))
                case "count":
                    report(writes=page.numbers[3], claims=page.claims)
                case "start":
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for descriptor in (held, woken, wake, output):
                            os.close(descriptor)
                        _run(app, page, alive, command)
                    pids.add(pid)
                    report(started=pid)
                case _:
                    raise ValueError(f"unknown command {line!r}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _load(program: str) -> App:
    module, _, name = program.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, App):
        raise TypeError(f"{program} is {found!r}, not an App")
    return found


def _run(app: App, page: SharedPage, alive: int, command: dict[str, Any]) -> None:
    """Run a worker in this forked process. Does not return."""
    os.environ[ENVIRONMENT] = command["database"]
    # Standard input carries the commands of the fork server: a worker must not read them.
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    CrashInjector(page)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    try:
        asyncio.run(
            Worker(app, concurrency=command["concurrency"], always_replay=command["always_replay"], grace=0).run()
        )
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


if __name__ == "__main__":
    # Handlers may fail by design, so only errors of the worker are logged.
    logging.basicConfig(level=logging.ERROR)
    main(sys.argv[1], int(sys.argv[2]))
