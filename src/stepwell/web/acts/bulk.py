"""Start and stop bulk operations. The workers work them off, not this process: it may be restarted at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode
from uuid import UUID

from starlette.datastructures import QueryParams
from starlette.responses import Response

from stepwell.errors import BadArgs
from stepwell.errors.text import quoted
from stepwell.jobs.bulk import JobAct, cancelling, deleting, retrying, running_now
from stepwell.jobs.bulk_operation import MOST_COUNTED
from stepwell.postgres import queries
from stepwell.postgres.queries.bulk import BulkAct
from stepwell.web.acts.form_fields import back, one
from stepwell.web.acts.jobs import moving_to
from stepwell.web.dashboard import Handler
from stepwell.web.filters import NAMES, in_utc, read_filters
from stepwell.web.reads import bulk
from stepwell.web.visit import Refused, Visit
from stepwell.web.wording import count, to_time

# Longer than the preview counts: what it has counted whole must not be refused because the machine is busier now.
_MILLISECONDS = 2000


def start(act: BulkAct) -> Handler:
    """Change all jobs that match the filters of the form, if there are no more than were confirmed."""

    async def started(visit: Visit) -> Response:
        form = await visit.form()
        job_act = _job_act(visit, act, form)
        fields = QueryParams([(name, values[0]) for name, values in form.items() if name in NAMES and values])
        filters = read_filters(fields, visit.pulse["now"], visit.dashboard.redaction)
        which = bulk.filter_of(filters.search)
        confirmed, as_of = _confirmed(form), _as_of(form)
        found = await visit.read(queries.bulk.preview(act, which, as_of, _MILLISECONDS))
        number = min(found["count"], MOST_COUNTED)
        if (number > confirmed or found["more"]) and not form.get("more"):
            at_least = "at least " if found["more"] else ""
            raise Refused(
                409,
                f"{at_least}{count(found['count'])} jobs match, and {confirmed:,} were confirmed: look at them again, "
                f"and confirm that number{', with more=1' if at_least else ''}",
            )
        [bulk_id] = await visit.app.database.afetch(
            queries.bulk.start(
                act, which, job_act.options, found["count"], f"{visit.user.name}, in the dashboard", found["as_of"]
            )
        )
        came_from = back(form, "/jobs")
        said = f"Bulk operation {bulk_id} has started."
        return visit.done(said, f"/bulk/{bulk_id}?{urlencode({'back': came_from})}", {"bulk": bulk_id})

    return started


async def stop(visit: Visit) -> Response:
    bulk_id: UUID = visit.request.path_params["id"]
    form = await visit.form()
    found = await visit.read(bulk.bulks(bulk_id))
    if not found["bulks"]:
        raise Refused(404, f"there is no bulk operation {bulk_id}")
    right: BulkAct = found["bulks"][0]["act"]
    if not visit.may(right):
        raise Refused(403, f"{visit.user.name} may not stop this here: it needs the right {right!r}")
    [stopped] = await visit.app.database.afetch(queries.bulk.stop_bulk(str(bulk_id)))
    said = "It is stopped. The jobs that were changed stay changed." if stopped else "It had ended already."
    return visit.done(said, back(form, f"/bulk/{bulk_id}"), ok=stopped)


def _job_act(visit: Visit, act: BulkAct, form: Mapping[str, Sequence[str]]) -> JobAct:
    match act:
        case "retry":
            return retrying(from_start=bool(form.get("from_start")))
        case "cancel":
            reason = next(iter(form.get("reason") or ()), "") or f"by {visit.user.name}, in the dashboard"
            try:
                return cancelling(reason)
            except BadArgs as error:
                raise Refused(400, str(error)) from None
        case "run":
            return running_now()
        case "delete":
            return deleting()
        case "move":
            return moving_to(form)


def _confirmed(form: Mapping[str, Sequence[str]]) -> int:
    """The number of jobs that was typed or clicked. More than 10,000 are not counted."""
    typed = one(form, "count").strip().replace(",", "").removesuffix("+")
    if not (typed.isascii() and typed.isdecimal() and len(typed) < 10):
        raise Refused(400, f"count is {quoted(typed)}: confirm the number of jobs")
    number = int(typed)
    shown = next(iter(form.get("shown") or ()), typed)
    if shown != str(number):
        raise Refused(409, f"{number:,} is not the number of jobs that was shown: nothing was changed")
    return number


def _as_of(form: Mapping[str, Sequence[str]]) -> str | None:
    given = next(iter(form.get("as_of") or ()), "")
    at = to_time(given) if given else None
    try:
        if at is not None and at.tzinfo is not None:
            return in_utc(at).isoformat()
    except OverflowError:
        pass
    if given:
        raise Refused(400, f"as_of is {quoted(given)}: it must be a time with its zone, as the preview gave it")
    return None
