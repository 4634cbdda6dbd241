"""Tasks for processes: these must stand at the top of a module that the process can import."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from stepwell import App, Chain, Context, Done, Injected, Next, Retry, Step, SyncContext
from stepwell.jobs.task import Task

_once = Retry(max_attempts=1)
_app = App()


@_app.task(process=True)
def square(n: int) -> tuple[int, int]:
    return os.getpid(), n * n


@_app.task(process=True, logs=True)
def logs_much() -> None:
    shop = logging.getLogger("shop.orders")
    shop.setLevel(logging.INFO)
    shop.info("from a process")
    shop.info("é" * 10_000)
    logging.getLogger("a\0\ud800").log(2**40, "odd name and level")
    shop.handle(logging.makeLogRecord({"name": None, "levelno": 30.5, "created": float("nan"), "msg": "odd record"}))


class Client:
    """A resource that only an async function makes."""


@_app.task(process=True)
def needs_client(client: Client = Injected) -> None: ...


class Opened:
    """A resource that counts how often this process has opened it."""

    times = 0


@_app.resource
def opened() -> Opened:
    Opened.times += 1
    return Opened()


@_app.task(process=True, retry=_once)
def counted(ctx: Context, opened: Opened = Injected) -> tuple[int, int]:
    assert ctx.resource(Opened) is opened
    return os.getpid(), opened.times


@_app.task(process=True, retry=_once)
def divide(n: int) -> float:
    return 1 / n


@_app.task(process=True)
def speak(ctx: Context) -> None:
    logging.getLogger("shop").info("it speaks")


@_app.task(process=True, retry=_once)
def die() -> None:
    os._exit(7)


@_app.task(process=True, retry=_once)
def kill(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@_app.task(process=True, retry=_once)
def leave() -> None:
    os._exit(0)


@_app.task(process=True, retry=_once, timeout="1s")
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@_app.task(process=True)
def progress(ctx: Context, flag: str) -> None:
    ctx.progress(1, 3, "one")
    while not os.path.exists(flag):  # noqa: PTH110
        time.sleep(0.01)


@_app.task(process=True, retry=_once)
def stubborn(place: str) -> None:
    """Ignores SIGTERM, and writes to a file for as long as it lives."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    n = 0
    while True:
        n += 1
        with open(place, "w") as file:  # noqa: PTH123
            file.write(f"{os.getpid()} {n}")
        time.sleep(0.005)


def writer(place: Path) -> int:
    """The process of `stubborn` that writes to this file, or 0."""
    text = place.read_text() if place.exists() else ""
    return int(text.split()[0]) if text else 0


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@_app.task(process=True, retry=_once)
def polite(place: str) -> None:
    """Ends with the exit code 0 when it is asked to, of which nobody else hears."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    with open(place, "w") as file:  # noqa: PTH123
        file.write(f"{os.getpid()} 1")
    while True:
        time.sleep(0.005)


def start(n: int) -> int:
    return n + 1


def halve(ctx: SyncContext, n: int) -> Next[tuple[int, int]] | Done[str]:
    if n == 0:
        raise ZeroDivisionError("not by zero")
    return Done("odd") if n % 2 else Next((os.getpid(), n // 2), after="10ms")


def finish(given: tuple[int, int]) -> tuple[int, int, int]:
    return (*given, os.getpid())


def chain_in_processes(app: App) -> Chain[[int], Any]:
    """A chain whose second and third step run in processes, which find that of the app of this module."""
    return app.chain(
        "halving", start, Step(halve, process=True, retry=Retry(max_attempts=2, initial=0)), Step(finish, process=True)
    )


chain_in_processes(_app)


def register(app: App) -> dict[str, Task[..., Any]]:
    """The same functions as tasks of another app, by name."""
    registered: dict[str, Task[..., Any]] = {}
    for task in (square, divide, speak, die, kill, leave, sleep, progress, stubborn, polite, logs_much):
        limit = "1s" if task is sleep else None
        registered[task.name] = app.task(process=True, retry=task.retry, timeout=limit, logs=task.logs)(task.fn)
    return registered
