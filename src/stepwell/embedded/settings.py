"""The configuration of the server: its settings, and who may connect."""

from __future__ import annotations

from pathlib import Path

from stepwell.embedded.user import User

_CONF = """\
# Written by Stepwell at each start. To change a setting, use "alter system".
# Nothing here reduces durability: fsync and synchronous_commit keep their default, on.
max_connections = 200
shared_buffers = 128MB

timezone = 'UTC'
lc_messages = 'C'
lc_monetary = 'C'
lc_numeric = 'C'
lc_time = 'C'
default_text_search_config = 'pg_catalog.english'

log_min_messages = warning
log_checkpoints = off
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
"""

_HBA = """\
# Written by Stepwell at each start.
local all,replication all peer map=stepwell
host all all all reject
"""

_IDENT = """\
# Written by Stepwell at each start. Only the user who started the server may connect, as its superuser.
stepwell "{name}" postgres
"""


def write_settings(home: Path, user: User) -> None:
    """Write the files beside the data directory, not into it: under root that belongs to another user."""
    for name, text in (
        ("postgresql.conf", _CONF),
        ("pg_hba.conf", _HBA),
        ("pg_ident.conf", _IDENT.format(name=user.name)),
    ):
        (home / name).write_text(text)
        (home / name).chmod(0o644)


def arguments(home: Path, socket_dir: Path) -> list[str]:
    """The arguments of `postgres`: settings that `alter system` must not override."""
    quoted = str(socket_dir).replace('"', '""')
    fixed = {
        "config_file": home / "postgresql.conf",
        "hba_file": home / "pg_hba.conf",
        "ident_file": home / "pg_ident.conf",
        "listen_addresses": "",
        "port": 5432,
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
    }
    return ["-D", str(home / "data"), *(f"--{name}={value}" for name, value in fixed.items())]
