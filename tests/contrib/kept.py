"""A transport for the SDK of Sentry that sends nothing."""

from __future__ import annotations

from typing import Any

from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            event: Any = item.get_event() or item.get_transaction_event()
            if event is not None:
                (self.transactions if event.get("type") == "transaction" else self.errors).append(event)
