"""Encode the metadata of a job as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.errors import BadArgs
from stepwell.errors.text import article
from stepwell.values.json import NUL, encoder, holds_nan, may_hold_nan


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    if not isinstance(metadata, Mapping):
        raise BadArgs(f"metadata is {article(type(metadata).__name__)}: give a dict")
    try:
        text = encoder.encode(dict(metadata)).decode()
    except Exception as error:
        raise BadArgs(f"metadata does not encode as JSON: {error}") from None
    if NUL.search(text):
        raise BadArgs("metadata holds a NUL character, which Postgres cannot store")
    if may_hold_nan(text) and holds_nan(dict(metadata)):
        raise BadArgs("metadata holds NaN or infinity, which JSON cannot express")
    return text
