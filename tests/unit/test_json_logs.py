"""Log records as JSON: one line each, whatever they have."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from stepwell.logs import JsonFormatter


def formatted(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    line.encode()
    return json.loads(line, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))


def test_a_record_has_its_parts() -> None:
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.WARNING, "a.py", 1, "sold %d\nthings", (3,), None, None, {"order": {"id": 7}, "job_id": "1"}
    )
    entry = formatted(record)
    assert entry["message"] == "sold 3\nthings"
    assert (entry["level"], entry["logger"], entry["job_id"]) == ("warning", "shop", "1")
    assert entry["extra"] == {"order": {"id": 7}}
    assert entry["time"].endswith("+00:00")
    assert "task" not in entry


def test_hostile_records_are_formatted_all_the_same() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError

    loop: list[Any] = []
    loop.append(loop)
    extra = {
        "bad": Bad(),
        "loop": loop,
        "nan": float("nan"),
        "half": "\ud800",
        "keys": {1: b"x"},
        "long": "x" * 200_000,
    }
    record = logging.getLogger("shop").makeRecord("shop", 20, "a.py", 1, "%d", ("no number",), None, None, extra)
    entry = formatted(record)
    assert entry["message"] == "%d ('no number',)"
    assert entry["extra"]["nan"] == "nan"
    assert entry["extra"]["bad"] == "<Bad>"
    assert len(entry["extra"]["long"]) < 110_000


def test_extra_values_with_the_names_of_stepwells_own_are_extra() -> None:
    for extra in ({"fields": {"a": 1}}, {"event": "paid"}):
        entry = formatted(logging.getLogger("shop").makeRecord("shop", 20, "a.py", 1, "x", (), None, extra=extra))
        assert entry["extra"] == extra
        assert not {"event", "fields"} & set(entry)


def test_an_exception_is_an_object() -> None:
    try:
        raise LookupError("gone")
    except LookupError:
        record = logging.getLogger("shop").makeRecord("shop", 40, "a.py", 1, "x", (), sys.exc_info())
    entry = formatted(record)["exception"]
    assert (entry["type"], entry["message"]) == ("LookupError", "gone")
    assert entry["traceback"].startswith("Traceback")
