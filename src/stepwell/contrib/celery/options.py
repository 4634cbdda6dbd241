"""What Celery's options become in Stepwell, and which of them are refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, cast

import msgspec

from stepwell.errors import BadArgs, ConfigError
from stepwell.values.bounds import check_whole
from stepwell.values.retry import Retry

_FOREVER = 1_000_000
_NO_BROKER = "there is no broker and no message"
_STORED_AS_JSON = "arguments and results are JSON, by the annotations of the function"
_CALLBACK = "write chain(task.s(...), callback.si(...)), or a durable function that catches the error"

_REFUSED = {
    "expires": "cancel the job, or return at once from a handler that starts too late",
    "rate_limit": "Celery counts for each worker, rate=Rate(10, per='1m') for all of them",
    "soft_time_limit": "give time_limit, which asks a run to stop; a bound task can look at self.ctx.cancelled",
    "link": _CALLBACK,
    "link_error": _CALLBACK,
    "task_id": "the database makes the id; for at most one job per key give unique=",
    "serializer": _STORED_AS_JSON,
    "compression": _STORED_AS_JSON,
    "pydantic": _STORED_AS_JSON,
    "typing": _STORED_AS_JSON,
    "base": "write a function that is called by the task, or a plugin",
    "throws": "errors that are expected are logged like others",
    "headers": "apply_async(metadata={...})",
    "routing_key": _NO_BROKER,
    "exchange": _NO_BROKER,
    "exchange_type": _NO_BROKER,
    "delivery_mode": _NO_BROKER,
    "producer": _NO_BROKER,
    "router": _NO_BROKER,
    "retry": "enqueueing repeats what is safe to repeat by itself",
    "retry_policy": "enqueueing repeats what is safe to repeat by itself",
}


class TaskOptions(TypedDict, total=False):
    """The options of `@celery.task` that Stepwell has: Celery's own, and from `unique` on those of `@app.task`."""

    name: str
    bind: bool
    queue: str
    priority: int
    autoretry_for: tuple[type[BaseException], ...]
    dont_autoretry_for: tuple[type[BaseException], ...]
    max_retries: int | None
    default_retry_delay: float
    retry_kwargs: Mapping[str, Any]
    retry_backoff: bool | int
    retry_backoff_max: int
    retry_jitter: bool
    time_limit: float
    ignore_result: bool
    acks_late: bool
    reject_on_worker_lost: bool
    track_started: bool
    unique: Any
    on_conflict: Any
    limit: Any
    rate: Any
    fair: Any


class CallOptions(TypedDict, total=False):
    """The options of `apply_async` and `set` that Stepwell has: Celery's own, and from `metadata` on those of
    `using`."""

    countdown: float
    eta: datetime
    queue: str
    priority: int
    time_limit: float
    metadata: Mapping[str, Any]
    unique: Any
    connection: object


def check_names(call: str, given: Mapping[str, Any], known: type) -> None:
    """Raise `ConfigError` for an option that Stepwell does not have, with what to do instead."""
    for name in given:
        if name not in known.__annotations__:
            hint = _REFUSED.get(name, f"it takes {', '.join(known.__annotations__)}")
            raise ConfigError(f"{call} has no {name!r} in Stepwell: {hint}")


def task_options(call: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for `app.task`, without the name."""
    check_names(call, given, TaskOptions)
    # Celery does these only if asked. In Stepwell no job is lost with its worker, and its state is always known.
    for name in ("acks_late", "reject_on_worker_lost", "track_started"):
        if given.get(name) is False:
            raise ConfigError(f"{call}: {name}=False has no counterpart: Stepwell always does that")
    same = {
        name: given[name]
        for name in ("queue", "priority", "unique", "on_conflict", "limit", "rate", "fair")
        if name in given
    }
    made: dict[str, Any] = {**same, "retry": _retry(call, given)}
    if "time_limit" in given:
        made["timeout"] = given["time_limit"]
    if given.get("ignore_result"):
        made["keep"] = 0
    return made


def _retry(call: str, given: Mapping[str, Any]) -> Retry:
    """Celery's policy: only `self.retry()` and the errors in `autoretry_for` lead to another attempt."""
    kwargs = cast("Mapping[str, Any]", given.get("retry_kwargs", {}))
    for name in kwargs:
        if name not in ("max_retries", "countdown"):
            raise ConfigError(f"{call}: retry_kwargs has {name!r}: Stepwell knows 'max_retries' and 'countdown' there")
    retries = kwargs.get("max_retries", given.get("max_retries", 3))
    most = _FOREVER if retries is None else check_whole(retries, f"{call}: max_retries", 0, _FOREVER - 1) + 1
    backoff = given.get("retry_backoff", False)
    delay = kwargs.get("countdown", given.get("default_retry_delay", 180))
    return Retry(
        max_attempts=most,
        backoff="exponential" if backoff else "fixed",
        initial=(1 if backoff is True else backoff) if backoff else delay,
        cap=given.get("retry_backoff_max", 600) if backoff else delay,
        jitter=0.5 if backoff and given.get("retry_jitter", True) else 0.0,
        retry_on=_tuple(given.get("autoretry_for", ())),
        never_on=_tuple(given.get("dont_autoretry_for", ())),
    )


def _tuple(given: Any) -> Any:
    return tuple(cast("list[Any]", given)) if isinstance(given, list | set) else given


def call_options(call: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for `using`. Like Celery, it takes a time without a time zone for UTC."""
    check_names(call, given, CallOptions)
    made = {name: value for name, value in given.items() if name not in ("countdown", "eta", "time_limit")}
    if (countdown := given.get("countdown")) is not None:
        made["delay"] = countdown
    if (eta := given.get("eta")) is not None:
        made["run_at"] = in_utc(call, eta)
    if (limit := given.get("time_limit")) is not None:
        made["timeout"] = limit
    return made


def in_utc(call: str, eta: Any) -> datetime:
    if not isinstance(eta, datetime):
        raise ConfigError(f"{call}: eta is {eta!r}: give a datetime")
    return eta.replace(tzinfo=UTC) if eta.tzinfo is None else eta


def options_as_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a signature as its canvas keeps them."""
    made = dict(given)
    if made.get("eta") is not None:
        made["eta"] = in_utc("a signature", made["eta"]).isoformat()
    if isinstance(made.get("countdown"), timedelta):
        made["countdown"] = made["countdown"].total_seconds()
    try:
        return msgspec.to_builtins(made)
    except TypeError as error:
        raise BadArgs(f"the options of a signature do not encode as JSON: {error}") from None


def options_from_json(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for `using` from those that a canvas has kept."""
    options = dict(stored)
    if options.get("eta") is not None:
        options["eta"] = datetime.fromisoformat(options["eta"])
    return call_options("a signature", options)


def check_arguments(call: str, args: Any, kwargs: Any) -> None:
    """Refuse arguments that Celery refuses, too: a text would be taken for a list of its characters."""
    if args is not None and not isinstance(args, list | tuple):
        raise ConfigError(f"{call}: args is {args!r}: give a list or a tuple")
    named = isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in cast("Mapping[Any, Any]", kwargs))
    if kwargs is not None and not named:
        raise ConfigError(f"{call}: kwargs is {kwargs!r}: give a dict with names")
