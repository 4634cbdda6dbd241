"""The source as a reader finds it: short files, folders that explain themselves, tables that only SQL touches."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src"
SQL = SOURCE / "stepwell" / "sql"
QUERIES = SOURCE / "stepwell" / "postgres" / "queries"


def test_no_file_has_more_than_350_lines() -> None:
    files = [file for suffix in ("py", "sql", "css", "js") for file in SOURCE.rglob(f"*.{suffix}")]
    assert len(files) > 500, "nothing was looked at"
    assert [file.name for file in files if len(file.read_text("utf-8").splitlines()) > 350] == []


def test_every_folder_opens_with_what_it_is_for() -> None:
    opened = [file for file in SOURCE.rglob("__init__.py") if not {"migrations", "management"} & set(file.parts)]
    assert len(opened) > 30, "nothing was looked at"
    assert [str(file) for file in opened if not ast.get_docstring(ast.parse(file.read_text("utf-8")))] == []


def test_private_tables_are_touched_only_by_the_sql_and_the_queries() -> None:
    schema = "\n".join(file.read_text("utf-8") for file in SQL.rglob("*.sql"))
    tables = set(re.findall(r"create (?:unlogged )?table (?:if not exists )?stepwell\.(\w+)", schema))
    assert {"job", "history", "migration"} <= tables
    touch = re.compile(rf"\b(?:from|join|into|update|only|table|truncate)\s+stepwell\.(?:{'|'.join(tables)})\b")
    others = [file for file in SOURCE.rglob("*.py") if QUERIES not in file.parents]
    assert [(file.name, text) for file in others for text in _texts(file) if touch.search(text.lower())] == []


def _texts(file: Path) -> list[str]:
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
