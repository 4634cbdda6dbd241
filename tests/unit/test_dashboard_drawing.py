"""What the dashboard computes before it draws: cron in words, waterfalls, timelines, forms, lengths."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel

from stepwell import App
from stepwell.calendar.cron_words import in_words
from stepwell.values.redaction import Redaction
from stepwell.web.forms import arguments_from, fields_of
from stepwell.web.timeline import phases_of
from stepwell.web.visit import Refused
from stepwell.web.waterfall import WIDTH, waterfall
from stepwell.web.wording import ago, between, count, length, size

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 */15 * * * *", "every 15 minutes"),
        ("30 2 * * mon-fri", "at 02:30, Monday to Friday"),
        ("0 9,17 * * *", "at 09:00 and 17:00"),
        ("15 * * * sun", "every hour at :15, Sunday"),
        ("0 0 1 * *", "at 00:00, on day 1 of the month"),
        ("0 0 1 jan *", "at 00:00, on day 1 of the month in January"),
        ("0 0 * * 1,3,7", "at 00:00, Monday, Wednesday and Sunday"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("@daily", "at 00:00"),
        ("0 0 13 * 5", None),
        ("1-5/2 3 * * *", None),
        ("30 0 0 * * *", None),
    ],
)
def test_common_cron_text_has_words(cron: str, words: str | None) -> None:
    assert in_words(cron, None) == words


def test_an_interval_has_words() -> None:
    assert in_words(None, 900.0) == "every 15m"


def step(n: int, at: float, seconds: float | None = None, **more: Any) -> dict[str, Any]:
    saved = (START + timedelta(seconds=at)).isoformat()
    plain = {"kind": "step", "pending": False, "timed_out": False, "error": None, "until": None}
    return {"n": n, "key": f"s{n}", "saved_at": saved, "seconds": seconds, **plain, **more}


def test_idle_time_is_cut_from_a_waterfall() -> None:
    month = 30 * 86400.0
    steps = [step(1, 2, 2), step(2, 2, kind="sleep", until=(START + timedelta(seconds=2 + month)).isoformat())]
    steps.append(step(3, month + 6, 2))
    rows = waterfall(steps, (START + timedelta(days=40)).isoformat(), finished=True)
    assert all(row.x >= 0 and row.x + row.width <= WIDTH + 0.2 for row in rows)
    assert rows[0].width > WIDTH / 3
    assert rows[2].width > WIDTH / 3
    assert rows[1].seconds == pytest.approx(month)
    assert rows[2].idle == pytest.approx(2)


def test_what_ran_during_a_wait_is_drawn_before_what_came_after_it() -> None:
    steps = [step(1, 3600, 3599.6, kind="child"), step(2, 300, 290), step(3, 3610, 10)]
    wait, beside, after = waterfall(steps, START.isoformat(), finished=True)
    assert wait.seconds == pytest.approx(3599.6)
    assert [wait.idle, beside.idle, after.idle] == [None, None, None]
    assert wait.x < beside.x
    assert wait.x + wait.width > beside.x + beside.width
    assert after.x >= wait.x + wait.width - 0.2


def test_many_waits_leave_room_for_what_ran() -> None:
    waits = [step(n, 100.0 * n, 100, kind="receive") for n in range(1, 100)]
    *_, work = waterfall([*waits, step(100, 9905, 5)], START.isoformat(), finished=True)
    assert work.width > WIDTH / 3


def test_a_wait_that_timed_out_took_until_then() -> None:
    until = (START + timedelta(minutes=5)).isoformat()
    [row] = waterfall([step(1, 0, kind="receive", timed_out=True, until=until)], until, finished=True)
    assert row.seconds == 300


def test_a_waterfall_of_odd_steps_has_no_negative_width() -> None:
    steps = [step(1, 5, -3), step(2, 1, 0), step(3, 0, pending=True, kind="wait"), step(4, 0, 1e12)]
    for row in waterfall(steps, START.isoformat(), finished=False):
        assert row.x >= 0
        assert row.width > 0


def test_a_timeline_has_no_negative_length() -> None:
    job = {
        "enqueued_at": "2030-01-01T00:00:10+00:00",
        "run_at": "2030-01-01T00:00:00+00:00",
        "claimed_at": "2030-01-01T00:00:05+00:00",
        "finished_at": "2030-01-01T00:00:01+00:00",
        "state": "succeeded",
        "worker_id": None,
        "epoch": 1,
        "failures": list[Any](),
    }
    phases = phases_of(job, "2030-01-01T00:01:00+00:00")
    assert [phase.name for phase in phases] == ["waited for a worker", "ran, succeeded"]
    assert all(phase.seconds >= 0 and phase.width > 0 for phase in phases)


def lived(claimed: int | None, ended: int | None, epoch: int, *failed: tuple[int, int, int], **other: Any) -> list[str]:
    """The phases of a job that was enqueued at 0, with their seconds; `failed` has epochs, claims and failures."""

    def at(second: int | None) -> str | None:
        return None if second is None else (START + timedelta(seconds=second)).isoformat()

    failures = [
        {"epoch": number, "attempt": number, "claimed_at": at(begun), "failed_at": at(failed_at)}
        for number, begun, failed_at in failed
    ]
    job = {
        "enqueued_at": at(0),
        "run_at": at(other.get("due", 0)),
        "claimed_at": at(claimed),
        "finished_at": at(ended),
        "state": other.get("state", "succeeded"),
        "worker_id": other.get("worker"),
        "epoch": epoch,
        "failures": failures,
    }
    return [f"{phase.name} {phase.seconds:g}" for phase in phases_of(job, at(1000))]


def test_a_timeline_claims_to_know_no_more_than_the_row_does() -> None:
    assert lived(2, 5, 1) == ["waited for a worker 2", "ran, succeeded 3"]
    assert lived(7, 9, 1, due=5) == ["delayed 5", "waited for a worker 2", "ran, succeeded 2"]
    assert lived(None, None, 0, due=2000, state="scheduled") == ["delayed 1000"]
    assert lived(None, 600, 0, due=2000, state="cancelled") == ["delayed 600"]
    assert lived(None, None, 0, state="blocked") == ["blocked 1000"]
    # It ran, slept and ran again; only the last claim is known.
    assert lived(902, 903, 2) == ["earlier runs and waits 902", "ran, succeeded 1"]
    assert lived(902, None, 3, state="waiting") == ["earlier runs and waits 902", "began; now waiting 98"]
    assert lived(2, 3, 1, state="cancelled", worker="w")[1:] == ["ran, cancelled 1"]
    assert lived(2, 900, 1, state="cancelled")[1:] == ["ran and waited, cancelled 898"]
    # It was snoozed, and waits for the first time.
    assert lived(2, None, 1, due=1500, state="scheduled") == ["waited for a worker 2", "began; now scheduled 998"]
    assert lived(9, 10, 2, (1, 1, 4)) == [
        "waited for a worker 1", "attempt 1 failed 3", "waited to try again 5", "ran, succeeded 1",
    ]  # fmt: skip
    # Between the failures it was handed back. Of many failures only the newest are given.
    assert lived(90, 99, 9, (5, 20, 30), (6, 40, 50), (9, 90, 99), state="failed") == [
        "earlier runs and waits 20", "attempt 5 failed 10", "waited to try again 10", "attempt 6 failed 10",
        "earlier runs and waits 40", "attempt 9 failed 9",
    ]  # fmt: skip
    assert lived(1, 50, 1, (1, 1, 4), state="cancelled")[2:] == ["waited to try again 46"]
    assert lived(1, None, 1, (1, 1, 4), state="scheduled")[2:] == ["waits to try again 996"]


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


def test_a_signature_becomes_a_form_and_a_form_arguments() -> None:
    app = App("postgresql://nowhere")

    @app.task
    def order(
        item: str,
        count: int,
        size: Size,
        /,
        gift: bool = False,
        paid: Literal["card", 1] = "card",
        note: str | None = None,
        extra: dict[str, int] | None = None,
        at: datetime | None = None,
    ) -> None: ...

    fields = {field.name: field for field in fields_of(order)}
    assert {name: field.widget for name, field in fields.items()} == {
        "item": "text",
        "count": "number",
        "size": "choice",
        "gift": "choice",
        "paid": "choice",
        "note": "text",
        "extra": "json",
        "at": "line",
    }
    assert fields["size"].choices == (('"s"', "SMALL"), ('"l"', "LARGE"))
    assert [name for name, field in fields.items() if field.required] == ["item", "count", "size"]
    typed = {"arg.item": ["a\r\nb"], "arg.count": ["12345678901234567890"], "arg.size": ['"l"'], "arg.gift": ["true"]}
    given = arguments_from(list(fields.values()), {**typed, "arg.extra": ['{"a": 1}'], "arg.at": ["2030-01-01T00:00Z"]})
    assert given == {
        "item": "a\nb",
        "count": 12345678901234567890,
        "size": "l",
        "gift": True,
        "extra": {"a": 1},
        "at": "2030-01-01T00:00Z",
    }
    assert order.codec.call_with(given)[0] == ("a\nb", 12345678901234567890, "l")


@dataclass
class Item:
    sku: str
    count: int = 1
    parts: list[Item] | None = None


class Address(msgspec.Struct):
    city: str
    size: Size = Size.SMALL


_OSLO = Address("Oslo")


class Delivery(BaseModel):
    at: datetime
    where: str = "home"


def test_a_form_says_what_json_an_argument_takes_and_what_its_default_is() -> None:
    app = App("postgresql://nowhere")

    @app.task
    def send(
        items: list[Item],
        to: Address,
        visit: Delivery,
        when: datetime,
        wait: timedelta = timedelta(minutes=5),
        day: date | None = None,
        size: Size = Size.LARGE,
        back: Address = _OSLO,
        count: Annotated[int, msgspec.Meta(ge=1)] | None = None,
        anything: Any = None,
    ) -> None: ...

    fields = {field.name: field for field in fields_of(send)}
    assert fields["items"].outline == '[{"sku": str, "count"?: int, "parts"?: [Item, …] | null}, …]'
    assert fields["to"].outline == '{"city": str, "size"?: "s" | "l"}'
    assert fields["visit"].outline == '{"at": "2026-01-31T12:00:00Z", "where"?: str}'
    assert fields["anything"].outline == ""
    assert (fields["when"].hint, fields["wait"].hint) == ("such as 2026-01-31T12:00:00Z", "PT300S")
    assert (fields["day"].hint, fields["day"].type) == ("null, or such as 2026-01-31", "date | None")
    assert (fields["size"].default, fields["back"].default) == ('"l"', '{"city":"Oslo","size":"s"}')
    assert (fields["count"].widget, fields["count"].type) == ("number", "int | None")
    typed = {"arg.items": ['[{"sku": "a"}]'], "arg.to": ['{"city": "Oslo"}'], "arg.visit": ['{"at": "2026-01-31"}']}
    with pytest.raises(Refused, match="no argument 'itmes': it takes items, to"):
        arguments_from(list(fields.values()), {**typed, "arg.itmes": ["[]"]})


def test_hidden_fields_are_hidden_at_every_depth() -> None:
    redaction = Redaction(["Token"])
    assert redaction.apply({"a": [{"TOKEN": {"x": 1}}], "b": 2}) == {"a": [{"TOKEN": "[redacted]"}], "b": 2}


def test_lengths_and_counts_read_well() -> None:
    assert [length(n) for n in (-5, 0, 0.0123, 5.04, 59, 61, 3600, 90_061)] == [
        "0 s",
        "0 s",
        "12 ms",
        "5.0 s",
        "59 s",
        "1m 1s",
        "1h",
        "1d 1h",
    ]
    assert [count(n) for n in (0, 10_000, 10_001)] == ["0", "10,000", "10,000+"]
    assert [count(n, more=True) for n in (0, 37, 10_000)] == ["0+", "37+", "10,000+"]
    assert (size(512), size(123456789)) == ("512 B", "118 MB")
    assert ago("2030-01-01T00:00:00+00:00", "2030-01-01T02:00:00+00:00") == "2h ago"
    assert between("infinity", "2030-01-01T02:00:00+00:00") is None
