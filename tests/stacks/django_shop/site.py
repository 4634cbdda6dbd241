"""The shop as a running Django site, in the process of the tests: Django can be set up only once in each."""
# pyright: basic

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo


@cache
def set_up(server_dsn: str) -> Any:
    """Make a database, set Django up on it, and let `manage.py migrate` install all tables. Returns the app."""
    name = f"shop{uuid4().hex[:12]}"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    os.environ["SHOP_DATABASE"] = make_conninfo(server_dsn, dbname=name)
    os.environ["DJANGO_SETTINGS_MODULE"] = "stacks.django_shop.settings"

    from django.core.management import call_command

    from stepwell.contrib.django.project import app

    call_command("migrate", run_syncdb=True, verbosity=0)
    return app


@pytest.fixture
def site(server_dsn: str) -> Iterator[Any]:
    """The app of the shop, without jobs."""
    app = set_up(server_dsn)

    from django.db import connection, connections
    from stacks.django_shop import tasks

    with connection.cursor() as cursor:
        cursor.execute(
            "truncate shop_order, stepwell.job, stepwell.history, stepwell.failure, stepwell.step, stepwell.permit,"
            " stepwell.unique_key"
        )
    tasks.called.clear()
    yield app
    connections.close_all()
    app.close()


def open_connections(dsn: str) -> int:
    """How many connections Django itself has to the database, from all threads."""
    with psycopg.connect(dsn) as connection:
        [count] = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend' and application_name <> 'stepwell'"
        ).fetchone() or (0,)
        return count
