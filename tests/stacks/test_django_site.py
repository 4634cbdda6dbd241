"""What a Django site has besides the backend: migrations, checks, `manage.py stepwell`, and its own connections."""
# pyright: basic

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any

import psycopg
import pytest
from psycopg import sql
from stacks.django_shop.site import site
from stacks.every_call import EVERYTHING, NOTHING, Jobs, ajoin, found, join

from stepwell import App, ConfigError
from stepwell.postgres import migrate
from stepwell.testing import drain

__all__ = ["site"]


@pytest.fixture
def tasks(site: Any) -> Any:
    from stacks.django_shop import tasks

    return tasks


def test_every_version_of_the_schema_has_its_django_migration() -> None:
    folder = resources.files("stepwell.contrib.django") / "migrations"
    names = sorted(path.name.removesuffix(".py") for path in folder.iterdir() if path.name[0].isdigit())
    versions = [migration.name for migration in migrate.migrations()]
    assert names == versions[versions.index("0010_stacks") :]


def test_migrate_installs_the_newest_schema(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("select stepwell.schema_version()")
        assert cursor.fetchone() == (migrate.newest(),)
    call_command("makemigrations", "stepwell", check=True)
    assert "No changes" in capsys.readouterr().out
    # As after an upgrade of the package: the newest migration is not recorded, and finds the schema as it is.
    with connection.cursor() as cursor:
        cursor.execute("delete from django_migrations where app = 'stepwell'")
    call_command("migrate", "stepwell")
    assert f"Applying stepwell.{migrate.migrations()[-1].name}... OK" in capsys.readouterr().out


@pytest.mark.slow
def test_migrating_another_database_leaves_it_alone(site: Any) -> None:
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", "stepwell", database="lite", verbosity=0)
    assert connections["lite"].introspection.table_names() == ["django_migrations"]


def test_there_is_no_way_back(site: Any) -> None:
    from django.core.management import call_command
    from django.db.migrations.exceptions import IrreversibleError

    with pytest.raises(IrreversibleError):
        call_command("migrate", "stepwell", "zero", verbosity=0)


def problems(**settings: Any) -> list[str]:
    from django.core.checks import run_checks
    from django.test import override_settings

    with override_settings(**settings):
        return sorted(str(found.id) for found in run_checks() if str(found.id).startswith("stepwell"))


def test_checks_report_settings_that_cannot_work(site: Any) -> None:
    from django.conf import settings

    backend = settings.TASKS["default"]
    assert problems() == []
    assert problems(STEPWELL="postgresql://") == ["stepwell.E001"]
    assert problems(STEPWELL={"database": "nowhere"}) == ["stepwell.E001"]
    assert problems(STEPWELL={"modules": "shop.tasks"}) == ["stepwell.E001"]
    assert problems(STEPWELL={"database": "lite"}) == ["stepwell.E002"]
    assert problems(TASKS={"default": {**backend, "OPTIONS": {"retry": 3}}}) == ["stepwell.E003"]
    others = [name for name in settings.INSTALLED_APPS if name != "stepwell.contrib.django"]
    assert problems(INSTALLED_APPS=others) == ["stepwell.E004", "stepwell.E004"]


def manage(*arguments: str) -> int:
    from django.core.management import call_command

    try:
        call_command("stepwell", *arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_manage_py_passes_commands_on(site: Any, tasks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import CommandError

    result = tasks.add.enqueue(1)
    assert manage("jobs", "show", result.id, "--settings=stacks.django_shop.settings") == 0
    assert "stacks.django_shop.tasks.add" in capsys.readouterr().out
    assert manage("tasks") == 0
    assert "a: int, b: int = 0, *more: int, **named: int" in capsys.readouterr().out
    assert manage("migrate") == 0
    assert f"schema is at {migrate.newest()}, nothing to do" in capsys.readouterr().out
    assert manage("worker", "--concurrency=none") == 2
    for refused in (["jobs", "list", "--database=x"], ["dev"]):
        with pytest.raises(CommandError):
            manage(*refused)


def test_manage_py_without_the_extra_says_what_to_install(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.management import CommandError

    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("stepwell.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(CommandError, match=r"run pip install 'stepwell\[worker\]'"):
        manage("worker")


@contextlib.contextmanager
def rolled_back() -> Iterator[None]:
    from django.db import transaction

    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


@pytest.fixture
def conn(site: Any) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own to the database of the site, without events and schedules of other tests."""
    with psycopg.connect(os.environ["SHOP_DATABASE"], autocommit=True) as conn:
        conn.execute("delete from stepwell.event")
        conn.execute("delete from stepwell.schedule")
        yield conn


async def test_every_call_takes_effect_if_and_only_if_atomic_commits(conn: psycopg.Connection[Any]) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections, transaction

    async with App(conn.info.dsn, name="every") as app:
        jobs = await Jobs(app).begin()

        def act() -> None:
            with rolled_back():
                join(jobs, "default")
            assert found(conn) == NOTHING
            with transaction.atomic():
                join(jobs, "default")
                assert found(conn) == NOTHING
            connections.close_all()

        # In a thread, because an event loop runs in this one.
        await asyncio.to_thread(act)
        assert found(conn) == EVERYTHING
        for table in ("unique_key", "job", "history", "event", "schedule"):
            conn.execute(sql.SQL("delete from stepwell.{}").format(sql.Identifier(table)))
        jobs = await jobs.begin()
        block = transaction.atomic()
        try:
            await sync_to_async(block.__enter__)()
            await ajoin(jobs, "default")
            assert found(conn) == NOTHING
            await sync_to_async(block.__exit__)(None, None, None)
        finally:
            await sync_to_async(connections.close_all)()
        assert found(conn) == EVERYTHING


def test_a_connection_of_django_stands_for_every_kind_of_object(site: Any, tasks: Any) -> None:
    from django.db import connection, connections, transaction

    def act(given: Any) -> None:
        tasks.native.using(connection=given).enqueue("Ada")
        tasks.native.using(connection=given).enqueue_many([{"customer": "Bea"}, {"customer": "Cyd"}])
        site.group([tasks.native.call("Dot")], connection=given)
        site.emit("paid", value=1, connection=given)

    for given in ("default", connection, connections["default"]):
        with rolled_back():
            act(given)
        assert site.count_jobs() == 0
    with transaction.atomic():
        act("default")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            act("default")
            raise ZeroDivisionError  # to the savepoint
        assert site.count_jobs() == 0  # by a connection of the app's own
    assert drain(site) == 4


def test_connections_that_cannot_be_used_are_refused_by_name(site: Any, tasks: Any, dsn: str) -> None:
    from django.db import connections, transaction

    def refused(given: Any) -> str:
        with pytest.raises(ConfigError) as raised:
            tasks.native.using(connection=given).enqueue("Ada")
        return str(raised.value)

    assert "'default' is in autocommit" in refused("default")
    assert "no such alias, only 'default', 'lite'" in refused("defualt")
    assert "database of sqlite" in refused("lite")
    assert "give an alias of DATABASES" in refused(transaction.atomic())
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(connections["default"]))
    thread.start()
    thread.join()
    with transaction.atomic():
        assert "of another thread" in refused(others[0])
    with transaction.atomic():
        connections["default"].close()
        assert "'default' is closed" in refused("default")
    elsewhere = App(dsn)
    with pytest.raises(ConfigError, match="is to another database"), transaction.atomic():
        Jobs(elsewhere).note.using(connection="default").enqueue(1)
    elsewhere.close()


async def test_async_calls_join_the_transaction_of_djangos_thread(site: Any, tasks: Any) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections, transaction

    block = transaction.atomic()
    try:
        with pytest.raises(ConfigError, match="in autocommit"):
            await tasks.native.using(connection="default").aenqueue("Ada")
        await sync_to_async(block.__enter__)()
        await tasks.native.using(connection="default").aenqueue("Ada")
        await site.aemit("paid", connection="default")
        assert await site.acount_jobs() == 0
        await sync_to_async(block.__exit__)(None, None, None)
        assert await site.acount_jobs() == 1
    finally:
        await sync_to_async(connections.close_all)()
        await site.aclose()
