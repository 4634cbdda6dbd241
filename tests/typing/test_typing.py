"""The public API as type checkers see it: right programs pass, wrong lines are found.

Each checker runs once, over all files, at its strictest. A line of a wrong program that ends with `# error` is an error
to both; one that ends with `# error: pyright` only to that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDERS = ("right", "wrong")
_MARK = re.compile(r"# error(?:: (\w+))?$")
_FOUND_BY_MYPY = re.compile(r"^(\S+?\.py):(\d+): error: ")

Place = tuple[str, int]
"""A file, with its folder, and a line."""


def pyright(tmp_path: Path) -> set[Place]:
    settings = {"include": [str(HERE / folder) for folder in FOLDERS], "typeCheckingMode": "strict"}
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps({**settings, "pythonVersion": "3.11"}))
    run = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", str(config), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    report = json.loads(run.stdout)
    assert report["summary"]["filesAnalyzed"] == len(_programs()), run.stdout
    return {
        (_named(Path(found["file"])), found["range"]["start"]["line"] + 1)
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    }


def mypy(_: Path) -> set[Place]:
    run = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--config-file=",
                "--python-version=3.11",
                "--hide-error-context",
            ),
            *("--no-error-summary", "--cache-dir=/dev/null", "--explicit-package-bases"),
            *map(str, _programs()),
        ],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    found = [match for line in run.stdout.splitlines() if (match := _FOUND_BY_MYPY.match(line))]
    return {(_named((HERE / match[1]).resolve()), int(match[2])) for match in found}


def _programs() -> list[Path]:
    return [file for folder in FOLDERS for file in sorted((HERE / folder).glob("*.py"))]


def _named(file: Path) -> str:
    return str(file.relative_to(HERE))


def _marked(checker: str) -> set[Place]:
    return {
        (_named(file), number)
        for file in _programs()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (mark := _MARK.search(line)) and mark[1] in (None, checker)
    }


@pytest.mark.slow
@pytest.mark.parametrize("check", [pyright, mypy], ids=lambda check: check.__name__)
def test_right_programs_pass_and_of_wrong_ones_the_marked_lines_are_found(
    check: Callable[[Path], set[Place]], tmp_path: Path
) -> None:
    expected = _marked(check.__name__)
    assert {name.split("/")[0] for name, _ in expected} == {"wrong"}
    assert check(tmp_path) == expected
