"""A database as a URL: what libpq, asyncpg and SQLAlchemy read from it is what was meant."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import make_url

from stepwell import App, ConfigError
from stepwell.postgres.address import Address
from stepwell.postgres.url import to_url

HOSTILE = "p:a/s?s#w%o@r[d]&=+ ,'\"\\\n\t\x01ä\U0001f40c%40"
text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=30)


URLS = {
    "postgresql://ada:x@db.example.org:6432/shop": "postgresql://ada:x@db.example.org:6432/shop",
    "postgres://db/shop": "postgresql://db/shop",
    "host=db port=5433 dbname=shop user=ada password=x": "postgresql://ada:x@db:5433/shop",
    "dbname=shop": "postgresql:///shop",
    "user=ada": "postgresql://ada@",
    "password=x host=db": "postgresql://:x@db",
    "port=5433": "postgresql://?port=5433",
    "host=/run/pg dbname=shop user=ada": "postgresql://ada@/shop?host=/run/pg",
    "postgresql://postgres@/postgres?host=/a%20b&port=5432": "postgresql://postgres@/postgres?host=/a%20b&port=5432",
    "host=/run/a:b": "postgresql://?host=/run/a%3Ab",
    "host=@abstract": "postgresql://?host=%40abstract",
    "host=::1 port=5433 dbname=shop": "postgresql://[::1]:5433/shop",
    "postgresql://[2001:db8::1]/shop": "postgresql://[2001:db8::1]/shop",
    "host=fe80::1%eth0": "postgresql://[fe80::1%25eth0]",
    "host=db hostaddr=10.0.0.1": "postgresql://db?hostaddr=10.0.0.1",
    "postgresql://a:1,b:2/shop": "postgresql:///shop?host=a,b&port=1,2",
    "host=a,b": "postgresql://?host=a,b",
    "host=a,/run/pg port=1,2": "postgresql://?host=a,/run/pg&port=1,2",
    "host=a,::1 port=1,2": "postgresql://a:1,[::1]:2",
    "host=db options='-c work_mem=7MB'": "postgresql://db?options=-c%20work_mem%3D7MB",
    "service=shop sslmode=require": "postgresql://?service=shop&sslmode=require",
    "dbname='a/b?c'": "postgresql:///a%2Fb%3Fc",
}
PLAINER = {
    "hostaddr=10.0.0.1 dbname=shop": "postgresql://10.0.0.1/shop",
    "host=a,b port=6432 dbname=shop": "postgresql:///shop?host=a,b&port=6432,6432",
    "host=a,b,c port=1,,3": "postgresql://?host=a,b,c&port=1,5432,3",
}
"""What only libpq reads, said otherwise."""


@pytest.mark.parametrize(("dsn", "url"), (URLS | PLAINER).items())
def test_any_connection_string_becomes_a_url_that_means_the_same(dsn: str, url: str) -> None:
    assert to_url(conninfo_to_dict(dsn)) == url
    assert to_url(conninfo_to_dict(url)) == url
    assert dsn in PLAINER or conninfo_to_dict(url) == conninfo_to_dict(dsn)


@given(user=text, password=text, dbname=text)
def test_hostile_names_and_passwords_come_through(user: str, password: str, dbname: str) -> None:
    parts = {"user": user, "password": password, "dbname": dbname, "host": "db", "port": "5433"}
    url = to_url(parts)
    assert url.isascii()
    assert conninfo_to_dict(url) == parts
    read = make_url(url)
    assert (read.username, read.password, read.host, read.port) == (user, password, "db", 5433)
    # As asyncpg reads it.
    split = urlsplit(url)
    assert split.netloc.count("@") == 1
    assert [unquote(part) for part in split.netloc.partition("@")[0].split(":")] == [user, password]
    assert unquote(split.path.removeprefix("/")) == dbname


def test_hostile_parameters_come_through() -> None:
    parts: dict[str, Any] = {"host": f"/tmp/{HOSTILE.replace(',', '')}", "application_name": HOSTILE}
    url = to_url(parts)
    assert conninfo_to_dict(url) == parts
    assert dict(make_url(url).query) == parts


def test_empty_parameters_are_left_out() -> None:
    assert to_url({"host": "db", "password": "", "sslrootcert": "", "port": None}) == "postgresql://db"
    assert to_url({}) == "postgresql://"


@pytest.mark.parametrize(
    "password", ["qx@zv", "qx@zv/jk", "qx/zv@jk", "qx/zv", "qx?zv/jk", "qx/zv?jk", "@qx", "qx@", "/qx", "qx%zv"]
)
def test_no_part_of_a_password_that_is_not_encoded_is_shown(password: str) -> None:
    with pytest.raises(ConfigError, match="percent-encode characters") as raised:
        _ = App(f"postgresql://ada:{password}@127.0.0.1:1/shop").dsn
    assert raised.value.__cause__ is None
    assert not any(part in str(raised.value) for part in re.findall(r"\w+", password))


@pytest.mark.parametrize("password", ["p#w", "p?w", "p:w", "p%40%2Fw"])
def test_a_password_that_postgres_reads_is_not_refused(password: str) -> None:
    given = Address(f"postgresql://ada:{password}@127.0.0.1:1/shop@home?application_name=a@b")
    assert conninfo_to_dict(given.dsn)["password"] == unquote(password)
    assert Address("postgresql:///shop?user=ada@home").dsn
    assert Address("postgresql://a:1,[::1],b/shop").dsn


def test_a_port_that_is_no_number_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^the port of the database is not a number: correct the URL"):
        _ = Address("postgresql://ada:secret/shop").dsn
