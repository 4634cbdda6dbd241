"""A released migration is never edited: databases that applied it would not get the edit."""

from __future__ import annotations

from hashlib import sha256

from stepwell.migrate import migrations

# Add a line when a release ships a new migration. Until 0.1.0 is out, 0001 may still be changed: put its new checksum
# here, which the failing test prints. After that, a change is a new migration.
FROZEN = {
    "0001_core": "f9114f235e6aaaa6e30475d005d0a65d0a586fa2a097aa05b9044668840bb17f",
}


def test_released_migrations_are_as_they_were_released() -> None:
    assert {migration.name: sha256(migration.sql.encode()).hexdigest() for migration in migrations()} == FROZEN
