"""The pytest plugin of Stepwell: an app on a database of the test's own, a clock, and drain.

It is a package of its own, so that pytest loads neither stepwell nor psycopg for runs that use no fixture of it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from stepwell import App
    from stepwell.testing import StoppedClock

T = TypeVar("T")

_ENVIRONMENT = "STEPWELL_TEST_DATABASE_URL"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("stepwell_app", "The app under test, as module:attribute, for the fixture stepwell_app.")
    parser.addini(
        "stepwell_database",
        f"The Postgres for tests: a URL whose role may create databases. {_ENVIRONMENT} goes first. By default, one is "
        "started for the run.",
    )


@pytest.fixture(scope="session")
def stepwell_database(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Postgres on which each test gets a database of its own."""
    from pytest_stepwell.databases import DatabaseServer

    url = os.environ.get(_ENVIRONMENT) or str(request.config.getini("stepwell_database") or "")
    with DatabaseServer.open(url or None) as server:
        yield server


@pytest.fixture
def stepwell_app(request: pytest.FixtureRequest) -> Iterator[App]:
    """The app under test, which the ini option `stepwell_app` names, on an empty database of this test's own. Without
    that option: a new app. Override this fixture to make it in another way."""
    from stepwell import App

    named = str(request.config.getini("stepwell_app") or "")
    app = _named_app(named) if named else App(name=None)
    # Only now: a wrong name is to be told before a Postgres starts.
    with request.getfixturevalue("stepwell_database").used_by(app):
        yield app


@pytest.fixture
def stepwell_clock(stepwell_app: App) -> Iterator[StoppedClock]:
    """The database's clock, stopped: `stepwell_clock.advance("30d")`. It works in async tests, too."""
    from stepwell.testing import Clock

    with Clock(stepwell_app) as clock:
        yield clock


@pytest.fixture
def drain(stepwell_app: App) -> Callable[..., int]:
    """`drain()` runs all due jobs of the app, in a plain test."""
    from stepwell.testing import drain

    return partial(_with_tasks, drain, stepwell_app)


@pytest.fixture
def adrain(stepwell_app: App) -> Callable[..., Awaitable[int]]:
    """`await adrain()` runs all due jobs of the app, in an async test."""
    from stepwell.testing import adrain

    return partial(_with_tasks, adrain, stepwell_app)


def _with_tasks(run: Callable[..., T], app: App, **options: Any) -> T:
    if not app.tasks:
        raise pytest.UsageError(
            "the app of the fixture stepwell_app has no tasks: name the app under test in pytest's configuration, such "
            "as stepwell_app = shop.jobs:app, or declare tasks on the fixture. Jobs of any other app are enqueued in "
            "its own database, not in that of the test"
        )
    return run(app, **options)


def _named_app(named: str) -> App:
    from stepwell import App

    module, _, attribute = named.partition(":")
    found: Any = importlib.import_module(module)
    for name in (attribute or "app").split("."):
        found = getattr(found, name, None)
    if not isinstance(found, App):
        raise pytest.UsageError(f"stepwell_app = {named}: that is not a stepwell.App: write module:attribute")
    return found
