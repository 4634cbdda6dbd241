"""The user that the server runs as: the current one or, because Postgres refuses root, a system account of its own.

Root creates the account when it is first needed. If it cannot, because the tools are missing or /etc is read-only, the
server runs as `nobody`, whose other processes can then read the data; the log says so. An existing database stays with
the account that owns it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

from stepwell.embedded.user import User, current_user
from stepwell.errors import EmbeddedError
from stepwell.telemetry.bus import log
from stepwell.telemetry.embedded import EmbeddedAsNobody

ACCOUNT = "stepwell-postgres"
_STAND_IN = "nobody"
_COMMENT = "Postgres of stepwell"
# PATH may lack the directories of the administration tools.
_TOOLS = "/usr/sbin:/sbin:/usr/bin:/bin"
# The exit codes of useradd(8) that mean "can't update password file" and "can't update group file": most likely because
# somebody else changes accounts and has locked them.
_LOCKED = {"useradd": (1, 10)}
_PATIENCE = 5.0
_LOCK = Path("/run/stepwell-account.lock")

_said: set[str] = set()


def server_user(data: Path, *, account: str = ACCOUNT, stand_in: str = _STAND_IN, tools: str = _TOOLS) -> User:
    user = current_user()
    if user.uid != 0:
        return user
    owner = _owner(data)
    chosen = owner or own_account(account, tools=tools) or _named(stand_in)
    if chosen is None:
        raise EmbeddedError(
            f"Postgres does not run as root, and this machine has no user {account!r} or {stand_in!r} to run it as: "
            "create one, or run as a user other than root"
        )
    if chosen.name == stand_in and str(data) not in _said:
        _said.add(str(data))
        log(EmbeddedAsNobody(str(data), stand_in, account, existing=owner is not None))
    return chosen


def own_account(name: str = ACCOUNT, *, tools: str = _TOOLS) -> User | None:
    """The account of that name, created if needed; None if it cannot be created or nothing can run as it."""
    found = _named(name)
    if found is None and os.access("/etc", os.W_OK):
        _make(name, tools)
        found = _named(name)
    return found if found is not None and _runs(found) else None


def _make(name: str, tools: str) -> None:
    """Create the account, unless another process has done so meanwhile. A lock serialises this: of two concurrent
    `useradd` the second changes the account's id, and files already given to the first id would belong to nobody."""
    try:
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end = time.monotonic() + _PATIENCE
        for command in _commands(name, tools):
            while _named(name) is None:
                made = subprocess.run(  # noqa: S603
                    command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/", env={"PATH": tools}
                )
                if made.returncode not in _LOCKED.get(Path(command[0]).name, ()) or time.monotonic() > end:
                    break
                time.sleep(0.05)
    finally:
        os.close(lock)


def _commands(name: str, tools: str) -> list[list[str]]:
    nologin = shutil.which("nologin", path=tools) or "/bin/false"
    if (useradd := shutil.which("useradd", path=tools)) is not None:
        options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", nologin]
        return [[useradd, *options, "--comment", _COMMENT, name]]
    adduser, addgroup = shutil.which("adduser", path=tools), shutil.which("addgroup", path=tools)
    if adduser and addgroup and Path(adduser).resolve().name == "busybox":
        options = ["-S", "-D", "-H", "-h", "/nonexistent", "-s", nologin, "-g", _COMMENT, "-G", name]
        return [[addgroup, "-S", name], [adduser, *options, name]]
    return []


def _owner(data: Path) -> User | None:
    try:
        uid = data.lstat().st_uid
    except FileNotFoundError:
        return None
    if uid == 0:
        return None  # no database that we created: Postgres will refuse it
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"{data} belongs to user id {uid}, which has no name on this machine: add it to /etc/passwd, or choose "
            "another path"
        ) from None
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _named(name: str) -> User | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    # On macOS the id of nobody is -2, and `subprocess` takes no negative ids.
    return User(name, entry.pw_uid & 0xFFFFFFFF, entry.pw_gid & 0xFFFFFFFF)


def _runs(user: User) -> bool:
    """Whether a program can run as this user: in a container, the id may not be mapped."""
    try:
        return user.uid != 0 and user.run(["/bin/sh", "-c", ":"]).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
