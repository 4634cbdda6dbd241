"""The pages themselves: links lead somewhere, lines are short, and the lists on them are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stepwell

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
    *(ROOT / name for name in ("deploy/README.md", "examples/django_site/README.md", "src/stepwell/sql/README.md")),
    *DOCS,
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        found = page if not name else page.parent / name
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in [heading_anchor(heading) for heading in headings(found)], f"{page.name} links to {target}"


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.*)$", text, re.MULTILINE)


def heading_anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_line_is_longer_than_100_columns(page: Path) -> None:
    """Rows of tables are exempt: Markdown cannot break them."""
    lines = [line for line in page.read_text().splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 100] == []


def test_the_readme_links_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name_of(page) for page in DOCS if f"]({name_of(page)})" not in text] == []


def test_the_glossary_is_in_alphabetical_order_and_has_no_word_twice() -> None:
    words = re.findall(r"^- \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert words == sorted(set(words), key=str.lower)


def test_contributing_describes_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    source = ROOT / "src" / "stepwell"
    rooms = [path for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = sorted({path.stem for path in rooms if not path.stem.startswith("__")})
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_guide_explains_every_public_error() -> None:
    text = (ROOT / "docs" / "guide.md").read_text()
    public = [getattr(stepwell, name) for name in stepwell.__all__]
    errors = [each for each in public if isinstance(each, type) and issubclass(each, stepwell.StepwellError)]
    assert [error.__name__ for error in errors if f"`{error.__name__}`" not in text] == []
