"""A real Postgres of one's own, for the first hour with Stepwell and for tests: no server to install, no
docker.

The binaries come out of a wheel. Who names a path gets the server of that path, started if need be; the last
one who leaves, or is killed, takes it down. Everything else here follows from three decisions.

*Locks say who is alive, never pids.* The kernel drops a file lock when its holder dies, however it dies, and
gives it to nobody else; `keeper` lists the four we use, and is the process that stops a server nobody uses.

*Nobody else gets in.* No TCP, a socket only its owner can reach, and peer authentication on top of that.

*Nothing that was there before is changed.* Postgres refuses to run as root, so root runs it as a system account
that is made for it (`account`); where that user cannot go, the files go to a place it can reach (`shelter`), and no
directory is opened up for it.
"""

from stepwell.embedded.postgres import EmbeddedPostgres
from stepwell.embedded.url import embedded_path, is_embedded
from stepwell.embedded.wheel import wheel_bin_dir

__all__ = ["EmbeddedPostgres", "embedded_path", "is_embedded", "wheel_bin_dir"]
