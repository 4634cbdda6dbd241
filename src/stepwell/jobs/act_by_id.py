"""Change jobs that are named by their ids, and say why a job could not be changed. `bulk` changes jobs by a filter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote

from stepwell.errors import WHY_NO_JOB, StepNotFound
from stepwell.errors.text import quoted
from stepwell.jobs.bulk import CHUNK, Became, JobAct
from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.duration import local_time
from stepwell.values.step import StepInfo

_MOST_NAMED = 10


@dataclass(slots=True)
class Changed:
    """The outcome for each id: what the job became, or why it was not changed."""

    became: dict[str, Became] = field(default_factory=dict[str, Became])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """A predicate to follow the job's id, such as "is running already"."""


def act_by_id(act: JobAct, ids: Sequence[str]) -> QueryPlan[Changed]:
    changed = Changed()
    # A job that lacks the step fails the whole statement, so with a step each job gets its own.
    size = CHUNK if act.step is None else 1
    for start in range(0, len(ids), size):
        with suppress(StepNotFound):  # `_refusal` names the steps that the job has
            changed.became |= act.read((yield act.query(ids[start : start + size])))
    left = [job_id for job_id in ids if job_id not in changed.became]
    states = dict((yield queries.reads.job_states(left))) if left else {}
    for job_id in left:
        state = states.get(job_id)
        if act.to_retry and state in ("failed", "cancelled"):
            [holder] = yield queries.jobs.key_holder(job_id)
            if holder is not None:
                changed.refused[job_id] = (
                    f"is {state}, and job {holder} has its unique key: retry it when that has ended"
                )
                continue
        changed.refused[job_id] = yield from _refusal(act, job_id, state)
    return changed


def no_such_step(job_id: str, step: str) -> QueryPlan[str]:
    """A predicate for a job without this step: it names the steps that the job has."""
    keys = [found.key for found in (yield queries.reads.steps(job_id))]
    if not keys:
        return f"has no step {quoted(step)}, because it has saved none: leave out the step"
    named = ", ".join(keys[:_MOST_NAMED])
    more = f' and {len(keys) - _MOST_NAMED} more: see "stepwell jobs show {job_id}"' if len(keys) > _MOST_NAMED else ""
    return f"has no step {quoted(step)}: it has {named}{more}"


def waits_of(job_id: str, steps: Sequence[StepInfo]) -> list[str]:
    """What a suspended job waits for, each with the command that ends the wait."""
    return [_wait(job_id, step) for step in steps if step.pending]


def _wait(job_id: str, step: StepInfo) -> str:
    event, key = step.event or "", step.event_key
    if step.kind == "wait":
        named, option = (f", key {key!r}", f" --key {quote(key)}") if key else ("", "")
        return f'event {event!r}{named} ("stepwell emit {quote(event)}{option}")'
    if step.kind == "receive":
        return f'signal {event!r} ("stepwell jobs send {job_id} {quote(event)}")'
    return f"child {step.child_id}" if step.child_id else f"{step.key!r} until {local_time(step.until)}"


def _refusal(act: JobAct, job_id: str, state: str | None) -> QueryPlan[str]:
    match state:
        case None:
            return f"is not known: {WHY_NO_JOB}"
        case "running" if act.verb == "delete":
            return "is running: cancel it first, and delete it when it has ended"
        case "ready" | "scheduled" | "waiting" | "blocked" if act.verb == "delete":
            return f"is {state}: cancel it first"
        case "ready" | "blocked" if act.verb == "move":
            return f"is {state}, in a line of its limits or its fair key: only its queue and priority can be changed"
        case "running" if act.verb == "run":
            return "is running already"
        case "waiting":
            waits = ", ".join(waits_of(job_id, (yield queries.reads.steps(job_id))))
            return f"is waiting{f' for {waits}' if waits else ''}: nothing to {act.verb}"
        case "blocked" if act.verb == "run":
            return "is blocked: it runs when a run of its schedule, its group or a job before it in line has ended"
        case "failed" | "cancelled" if act.verb == "run":
            return f"is {state}: 'stepwell jobs retry' runs it again"
        case "failed" | "cancelled" if act.step is not None:
            return (yield from no_such_step(job_id, act.step))
        case "scheduled" if act.goes_back:
            return "is scheduled: cancel it first, or retry it without a step"
        case "succeeded" | "failed":
            return f"has already {state}: nothing to {act.verb}"
        case "cancelled" | "ready":
            return f"is already {state}: nothing to {act.verb}"
        case _:
            return f"is {state}: nothing to {act.verb}"
