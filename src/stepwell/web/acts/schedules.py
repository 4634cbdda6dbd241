"""Acts on schedules: pause, resume, trigger, backfill. Also on those of other apps on the database."""

from __future__ import annotations

from dataclasses import asdict
from urllib.parse import urlencode

from starlette.responses import Response

from stepwell.errors import JobExists
from stepwell.schedules.handle import ScheduleHandle
from stepwell.values.bounds import check_name
from stepwell.web.acts.form_fields import back, one
from stepwell.web.filters import moment
from stepwell.web.visit import Visit
from stepwell.web.wording import to_time


async def pause(visit: Visit) -> Response:
    form = await visit.form()
    handle = _handle(visit, form)
    await handle.apause()
    return visit.done(f"Schedule {handle.name} is paused.", back(form, "/schedules"))


async def resume(visit: Visit) -> Response:
    form = await visit.form()
    handle = _handle(visit, form)
    await handle.aresume()
    return visit.done(f"Schedule {handle.name} is resumed.", back(form, "/schedules"))


async def trigger(visit: Visit) -> Response:
    form = await visit.form()
    handle = _handle(visit, form)
    try:
        job = await handle.atrigger()
    except JobExists as error:
        return visit.done(str(error), back(form, "/schedules"), ok=False)
    return visit.done(f"Schedule {handle.name} was triggered.", f"/jobs/{job.id}", {"job": str(job.id)})


async def backfill(visit: Visit) -> Response:
    """Say how many runs a backfill would enqueue, or, once that number is confirmed, enqueue them."""
    form = await visit.form()
    handle = _handle(visit, form)
    now = visit.pulse["now"]
    since = moment(one(form, "since"), "since", now)
    until = moment(next(iter(form.get("until") or ()), "") or None, "until", now)
    assert since is not None
    planned = await handle.abackfill(since, until, preview=True)
    expected = next(iter(form.get("expected") or ()), "")
    page = "/schedules?" + urlencode({"owner": handle.owner, "name": handle.name})
    if expected == str(planned.enqueued) and planned.enqueued:
        done = await handle.abackfill(since, until)
        said = f"{done.enqueued} runs of {handle.name} were enqueued."
        return visit.done(said, back(form, page), asdict(done))
    data = {
        "owner": handle.owner,
        "name": handle.name,
        "since": since,
        "until": until or to_time(now),
        "changed": bool(expected),
        **asdict(planned),
    }
    return visit.page("backfill.html", data, 409 if expected else 200)


def _handle(visit: Visit, form: dict[str, list[str]]) -> ScheduleHandle:
    name, owner = check_name(one(form, "name"), "name"), check_name(one(form, "owner"), "owner")
    return ScheduleHandle(name, owner, visit.app.database, visit.app.job)
