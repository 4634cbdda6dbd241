"""The public API as a type checker sees it: right programs pass, wrong lines are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def check(folder: str, tmp_path: Path) -> set[tuple[str, int]]:
    """Type check a folder, strictly, and return the places of the errors, by file and line."""
    settings = {"include": [str(HERE / folder)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    run = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", str(config), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    report = json.loads(run.stdout)
    assert report["summary"]["filesAnalyzed"] > 0, run.stdout
    return {
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1)
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    }


def test_right_programs_type_check(tmp_path: Path) -> None:
    assert check("right", tmp_path) == set()


def test_wrong_lines_are_found_and_no_others(tmp_path: Path) -> None:
    expected = {
        (file.name, number)
        for file in (HERE / "wrong").glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if line.endswith("# error")
    }
    found = check("wrong", tmp_path)
    assert expected
    assert found == expected
