"""Write a database as one URL that psycopg, asyncpg and SQLAlchemy read alike, from any connection string.

They agree on user, password and database in their usual places, percent-encoded. They do not agree on hosts: SQLAlchemy
takes at most one before the path and does not decode it, and none of them takes a socket there. So a socket, or a list
of hosts, becomes a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_IN_PLACE = ("user", "password", "dbname", "host", "port")
_PLAIN_HOST = re.compile(r"[\w.-]+")
_DEFAULT_PORT = "5432"


def to_url(parameters: Mapping[str, object]) -> str:
    """Return the URL for the parameters that `conninfo_to_dict` returns. A parameter that only libpq knows is kept,
    although asyncpg takes it for a server setting."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    if "host" not in given and "hostaddr" in given:
        given["host"] = given.pop("hostaddr")  # only libpq knows the difference
    place, others = _place(given.get("host", ""), given.get("port", ""))
    others += [(name, value) for name, value in given.items() if name not in _IN_PLACE]
    database = f"/{quote(given['dbname'], safe='')}" if "dbname" in given else ""
    query = "&".join(f"{name}={quote(value, safe='/,')}" for name, value in others)
    user, password = (quote(given.get(name, ""), safe="") for name in ("user", "password"))
    credentials = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return f"postgresql://{credentials}{place}{database}" + (f"?{query}" if query else "")


def _place(host: str, port: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the host part before the path, and the hosts and ports that become parameters."""
    hosts, ports = host.split(","), port.split(",")
    if port and len(hosts) > 1:
        # libpq applies one port to all hosts, and reads an empty port as the default.
        ports = [one or _DEFAULT_PORT for one in (ports * len(hosts) if len(ports) == 1 else ports)]
    if len(hosts) == 1 and _PLAIN_HOST.fullmatch(host):
        return f"{host}:{port}" if port else host, []
    if any(_is_ipv6(one) for one in hosts) and len(ports) in (1, len(hosts)):
        # IPv6 needs brackets, or asyncpg takes a colon for that of a port. Brackets are valid only in this place.
        named = [
            _bracketed(one) + (f":{own}" if own else "") for one, own in zip(hosts, ports * len(hosts), strict=False)
        ]
        return ",".join(named), []
    return "", [(name, value) for name, value in (("host", host), ("port", ",".join(ports))) if value]


def _is_ipv6(host: str) -> bool:
    return ":" in host and not host.startswith(("/", "@"))


def _bracketed(host: str) -> str:
    return f"[{quote(host, safe=':')}]" if _is_ipv6(host) else quote(host, safe="")
