"""How the JSON that a function returns is read."""

from __future__ import annotations

import json
from typing import Any

from stepwell.web.sendable import number_of


def loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=number_of)
