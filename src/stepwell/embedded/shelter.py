"""The shelter: a directory of root's for what the server's user cannot reach where it is.

Only root needs it, because only root runs the server as another user. The alternative, opening up the
directories on the way to the files, is not ours to take.
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

from stepwell.embedded.keeper import hold, release
from stepwell.errors import EmbeddedError

SHELTER = Path("/var/lib/stepwell")


def new_home(path: Path) -> Path:
    """An empty directory for the server whose path the server's user cannot reach."""
    name = f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}-{secrets.token_hex(4)}"
    with _explained(str(path)):
        return _passable(_passable(_passable(SHELTER) / "data") / name)


def binaries(bin_dir: Path) -> Path:
    """A copy of a Postgres installation, made once: one for all venvs that have the same."""
    prefix, package = bin_dir.parent, bin_dir.parent.parent
    # initdb names its libraries by a hash of theirs, so these two files stand for the whole.
    key = hashlib.sha256((bin_dir / "postgres").read_bytes() + (bin_dir / "initdb").read_bytes())
    name = f"{prefix.name}-{key.hexdigest()[:16]}"
    # They look for their libraries relative to themselves, so they are copied as they stand in the wheel.
    copied = Path(package.name) / prefix.name
    libraries = [Path(f"{package.name}.libs"), Path(package.name) / ".dylibs"]
    if not (SHELTER / name).exists():
        with _explained(str(bin_dir)):
            _copy(package.parent, [copied, *libraries], SHELTER / name)
    return SHELTER / name / copied / bin_dir.name


def _copy(source: Path, parts: list[Path], target: Path) -> None:
    _passable(SHELTER)
    lock_file = SHELTER / "copy.lock"
    lock_file.touch(0o600)
    lock = hold(lock_file)
    try:
        half = target.with_name(f"{target.name}.half")
        shutil.rmtree(half, ignore_errors=True)  # of a copy that was killed
        if target.exists():
            return
        for part in parts:
            if (source / part).is_dir():
                shutil.copytree(
                    source / part, half / part, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
                )
        _open_to_readers(half)
        # A name that survives a power failure must not survive with empty files in it.
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
    """A directory of root's own that everybody may pass, nobody else list or write."""
    try:
        directory.mkdir(parents=True)
        directory.chmod(0o711)
    except FileExistsError:
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise EmbeddedError(
                f"{directory} is not a directory of root's alone: move it away and start again"
            ) from None
    return directory


@contextmanager
def _explained(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedError(
            f"Postgres does not run as root, the user it runs as instead cannot reach {what}, and nothing "
            f"can be kept in {SHELTER} for it ({error}): make that writable, or run as a user other than root"
        ) from error
