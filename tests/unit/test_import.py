"""A program that only enqueues jobs loads little, and needs no extra."""

from __future__ import annotations

import subprocess
import sys

import stepwell

_PRODUCER = """
import sys
from stepwell import App

app = App(sys.argv[1])

@app.task
def add(x: int, y: int) -> int:
    return x + y

with app:
    print(add.enqueue(2, y=3).id)
print(*sys.modules)
"""

_NOT_NEEDED = {
    "typer",
    "click",
    "rich",
    "uvloop",
    "pebble",
    "watchfiles",
    "multiprocessing",
    "starlette",
    "jinja2",
    "uvicorn",
} | {
    f"stepwell.{room}"
    for room in ("cli", "doctor", "embedded.postgres", "execution", "supervisor", "testing", "web", "worker")
}


def test_a_producer_enqueues_without_the_worker_and_the_extras(dsn: str) -> None:
    job_id, modules = _run(_PRODUCER, dsn).splitlines()
    assert len(job_id) == 36
    loaded = modules.split()
    assert _NOT_NEEDED.intersection(loaded) == set()
    assert len([name for name in loaded if name.startswith("stepwell")]) <= 150


def test_importing_stepwell_loads_no_driver() -> None:
    """Of the time that `import stepwell` took, psycopg took most. It is loaded with the first App."""
    loaded = _run("import sys, stepwell; print(*sys.modules)").split()
    drivers = {"psycopg", "psycopg_binary", "asyncpg", "sqlalchemy"}
    for_errors = {"difflib", "pathlib"}
    assert (_NOT_NEEDED | drivers | for_errors).intersection(loaded) == set()
    assert len([name for name in loaded if name.startswith("stepwell")]) < 135


def test_a_star_import_brings_all_that_is_public() -> None:
    names: dict[str, object] = {}
    exec("from stepwell import *", names)
    assert set(stepwell.__all__) <= set(names)
    assert set(stepwell.__all__) <= set(dir(stepwell))
    assert not hasattr(stepwell, "Worke")


def _run(program: str, *args: str) -> str:
    return subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=True).stdout
