"""The URL of an embedded Postgres: `embedded`, or `embedded:PATH`."""

from __future__ import annotations

from pathlib import Path

from stepwell.errors import EmbeddedError


def is_embedded(url: str) -> bool:
    return url == "embedded" or url.startswith("embedded:")


def embedded_path(url: str) -> Path | None:
    """The path in the URL, with `~` expanded; None for the default path."""
    if url == "embedded":
        return None
    name = url.removeprefix("embedded:")
    if not is_embedded(url) or not name.strip("/ "):
        raise EmbeddedError(f'{url!r} names no embedded Postgres: write "embedded" or "embedded:PATH"')
    # Some people write a full URL: embedded:///srv/jobs.
    name = name.removeprefix("//")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise EmbeddedError(f"{url!r} names an unknown home directory: write the full path") from error
