"""Serve a dashboard by itself, as `stepwell web` does."""

from __future__ import annotations

import uvicorn

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.web.access import Auth, Right
from stepwell.web.dashboard import Dashboard
from stepwell.web.origin import is_loopback_host

# Streams of live pages end by themselves, but not that soon.
_GRACE = 2


def make_server(
    app: App,
    *,
    host: str,
    port: int,
    auth: Auth,
    rights: frozenset[Right],
    redact: list[str],
    trusted_proxy: bool,
    title: str,
    log_level: str,
) -> uvicorn.Server:
    """Return a server for the dashboard of this app. Without auth it serves this machine only."""
    if auth is None and not is_loopback_host(host):
        raise ConfigError(
            f"the dashboard would be open to everybody who reaches {host}: give a token with --token, or a name and a "
            "password with --user, or serve it on --host 127.0.0.1"
        )
    dashboard = Dashboard(app, auth=auth, rights=rights, redact=redact, trusted_proxy=trusted_proxy, title=title)
    config = uvicorn.Config(
        dashboard, host=host, port=port, log_level=log_level, timeout_graceful_shutdown=_GRACE, server_header=False
    )
    return uvicorn.Server(config)
