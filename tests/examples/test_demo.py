"""The demo runs, ends by itself and leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"


@pytest.mark.timeout(300)  # it starts many processes, twice
def test_the_demo_tells_its_stories_and_serves_the_dashboard_on_the_same_data(open_dir: Path) -> None:
    run = subprocess.run(
        [sys.executable, DEMO, "--seconds", "1"], cwd=open_dir, capture_output=True, text=True, timeout=100, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    at = 0
    for said in (
        r"3,000 jobs were enqueued in .* jobs/s",
        r"two workers finished them in .* jobs/s",
        r"reserve: 2 jars",
        r"charge: ConnectionError: the bank did not answer",
        r"charge: 1980",
        r"waits for 'picked up'",
        r"the checkout succeeded",
        r"kill -9 \d+: this worker held [1-9]\d* jobs",
        r"[1-9]\d* jobs of the dead worker were rescued",
        r"60 parcels: 60 delivered, 0 lost, 0 delivered twice",
        r"make demo WEB=1",
    ):
        found = re.search(said, run.stdout[at:])
        assert found, f"{said!r} is missing, or out of order, in {run.stdout}"
        at += found.end()

    _serves_the_same_data_until_control_c(open_dir)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_ends_if_both_workers_die_and_begins_anew_after_control_c(open_dir: Path) -> None:
    log = open_dir / "log"
    with _started(log, "--seconds", "20") as demo:
        until(lambda: "60,000 jobs were enqueued" in log.read_text() or demo.poll() is not None, 60)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    with _started(log, "--seconds", "1") as demo:
        until(lambda: "takes them over" in log.read_text() or demo.poll() is not None, 120)
        said = log.read_text()
        assert re.search(r"cancelled [1-9]\d* jobs of a demo that was interrupted", said)
        other = re.search(r"worker (\d+) takes them over", said)
        assert other, said
        os.kill(int(other[1]), signal.SIGKILL)
        assert demo.wait(60) == 1
    assert "both workers of the demo have ended" in log.read_text()
    assert "Traceback" not in log.read_text()


@contextmanager
def _started(log: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    with log.open("w") as out:
        demo = subprocess.Popen([sys.executable, "-u", DEMO, *options], cwd=log.parent, stdout=out, stderr=out)
    try:
        yield demo
    finally:
        demo.kill()
        demo.wait()


def _serves_the_same_data_until_control_c(open_dir: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open_dir / "log"
    with log.open("w") as out:
        demo = subprocess.Popen(
            [sys.executable, DEMO, "--seconds", "0", "--web", str(port)], cwd=open_dir, stdout=out, stderr=out
        )
    try:
        until(lambda: "end it with Ctrl-C" in log.read_text() or demo.poll() is not None, 60)
        assert demo.poll() is None, log.read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs?state=succeeded") as answer:
            assert "deliver" in answer.read().decode()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
    finally:
        demo.kill()
        demo.wait()
    assert "Traceback" not in log.read_text()
