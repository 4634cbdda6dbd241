"""Engines of SQLAlchemy for the database of an app, and a table to write to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from stepwell import App


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    paid: Mapped[bool] = mapped_column(default=False)


def url(app: App, driver: str) -> str:
    return app.url.replace("postgresql://", f"postgresql+{driver}://", 1)


def engine(app: App, driver: str = "psycopg", **options: Any) -> Engine:
    # Without a pool, no connection outlives its test.
    return create_engine(url(app, driver), poolclass=NullPool, **options)


def async_engine(app: App, driver: str = "psycopg", **options: Any) -> AsyncEngine:
    return create_async_engine(url(app, driver), poolclass=NullPool, **options)
