"""The JSON values of a job: decoded one by one, opened if codecs have sealed them, and with hidden fields hidden."""

from __future__ import annotations

import json
import re
from typing import Any

from stepwell.errors import CodecError
from stepwell.postgres.queries.reads import value_of
from stepwell.values.redaction import HIDDEN, Redaction
from stepwell.values.sealing import BEGINNING, Sealer, sealed_by
from stepwell.web.sendable import number_of

MOST = 65536
"""Characters of a value on the page of its job, as the SQL functions have it."""
SHORT = 4000
"""Characters of a value in a list."""
_CODECS = re.compile(r'\s*:\s*"([^"\\]{0,200})"')


def opened(text: str | None, sealer: Sealer) -> Any:
    """A value as it was before codecs sealed it. Raises `CodecError` if it cannot be opened here."""
    value = _decoded(text)
    inner = sealer.opened_text(value)
    return value if inner is None else _decoded(inner)


def shown(text: str | None, redaction: Redaction, most: int = MOST) -> Any:
    """A value as it may be shown. A sealed one is described if it cannot be opened, or has more than `most` characters
    then: the database has bounded only what is stored."""
    value = _decoded(text)
    by = sealed_by(value)
    if by is not None:
        try:
            inner = redaction.sealer.opened_text(value)
        except CodecError:
            return f"(sealed by {by}: this app cannot open it)"
        if inner is not None and len(inner) > most:
            return f"(sealed by {by}: {len(inner):,} characters, too large to be shown here)"
        value = _decoded(inner)
    return redaction.apply(value)


def cut(text: str | None, size: int | None, redaction: Redaction) -> Any:
    """A value of which the text may be cut off. What cannot be decoded is shown as text, or hidden as a whole if
    anything is."""
    if text is None:
        return None
    if size is None or len(text.encode()) >= size:
        return shown(text, redaction, SHORT)
    if text.startswith(BEGINNING) and (codecs := _CODECS.match(text, len(BEGINNING))):
        return f"(sealed by {codecs[1]}: too large to be opened here)"
    return HIDDEN if redaction else text + "…"


def _decoded(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text, parse_float=number_of)
    except (RecursionError, ValueError):
        return value_of(text)  # it says why
