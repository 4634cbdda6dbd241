"""An app as a user would write it, for the commands that import one."""

import asyncio
import threading
from pathlib import Path

from stepwell import App, Retry

app = App()
not_an_app = 7


@app.task
async def add(x: int, y: int = 2) -> int:
    return x + y


@app.task(queue="mail", priority=5, timeout="30s", keep="forever", retry=Retry(max_attempts=1))
def greet(name: str) -> str:
    return f"Hello, {name}"


@app.task
async def hold(until: str) -> str:
    while not Path(until).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)
    return "done"


@app.task
def stuck() -> None:
    threading.Event().wait()


@app.task(retry=Retry(max_attempts=1))
async def shout() -> None:
    raise ValueError("[bold]\x1b[31mred[/]\n2000-01-01 INFO stepwell: forged")
