"""The examples of durable work run as they are, each in a few seconds, and once more on what the first run left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import run_forked

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "order_checkout.py",
            [
                "parcel with tea, paid by Ada, parcel with honey, paid by Ada",
                "over 10.00 voided",
                "released",
                "failed: nobody paid",
                "undo:send_invoice, undo:reserve",
            ],
        ),
        (
            "ingest.py",
            [
                "good stored",
                "5 numbers",
                "0 numbers",
                "failed at 'store': shut is locked",
                "resumed at 'parse'",
                "shut stored",
            ],
        ),
        ("approval.py", ["approved automatically: the amount is small", ": approved", "given up: nobody decided"]),
    ],
)
def test_an_example_does_what_it_says(name: str, said: list[str], project_dir: Path) -> None:
    for _ in range(2):
        run = run_forked([str(EXAMPLES / name)], project_dir, timeout=60)
        assert run.returncode == 0, run.stderr
        at = 0
        for words in said:
            at = run.stdout.find(words, at)
            assert at >= 0, f"{words!r} is missing, or out of order, in {run.stdout}"
