"""The settings of a site: STEPWELL for the app, and what of TASKS and DATABASES Stepwell depends on.

STEPWELL is a dict of what `App(...)` takes by name, all of it optional, with two keys of its own: "database", an alias
of DATABASES, and "modules", further modules that hold tasks.
"""
# pyright: basic

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

_APP = "stepwell.contrib.django"


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """What STEPWELL says, with its defaults."""

    database: str
    modules: Sequence[str]
    options: dict[str, Any]
    """The options of the app."""


def read_settings() -> SiteSettings:
    """Read STEPWELL. Raises `ImproperlyConfigured` if it is no dict, or names no database of the site."""
    given = getattr(settings, "STEPWELL", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"STEPWELL is {given!r}: give a dict of options, such as {{'database': 'default'}}")
    options = {"name": _site_name(), **given}
    database = options.pop("database", DEFAULT_DB_ALIAS)
    modules = options.pop("modules", ())
    if isinstance(modules, str) or not all(isinstance(module, str) for module in modules):
        raise ImproperlyConfigured(f"STEPWELL['modules'] is {modules!r}: give a list of modules that hold tasks")
    if database not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise ImproperlyConfigured(
            f"STEPWELL['database'] is {database!r}: give an alias of DATABASES, which has {known}; a URL belongs there"
        )
    return SiteSettings(database, tuple(modules), options)


def _site_name() -> str:
    """Two sites on one database must not run each other's jobs, so the app has a name: that of the site's package."""
    return str(settings.SETTINGS_MODULE or "django").partition(".")[0]


def check_settings(app_configs: object = None, **_: object) -> Iterator[checks.CheckMessage]:  # noqa: ARG001
    """Report settings with which no job could run, for `manage.py check`."""
    try:
        database = read_settings().database
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), id="stepwell.E001")
        return
    vendor = connections[database].vendor
    if vendor != "postgresql":
        yield checks.Error(
            f"Stepwell's database {database!r} is of vendor {vendor!r}, and Stepwell needs PostgreSQL",
            hint="Give STEPWELL = {'database': ...} the alias of a PostgreSQL database.",
            id="stepwell.E002",
        )


def check_backend(alias: str, options: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    """Report settings of one backend in TASKS that do not work."""
    if options:
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS'] has {', '.join(map(repr, options))}, which this backend does not read",
            hint="All Stepwell backends of a site share one app: its options belong in the setting STEPWELL.",
            id="stepwell.E003",
        )
    if not any(_APP in (name, name.removesuffix(".apps.StepwellConfig")) for name in settings.INSTALLED_APPS):
        yield checks.Error(
            f"TASKS[{alias!r}] uses Stepwell, and {_APP!r} is not in INSTALLED_APPS",
            hint="Add it: its migrations make the tables for jobs.",
            id="stepwell.E004",
        )
