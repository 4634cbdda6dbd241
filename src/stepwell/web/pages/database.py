"""The database: dead rows, sizes, the oldest snapshot and who holds it, connections, partitions, notifications."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.app import App
from stepwell.doctor.database import check_notifications
from stepwell.doctor.finding import Finding
from stepwell.postgres.threads import in_thread
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit


async def show(visit: Visit) -> Response:
    found = await visit.read(fleet.database())
    kinds = {name: [part for part in found["partitions"] if part["table"] == name] for name in ("history", "failure")}
    return visit.page("database.html", found, partitions_of=kinds)


async def listener(visit: Visit) -> Response:
    """Send a notification on one connection, and wait for it on another."""
    if visit.pulse["read_only"]:
        return visit.fragment("listener.html", {"status": "ok", "text": "cannot be sent on a database without writes"})
    finding = await in_thread(lambda: _listen(visit.app))
    return visit.fragment("listener.html", {"status": finding.status, "text": finding.text})


def _listen(app: App) -> Finding:
    with app.database.connect() as connection:
        return check_notifications(connection, app.database)
