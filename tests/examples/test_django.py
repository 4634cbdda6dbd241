"""The Django site of the examples: migrated, served over HTTP, with a supervised worker, all as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from waiting import until

ROOT = Path(__file__).parent.parent.parent
MANAGE = ROOT / "examples" / "django_site" / "manage.py"


def manage(*arguments: str) -> list[str]:
    return [sys.executable, str(MANAGE), *arguments]


@contextmanager
def running(log: Path, environment: dict[str, str], *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    # From a directory that is not the site's own: its processes must find it all the same.
    with log.open("wb") as written:
        process = subprocess.Popen(manage(*arguments), env=environment, cwd=log.parent, stdout=written, stderr=written)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) in (0, -signal.SIGTERM), log.read_text()


def call(url: str, **form: str) -> Any:
    try:
        with urlopen(url, data=urlencode(form).encode() if form else None, timeout=10) as answer:
            return json.load(answer)
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return None  # the server has not started yet
        raise


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_an_order_over_http_has_its_receipt_sent(empty_dsn: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": empty_dsn,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    migrated = subprocess.run(manage("migrate"), env=environment, capture_output=True, text=True, check=False)
    assert "Applying stepwell.0010_stacks... OK" in migrated.stdout, migrated.stderr
    at, worker_log = f"127.0.0.1:{free_port()}", tmp_path / "worker"
    with ExitStack() as stack:
        stack.enter_context(running(tmp_path / "server", environment, "runserver", "--noreload", at))
        made = until(lambda: call(f"http://{at}/orders", customer="ada@example.org"), within=60)
        order = f"http://{at}/orders/{made['id']}"
        assert call(order) == {"customer": "ada@example.org", "sent": False, "receipt": "READY"}
        stack.enter_context(running(worker_log, environment, "stepwell", "worker", "--processes=1"))
        until(lambda: call(order)["receipt"] == "SUCCESSFUL", within=60)
        assert call(order) == {"customer": "ada@example.org", "sent": True, "receipt": "SUCCESSFUL"}
    assert "To: ada@example.org" in worker_log.read_text()
