"""Where a request comes from: acts only from our own pages, and an open dashboard only to this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request

from stepwell.web.access import is_by_token

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def comes_from_here(request: Request, *, trusted_proxy: bool) -> bool:
    """Whether an act was asked for by one of our own pages, as the browser says in Sec-Fetch-Site and Origin. A program
    that sends neither must send a bearer token, which no other site can make a browser send."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is not None:
        parts = _parts(origin)
        return parts is not None and parts.netloc.lower() in _hosts(request, trusted_proxy=trusted_proxy)
    return site is not None or is_by_token(request)


def has_readable_host(request: Request) -> bool:
    """Whether the header Host is one that a URL can have. `http://[` is none."""
    return _parts(f"//{request.headers.get('host', '')}") is not None


def _parts(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _hosts(request: Request, *, trusted_proxy: bool) -> set[str]:
    hosts = {request.headers.get("host", "").lower()}
    if trusted_proxy:
        hosts.add(request.headers.get("x-forwarded-host", "").split(",")[0].strip().lower())
    return hosts - {""}


def is_local(request: Request) -> bool:
    """Whether both ends are on this machine. The name is checked, too: another site may have its own name resolve to
    this machine, and a proxy here may serve the whole world."""
    client = request.client
    if client is None or any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip")):
        return False
    host = _parts(f"//{request.headers.get('host', '')}")
    return _is_loopback(client.host) and host is not None and host.hostname in _LOCAL_NAMES


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    """Whether a server that is bound to this host is reached from this machine only."""
    return host == "localhost" or _is_loopback(host)
