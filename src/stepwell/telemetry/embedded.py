"""Events of the embedded Postgres."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import Telemetry


class EmbeddedAsNobody(Telemetry, frozen=True):
    """Root's embedded Postgres runs as an account that other programs use, too."""

    level = logging.WARNING
    data: str
    user: str
    account: str
    existing: bool

    def text(self) -> str:
        return f"the embedded Postgres runs as user {self.user!r}, whose other processes can read {self.data}: " + (
            "the database was created with that owner and keeps it; to change that, dump it and load it at another path"
            if self.existing
            else f"the account {self.account!r} could not be created; create it as a system account, or do not run as "
            "root"
        )
