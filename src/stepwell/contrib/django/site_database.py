"""The app's database through Django's own connection of this thread, for the jobs of Django tasks.

So a job is part of the surrounding `atomic`, a site that only enqueues opens no connections but Django's, and nothing
holds a test database open.
"""
# pyright: basic

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.db import transaction

from stepwell.contrib.django.site_address import SiteAddress
from stepwell.postgres.acting import to_record
from stepwell.postgres.callers.dispatch import caller_of
from stepwell.postgres.callers.fetch import explaining, run_recorded
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


class SiteDatabase(Database):
    """Runs queries on Django's connection. To wait for results it opens connections like any `Database`."""

    def __init__(self, address: SiteAddress, *, call_timeout: float | None) -> None:
        super().__init__(None, pool_size=1, call_timeout=call_timeout)
        self.address = address
        self.alias = address.alias

    def fetch(self, query: Query[Row], within: float | None = None) -> list[Row]:  # noqa: ARG002
        """Run a query, in the surrounding `atomic` if there is one. Django's connection has the timeouts of DATABASES,
        and no other."""
        caller = caller_of(self.alias)
        with explaining(caller, lambda: self.dsn):
            if to_record(query) is None:
                return caller.run(query)
            with transaction.atomic(using=self.alias):
                return run_recorded(caller, query)

    async def afetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        return await sync_to_async(self.fetch)(query, within)

    def fetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        caller = caller_of(self.alias)
        with explaining(caller, lambda: self.dsn), transaction.atomic(using=self.alias):
            return [row for query in queries for row in caller.run(query)]

    async def afetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        return await sync_to_async(self.fetch_each)(list(queries))
