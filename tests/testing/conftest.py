"""An app for plain code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell import App


@pytest.fixture
def app_of(dsn: str) -> Iterator[App]:
    """An app on this test's database, closed by plain code."""
    with App(dsn) as app:
        yield app
