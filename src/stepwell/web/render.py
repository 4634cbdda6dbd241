"""Templates and static files: read from the package once, so that nothing outside it can be asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from stepwell.web.progress import read_progress
from stepwell.web.wording import FILTERS, between

_STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str
    digest: str


@cache
def static_files() -> dict[str, StaticFile]:
    return {
        path.name: StaticFile(content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:16])
        for path in _STATIC.iterdir()
        if path.suffix in _TYPES
        for content in [path.read_bytes()]
    }


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("stepwell.web"),
        # Everything is escaped, whatever a template is called: names, args, errors and tracebacks may be hostile.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS, progress=read_progress)
    digests = {name: file.digest for name, file in static_files().items()}
    cast("dict[str, Any]", made.globals).update(between=between, static_digests=digests)
    return made
