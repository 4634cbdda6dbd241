"""A private Postgres for development and tests: no server to install, no Docker.

The binaries come from a wheel. `EmbeddedPostgres` (in `postgres`) starts the server of a path, or joins the one that
runs; the server stops when its last user leaves or dies. Everything else follows from three decisions.

*File locks say who is alive, not pids.* The kernel drops a lock when its holder dies, however it dies. `lifetime` lists
the four locks. It is also the program of the keeper, a process that stops a server which nobody uses.

*Nobody else gets in.* There is no TCP, only its owner can reach the socket, and Postgres checks the peer as well.

*Nothing that existed before is changed.* Postgres refuses to run as root, so root runs it as a system account made for
it (`server_account`). Files that this account cannot reach at their path go to `system_dir` instead; no directory is
opened up for it. `paths` says where each file is, `server` creates and starts the database.
"""

from typing import TYPE_CHECKING

from stepwell.embedded.url import embedded_path, is_embedded

if TYPE_CHECKING:
    from stepwell.embedded.postgres import EmbeddedPostgres, wheel_bin_dir

__all__ = ["EmbeddedPostgres", "embedded_path", "is_embedded", "wheel_bin_dir"]


def __getattr__(name: str) -> object:
    """Load the server when it is first used: most programs have a Postgres elsewhere."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stepwell.embedded import postgres

    return getattr(postgres, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
