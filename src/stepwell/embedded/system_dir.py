"""/var/lib/stepwell: where root keeps copies and data that the server's user cannot reach at their own path.

Only root needs it, because only root runs the server as another user. Opening up the directories above the files is
not an option: they are not ours.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stepwell.embedded.lifetime import hold, release
from stepwell.errors import EmbeddedError

SYSTEM_DIR = Path("/var/lib/stepwell")


def new_home(path: Path) -> Path:
    """Create a home for a server whose path the server's user cannot reach."""
    name = f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}-{secrets.token_hex(4)}"
    with _explained(str(path)):
        return _passable(_passable(_passable(SYSTEM_DIR) / "data") / name)


def binaries(bin_dir: Path) -> Path:
    """A copy of a Postgres installation, made once for all venvs that have the same one."""
    prefix, package = bin_dir.parent, bin_dir.parent.parent
    # initdb names its libraries by their hashes, so the hash of these two files identifies the installation.
    key = hashlib.sha256((bin_dir / "postgres").read_bytes() + (bin_dir / "initdb").read_bytes())
    name = f"{prefix.name}-{key.hexdigest()[:16]}"
    # The binaries find their libraries by relative paths, so the copy has the layout of the wheel.
    copied = Path(package.name) / prefix.name
    libraries = [Path(f"{package.name}.libs"), Path(package.name) / ".dylibs"]
    if not (SYSTEM_DIR / name).exists():
        with _explained(str(bin_dir)):
            _copy(package.parent, [copied, *libraries], SYSTEM_DIR / name)
    return SYSTEM_DIR / name / copied / bin_dir.name


def _copy(source: Path, parts: list[Path], target: Path) -> None:
    _passable(SYSTEM_DIR)
    lock_file = SYSTEM_DIR / "copy.lock"
    lock_file.touch(0o600)
    lock = hold(lock_file)
    try:
        half = target.with_name(f"{target.name}.half")
        shutil.rmtree(half, ignore_errors=True)  # left by a copy that was killed
        if target.exists():
            return
        for part in parts:
            if (source / part).is_dir():
                shutil.copytree(
                    source / part, half / part, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
                )
        _open_to_readers(half)
        # After a power failure the final name must not exist with empty files in it.
        os.sync()
        half.rename(target)
    finally:
        release(lock)


def _open_to_readers(tree: Path) -> None:
    for directory, _, files in os.walk(tree):
        Path(directory).chmod(0o755)
        for file in (Path(directory) / name for name in files):
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def _passable(directory: Path) -> Path:
    """Create a directory that only root can list or write, and everybody can pass through."""
    try:
        directory.mkdir(parents=True)
        directory.chmod(0o711)
    except FileExistsError:
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise EmbeddedError(
                f"{directory} is not a directory that only root can write to: move it away and start again"
            ) from None
    return directory


@contextmanager
def _explained(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedError(
            f"Postgres does not run as root, the user it runs as instead cannot reach {what}, and {SYSTEM_DIR} "
            f"cannot be written to ({error}): make it writable, or run as a user other than root"
        ) from error
