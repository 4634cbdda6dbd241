"""Calls with a word that they do not know name the public call, the word, and the one that was most likely meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import stepwell
from stepwell import App, JobHandle, Worker

APP: Any = App("postgresql://nowhere", name="shop")
WORKER: Any = Worker
# Without its types, so that a wrong option can be written.
ANY: Any = stepwell


@APP.task
def note() -> None: ...


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: note.using(countdown=5), "task.using() has no option 'countdown': write task.using(delay=...)"),
        (lambda: note.using(eta=5), "task.using() has no option 'eta': write task.using(run_at=...)"),
        (lambda: APP.task(max_retries=3), "app.task() has no option 'max_retries': write retry=Retry(max_attempts=..."),
        (lambda: APP.task(timout=3), "app.task() has no option 'timout': did you mean 'timeout'?"),
        (
            lambda: APP.task(zzz=3),
            "app.task() has no option 'zzz': it takes fn, batch, batch_wait, name, queue, priority,",
        ),
        (lambda: APP.chain("c", note, timout=3), "app.chain() has no option 'timout': did you mean 'timeout'?"),
        (lambda: APP.machine("m", timout=3), "app.machine() has no option 'timout': did you mean 'timeout'?"),
        (lambda: APP.schedule(every="1h"), "app.schedule() has no option 'every': write the interval first"),
        (lambda: type(APP)(nmae="shop"), "App() has no option 'nmae': did you mean 'name'?"),
        (lambda: ANY.Retry(max_retries=3), "Retry() has no option 'max_retries': write max_attempts=..., which counts"),
        (lambda: ANY.Retry(max_attemps=3), "Retry() has no option 'max_attemps': did you mean 'max_attempts'?"),
        (lambda: ANY.Unique("{a}", ttl=3), "Unique() has no option 'ttl': write period="),
        (lambda: ANY.Limit(count=3), "Limit() has no option 'count': write the number first, such as Limit(2)"),
        (lambda: ANY.Rate(3, interval=1), "Rate() has no option 'interval': write per="),
        (lambda: ANY.Fair("{a}", weight=2), "Fair() has no option 'weight': write weights="),
        (lambda: ANY.Step(note, retries=2), "Step() has no option 'retries': did you mean 'retry'?"),
        (lambda: ANY.Next(1, delay=2), "Next() has no option 'delay': write after="),
        (lambda: ANY.Done(result=2), "Done() has no option 'result': write the value first"),
        (lambda: ANY.Snooze(countdown=2), "Snooze() has no option 'countdown': write the delay first"),
        (lambda: ANY.RetryIn(countdown=2), "RetryIn() has no option 'countdown': write the delay first"),
        (lambda: ANY.RateLimited(delay=2), "RateLimited() has no option 'delay': write retry_after="),
        (lambda: WORKER(APP, concurency=4), "Worker() has no option 'concurency': did you mean 'concurrency'?"),
    ],
)
def test_an_unknown_option_is_named_with_the_one_to_use(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value).startswith(said)


def test_a_worker_in_a_plain_with_leads_to_async_with() -> None:
    with pytest.raises(TypeError, match="write 'async with Worker"), WORKER(APP):
        pass


@pytest.mark.parametrize(
    ("name", "instead"), [("get", "result"), ("wait", "result"), ("status", "info"), ("revoke", "cancel")]
)
def test_names_of_other_libraries_lead_to_those_of_a_handle(name: str, instead: str) -> None:
    handle: JobHandle[Any] = APP.job("0193b3b0-0000-7000-8000-000000000000")
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': write job\.{instead}\("):
        getattr(handle, name)
    assert not hasattr(handle, "nothing")


def test_the_signatures_of_public_calls_stay_as_they_are_written() -> None:
    assert "concurrency" in inspect.signature(Worker).parameters
    assert list(inspect.signature(note.using).parameters)[:2] == ["queue", "priority"]
