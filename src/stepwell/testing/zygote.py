"""A process that has imported the user's program, and forks a worker of it whenever it is told to: in milliseconds.

Told by lines of JSON on its standard input; says what happens on the descriptor that it is given. When its input ends,
so do its workers and itself.
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
from types import FrameType
from typing import Any

from stepwell.app import App
from stepwell.postgres.address import ENVIRONMENT
from stepwell.testing.sabotage import CrashPoint, Page, Saboteur
from stepwell.worker import Worker


def main(program: str, output: int) -> None:
    """Serve until the input ends."""
    os.set_inheritable(output, False)
    app = _load(program)
    # Held by nobody else: that it ends tells the workers that this process is gone.
    alive, held = os.pipe()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, _hear)
    signal.set_wakeup_fd(wake)
    page = Page()
    pids: set[int] = set()
    pending = b""

    def say(**what: Any) -> None:
        os.write(output, json.dumps(what).encode() + b"\n")

    say(loaded=program)
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(pids):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    pids.discard(pid)
                    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                    say(died=pid, killed=killed, at=page.last_words)
        if 0 not in ready:
            continue
        read = os.read(0, 65536)
        if not read:
            break
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            told = json.loads(line)
            match told["do"]:
                case "arm":
                    say(armed=page.arm(CrashPoint(told["write"], told["when"]) if told["write"] else None))
                case "count":
                    say(writes=page.numbers[3], claims=page.claims)
                case "start":
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for descriptor in (held, woken, wake, output):
                            os.close(descriptor)
                        _run(app, page, alive, told)
                    pids.add(pid)
                    say(started=pid)
                case _:
                    raise ValueError(f"told {line!r}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _hear(_: int, __: FrameType | None) -> None:
    """That somebody listens is enough: the signal writes to the wakeup descriptor."""


def _load(program: str) -> App:
    module, _, name = program.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, App):
        raise TypeError(f"{program} is {found!r}, not an App")
    return found


def _run(app: App, page: Page, alive: int, told: dict[str, Any]) -> None:
    """Be a worker. Does not return."""
    os.environ[ENVIRONMENT] = told["database"]
    # This process is not another copy of the one that holds standard input.
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    Saboteur(page)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    try:
        asyncio.run(Worker(app, concurrency=told["concurrency"], always_replay=told["always_replay"], grace=0).run())
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


if __name__ == "__main__":
    # That handlers fail is what is asked of some; that a worker is in trouble is worth a line.
    logging.basicConfig(level=logging.ERROR)
    main(sys.argv[1], int(sys.argv[2]))
