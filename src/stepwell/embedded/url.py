"""How the embedded Postgres is named where a database URL is asked for: `embedded`, or `embedded:PATH`."""

from __future__ import annotations

from pathlib import Path

from stepwell.errors import EmbeddedError


def is_embedded(url: str) -> bool:
    """Whether this names the embedded Postgres, rather than one that runs elsewhere."""
    return url == "embedded" or url.startswith("embedded:")


def embedded_path(url: str) -> Path | None:
    """The path an embedded url names, `~` expanded; None where it leaves the path to us."""
    if url == "embedded":
        return None
    name = url.removeprefix("embedded:")
    if not is_embedded(url) or not name.strip("/ "):
        raise EmbeddedError(f'{url!r} names no embedded Postgres: write "embedded" or "embedded:PATH"')
    # Some will write it as a URL proper: embedded:///srv/jobs.
    name = name.removeprefix("//")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise EmbeddedError(f"{url!r} names a home directory that is not known: write the path in full") from error
