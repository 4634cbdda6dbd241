"""Samples in the docs: whole programs run and print what their comments say; fragments are at least valid Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.forked import run_forked

ROOT = Path(__file__).parent.parent.parent
# On these pages all samples together are one program.
LITERATE = [
    "durable.md", "chains.md", "machines.md", "testing.md", "limits.md", "unique.md", "groups.md",
    "batches.md", "resources.md", "telemetry.md", "transactions.md", "which-one.md", "coming-from/celery.md",
    "coming-from/rq.md", "coming-from/arq.md", "coming-from/dramatiq.md", "coming-from/procrastinate.md",
    "coming-from/dbos.md",
]  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def samples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def is_program(sample: str) -> bool:
    return 'App("embedded")' in sample and "__main__" in sample


PROGRAMS = {name: "\n\n".join(samples(ROOT / "docs" / name)) for name in LITERATE} | {
    f"{page.name} {place}": sample
    for page in PAGES
    if page.name not in LITERATE and f"{page.parent.name}/{page.name}" not in LITERATE
    for place, sample in enumerate(samples(page))
    if is_program(sample)
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_says(name: str, project_dir: Path) -> None:
    program = project_dir / "program.py"
    program.write_text(PROGRAMS[name])
    run = run_forked([program.name], project_dir, timeout=90)
    assert run.returncode == 0, run.stderr
    said = re.findall(r"^ *print\(.*\)  # (.*)$", PROGRAMS[name], re.MULTILINE)
    assert said
    assert run.stdout.splitlines() == said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_sample_is_python(page: Path) -> None:
    for sample in samples(page):
        compile(sample, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
