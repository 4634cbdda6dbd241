"""Headers of a job: short texts by name that plugins attach, such as the trace that it belongs to.

They are stored as the member "headers" of the job's policy. So a job without headers pays nothing, and what carries a
policy over carries them over, too: retries, forks, runs of schedules, and jobs that replace others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MOST_BYTES = 8192
"""More than this is not stored with a job. The limit of all policies is 20,000 bytes."""

_MEMBER = '"headers"'
_BEGINNINGS = ('{"headers":{', '{"headers": {')


class _WithHeaders(msgspec.Struct):
    headers: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(_WithHeaders)


class HeadersTooLong(ValueError):
    """The headers of a job have more bytes than are stored."""


def encode_headers(headers: Mapping[str, str]) -> str:
    """Encode headers as JSON. Raises `ValueError` if they cannot be stored."""
    if not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise ValueError("headers must be texts")
    encoded = msgspec.json.encode(headers)
    if len(encoded) > MOST_BYTES:
        raise HeadersTooLong(f"headers have {len(encoded)} bytes: at most {MOST_BYTES} are stored")
    if b"\\u0000" in encoded:
        raise ValueError("headers must not contain the character NUL")
    return encoded.decode()


def add_headers(policy: str | None, encoded: str) -> str:
    """Add encoded headers to a policy that has none."""
    return f'{{"headers":{encoded}}}' if policy is None else f'{policy[:-1]},"headers":{encoded}}}'


def has_headers(policy: str | None) -> bool:
    """Whether a policy may have headers. Cheap, and wrong only for policies that quote the word."""
    return policy is not None and _MEMBER in policy


def only_headers(policy: str) -> bool:
    """Whether a policy consists of nothing but headers. Cheap: it may miss some, but is never wrong."""
    # The first object that is closed is that of the headers, and after it the policy ends.
    return policy.startswith(_BEGINNINGS) and policy.find("}") == len(policy) - 2


def read_headers(policy: str | None) -> dict[str, str]:
    """The headers in a policy. Headers that cannot be read, which only plain SQL can store, count as none."""
    if policy is None or _MEMBER not in policy:
        return {}
    try:
        return _decoder.decode(policy).headers or {}
    except (ValueError, RecursionError):
        return {}


def headers_in(policy: str | None) -> str | None:
    """The headers in a policy, as JSON; None: there are none."""
    headers = read_headers(policy)
    return encode_headers(headers) if headers else None
