"""`stepwell web`: it serves this machine, and others only with a login."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from typing import Any

import psycopg
import pytest
from cli.commands import Run, Start
from waiting import until


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_dashboard_is_served_on_this_machine_until_it_is_stopped(start: Start) -> None:
    port = free_port()
    process = start("web", "shop:app", "--port", str(port), "--rights", "viewer", "--log-level", "warning")

    def page() -> str | None:
        assert process.poll() is None, process.communicate()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/tasks") as answer:
                return answer.read().decode()
        except OSError:
            return None

    assert "Enqueue" not in (until(page) or "")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)


def test_a_database_that_cannot_be_used_is_named_at_the_start(start: Start, conn: psycopg.Connection[Any]) -> None:
    conn.execute("drop schema stepwell cascade")
    process = start("web", "shop:app", "--port", str(free_port()), "--log-level", "warning")
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "the dashboard has no data yet" in line
    assert 'run "stepwell migrate"' in line
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)


def test_it_is_served_behind_a_proxy(start: Start) -> None:
    port = free_port()
    options = ("--token", "secret", "--trusted-proxy", "--title", "Shop jobs", "--log-level", "warning")
    process = start("web", "shop:app", "--port", str(port), *options)
    # As nginx asks: under the name of the upstream, without the prefix.
    forwarded = {
        "Authorization": "Bearer secret",
        "X-Forwarded-Prefix": "/desk",
        "X-Forwarded-Host": "shop.example",
        "Origin": "https://shop.example",
        "Accept": "application/json, text/html",
    }

    def ask(path: str, body: bytes | None = None) -> str | None:
        assert process.poll() is None, process.communicate()
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, forwarded)
            with urllib.request.urlopen(request) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except OSError:
            return None

    page = until(lambda: ask("/queues")) or ""
    assert 'href="/desk/jobs"' in page
    assert "Shop jobs" in page
    forwarded["Accept"] = "application/json"
    assert '"ok": true' in (ask("/queues/pause", b"queue=mail") or "")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("web", "shop:app", "--port", str(port))
        said = "".join(process.communicate(timeout=60))
    assert process.returncode == 1
    assert f"could not be served on 127.0.0.1:{port}: the port is taken. Give another with --port" in said


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("192.0.2.1", "this machine does not have this address. Give another with --host"),
        ("no-such-host.invalid", "this name has no address. Give another with --host"),
    ],
)
def test_a_host_that_is_not_this_machine_is_named(start: Start, host: str, why: str) -> None:
    process = start("web", "shop:app", "--host", host, "--token", "secret", "--port", str(free_port()))
    said = "".join(process.communicate(timeout=60))
    assert process.returncode == 1
    assert f"could not be served on {host}:" in said
    assert why in said


def test_another_host_needs_a_login(run_without_database: Run) -> None:
    ran = run_without_database("web", "shop:app", "--host", "0.0.0.0")
    assert ran.code == 1
    assert "0.0.0.0" in ran.err
    assert "--token" in ran.err


def test_wrong_options_are_named(run_without_database: Run) -> None:
    for options in (["--rights", "king"], ["--user", "ada"], ["--token", "x", "--user", "a:b"]):
        ran = run_without_database("web", "shop:app", *options)
        assert ran.code == 2
        assert options[0] in ran.err
