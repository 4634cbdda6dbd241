"""Save a view of the list of jobs under a name, and delete one."""

from __future__ import annotations

from starlette.datastructures import QueryParams
from starlette.responses import Response

from stepwell.postgres import queries
from stepwell.web.acts.form_fields import back, one
from stepwell.web.filters import NAMES, read_filters
from stepwell.web.visit import Refused, Visit


async def save(visit: Visit) -> Response:
    form = await visit.form()
    name = one(form, "name").strip()
    fields = QueryParams([(field, values[0]) for field, values in form.items() if field in NAMES and values])
    # They are checked now, and kept as they were typed: "since 2h" means two hours before somebody looks.
    filters = read_filters(fields, visit.pulse["now"], visit.dashboard.redaction)
    if not filters.given:
        raise Refused(400, "there is no filter to save: choose a state, a filter or an order first")
    [saved] = await visit.app.database.afetch(queries.saved_views.save_view(name, filters.given, visit.user.name))
    said = (
        f"The view {name} is saved." if saved else f"There is a view {name} already: delete it, or take another name."
    )
    return visit.done(said, back(form, visit.url("/jobs", **filters.given).removeprefix(visit.root)), ok=saved)


async def delete(visit: Visit) -> Response:
    form = await visit.form()
    name = one(form, "name")
    [deleted] = await visit.app.database.afetch(queries.saved_views.delete_view(name))
    said = f"The view {name} is deleted." if deleted else f"There is no view {name}."
    return visit.done(said, back(form, "/views"), ok=deleted)
