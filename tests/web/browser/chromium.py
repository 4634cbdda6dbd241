"""Find a Chromium for the browser tests, or install one. Run as a program, it does so before the tests.

It looks for a browser of the system, then for the one of playwright. If there is none, it installs Debian's as root, or
has playwright download its own. STEPWELL_TEST_CHROMIUM names another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MACS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
MISSING = (
    "there is no browser for the tests of the dashboard's pages: run `make browser`, install Chromium yourself, or "
    "name one with STEPWELL_TEST_CHROMIUM=/path/to/chromium"
)
# Nothing of it may wait for a display, a graphics card, or the internet. Root cannot have the sandbox.
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
]


def find() -> str | None:
    """Return the path of a Chromium, or None."""
    named = os.environ.get("STEPWELL_TEST_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, _NAMES)), None) or next(filter(_is_there, _MACS), None) or _playwrights()


def _playwrights() -> str | None:
    """The path of playwright's own Chromium, if it was downloaded."""
    ask = "from playwright.sync_api import sync_playwright as run\nwith run() as p: print(p.chromium.executable_path)"
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    path = asked.stdout.strip()
    return path if asked.returncode == 0 and _is_there(path) else None


def _is_there(path: str) -> bool:
    return bool(path) and Path(path).is_file()


def install() -> str | None:
    """Install a Chromium by the first way that works, and return its path."""
    ways = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        ways.insert(0, ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"])
        ways.insert(1, ["sh", "-c", "apt-get update && apt-get install --yes --no-install-recommends chromium"])
    for way in ways:
        print("installing a browser for tests:", " ".join(way), flush=True)
        ran = subprocess.run(way, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if ran.returncode == 0 and (found := find()):
            return found
        print("\n".join((ran.stdout + ran.stderr).splitlines()[-3:]))
    return None


if __name__ == "__main__":
    path = find() or install()
    if path is None and os.environ.get("CI") == "true":
        sys.exit(MISSING)
    print(f"browser for tests: {path}" if path else f"{MISSING}\nUntil then, these tests are skipped.")
