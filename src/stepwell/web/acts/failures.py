"""Acts on groups of failures: resolve, ignore and reopen. Their jobs are retried by a bulk operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from starlette.responses import Response

from stepwell.postgres import queries
from stepwell.values.failure_info import FailureState
from stepwell.web.acts.form_fields import back
from stepwell.web.visit import Refused, Visit

_MOST = 500


async def resolve(visit: Visit) -> Response:
    return await _set(visit, "resolved")


async def ignore(visit: Visit) -> Response:
    return await _set(visit, "ignored")


async def reopen(visit: Visit) -> Response:
    return await _set(visit, "open")


async def _set(visit: Visit, state: FailureState) -> Response:
    form = await visit.form()
    ids = _ids(form)
    [changed] = await visit.app.database.afetch(queries.failures.set_failures(ids, state))
    number = len(changed)
    if number:
        said = f"The failure is {state}." if number == 1 else f"{number} failures are {state}."
    else:
        said = f"Nothing was changed: {'it is' if len(ids) == 1 else 'they are'} {state} already, or gone."
    return visit.done(said, back(form, "/failures"), {"changed": [str(each) for each in changed]}, ok=bool(number))


def _ids(form: Mapping[str, Sequence[str]]) -> list[UUID]:
    try:
        ids = list(dict.fromkeys(UUID(given) for given in form.get("id") or ()))
    except ValueError:
        raise Refused(400, "a selected id is not the id of a failure") from None
    if not 1 <= len(ids) <= _MOST:
        raise Refused(400, f"{len(ids)} failures are selected: select 1 to {_MOST}")
    return ids
