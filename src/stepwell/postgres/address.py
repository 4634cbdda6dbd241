"""Where the database is: from a URL, the environment or an embedded Postgres to a connection string."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from stepwell.embedded import embedded_path, is_embedded
from stepwell.errors import ConfigError, EmbeddedError
from stepwell.postgres.url import to_url

if TYPE_CHECKING:
    from stepwell.embedded import EmbeddedPostgres

ENVIRONMENT = "STEPWELL_DATABASE_URL"
_ENCODE = (
    "in a password, percent-encode characters that mean something in a URL (@ is %40, / is %2F, # is %23, % is %25), "
    "as urllib.parse.quote(password, safe='') does"
)


class Address:
    """The address of one database, resolved when it is first needed. Safe to use from any thread. Unless it may
    `create` one, an embedded Postgres must already exist."""

    migrate_command = "stepwell migrate"
    """The command that creates or upgrades the schema there."""

    def __init__(self, url: str | None, *, create: bool = True) -> None:
        self.given = url
        """The URL that the app names; None: the environment names it."""
        self._create = create
        self._lock = threading.RLock()
        self._dsn: str | None = None
        self._parameters: dict[str, Any] = {}
        self.embedded: EmbeddedPostgres | None = None
        """The embedded Postgres, once it was started."""

    @property
    def dsn(self) -> str:
        """The connection string. Starts the embedded Postgres if that is the database."""
        with self._lock:
            if self._dsn is None:
                self._dsn = self._resolve()
            return self._dsn

    @property
    def url(self) -> str:
        """The same database as a URL that other libraries read, without the settings that Stepwell adds."""
        with self._lock:
            _ = self.dsn
            return to_url(self._parameters)

    @property
    def may_start_a_server(self) -> bool:
        """Whether resolving the address may start an embedded Postgres, which takes a while."""
        return is_embedded(self.given or os.environ.get(ENVIRONMENT) or "")

    def revive(self) -> None:
        """Start the embedded Postgres again if it has crashed. Does nothing for any other database."""
        with self._lock:
            if self.embedded is not None:
                with contextlib.suppress(EmbeddedError):
                    self.embedded.start()

    def adopt(self, other: Address) -> None:
        """Look after the embedded Postgres that another address started, and whose URL this one was given."""
        with self._lock:
            self.embedded = self.embedded or other.embedded

    def leave(self) -> None:
        """Stop using the embedded Postgres; the next use starts it again."""
        with self._lock:
            if self.embedded is not None:
                self.embedded.stop()
                self.embedded = None
                self._dsn = None

    def forget_after_fork(self) -> None:
        """Replace the lock: in the parent, another thread may have held it at the fork."""
        self._lock = threading.RLock()

    def _resolve(self) -> str:
        url = self.given or os.environ.get(ENVIRONMENT)
        if not url:
            from stepwell.embedded import EmbeddedPostgres

            exists = ", and has one there already" if EmbeddedPostgres().exists else ""
            raise ConfigError(
                'no database is configured. Give one in one of three ways: App("postgresql://user@host/database"); the '
                f'environment variable {ENVIRONMENT}, or --database on the command line; or App("embedded"), '
                f"which keeps a Postgres of its own in ./.stepwell, for development{exists}"
            )
        dsn = self._start_embedded(url) if is_embedded(url) else url
        if not _is_encoded(dsn):
            raise ConfigError(f"the database URL has an @ too many, or a / before the @: {_ENCODE}")
        try:
            parameters = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            raise _not_understood(url) from None
        if not all(port.isdecimal() for port in str(parameters.get("port") or "0").split(",") if port):
            raise ConfigError(f"the port of the database is not a number: correct the URL; {_ENCODE}")
        self._parameters = parameters
        several = "," in str(parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST", ""))
        # With these a peer that vanished silently is noticed in half a minute, not in TCP's quarter of an hour.
        defaults = {
            "application_name": "stepwell",
            "connect_timeout": "3" if several else "10",
            "keepalives_idle": "15",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            "tcp_user_timeout": "30000",
        }
        if several and "PGTARGETSESSIONATTRS" not in os.environ:
            # Only one of several servers takes writes, and which one may change.
            defaults["target_session_attrs"] = "read-write"
        return make_conninfo(dsn, **{key: value for key, value in defaults.items() if key not in parameters})

    def _start_embedded(self, url: str) -> str:
        from stepwell.embedded import EmbeddedPostgres

        embedded = EmbeddedPostgres(embedded_path(url))
        if not self._create and not embedded.exists:
            raise EmbeddedError(
                f"there is no embedded Postgres in {embedded.path}: go to the directory of the program that uses "
                f'it, name its path, as in "embedded:PATH", or make one here with "stepwell --database {url} migrate"'
            )
        self.embedded = embedded
        return embedded.start()


def _is_encoded(url: str) -> bool:
    """Whether a URL has no @ or / in its password that should be encoded. Otherwise Postgres would take the rest of the
    password for the host, the port or the database, and every message would show it."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return True
    place, _, path = rest.partition("/")
    path = path.partition("?")[0]
    if "@" not in place:
        return "@" not in path
    # The name of a database may have an @. Behind that of a password comes a host, with a port or a database.
    return place.count("@") == 1 and not any(mark in path.partition("@")[2] for mark in "/:")


def _not_understood(url: str) -> ConfigError:
    if get_close_matches(url.partition(":")[0], ["embedded"]):
        return ConfigError(f'{url!r} names no database: did you mean "embedded"?')
    # The text may hold a password, so it is shown only if it is a single word.
    shown = f"{url!r}" if re.fullmatch(r"[\w-]+", url) else "the database URL"
    return ConfigError(
        f'{shown} is not a URL that Postgres understands: write it as "postgresql://user:password@host/'
        'database" (no "+driver" after "postgresql"), as "host=... dbname=...", or as "embedded"'
        f"{f'; {_ENCODE}' if '@' in url else ''}"
    )
