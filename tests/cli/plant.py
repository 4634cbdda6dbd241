"""An app whose tasks leave traces of the process that ran them."""

import os
import time
from pathlib import Path

from stepwell import App

app = App()
grown: list[bytes] = []


@app.task
def note(file: str, word: str) -> int:
    time.sleep(0.03)
    with Path(file).open("a") as notes:
        notes.write(f"{word} {os.getpid()}\n")
    return os.getpid()


@app.task
def grow(megabytes: int) -> int:
    grown.append(b"x" * (megabytes * 1024**2))
    return os.getpid()


@app.task(process=True)
def elsewhere() -> int:
    return os.getppid()
