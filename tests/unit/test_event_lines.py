"""Every event's log line names only what the event has."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from string import Formatter

from stepwell import telemetry
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import AttemptFailed
from stepwell.telemetry.worker import OutcomesUnwritten, WorkerStopped, WorkerStopping


def events(kind: type[Telemetry]) -> list[type[Telemetry]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *events(sub))]


def test_lines_name_only_fields_and_properties_of_their_events() -> None:
    for module in iter_modules(telemetry.__path__, "stepwell.telemetry."):
        import_module(module.name)
    found = events(Telemetry)
    assert len(found) > 50
    wrong = [
        f"{event.__name__}: {name}"
        for event in found
        for _, name, _, _ in Formatter().parse(event.line)
        if name is not None and not (name.startswith("0.") and hasattr(event, name.removeprefix("0.")))
    ]
    assert wrong == []
    assert [event.__name__ for event in found if not event.line and event.text is Telemetry.text] == [
        "JobEvent",
        "ProcessEvent",
    ]


def test_lines_count_jobs_and_durations_as_people_do() -> None:
    assert WorkerStopping(0, 30.0).text() == "stopping: no job is running"
    assert WorkerStopping(5, 90.0, ("a 1", "a 2", "b 3")).text() == (
        "stopping: waiting up to 1.5m for 5 running jobs: a 1, a 2, b 3 and 2 others; a second Ctrl-C hands them back "
        "and ends the worker within seconds"
    )
    assert WorkerStopping(1, 0.0, ("a 1",)).text() == "stopping: handing back 1 running job: a 1"
    assert OutcomesUnwritten(1, 0).text() == (
        "stopped with 1 outcome that could not be written in time, the database being away: its job will run again"
    )
    assert OutcomesUnwritten(3, 2).text() == (
        "stopped with 3 outcomes that could not be written in time, their jobs being locked by other sessions, which "
        "the log names: their jobs will run again when those let go"
    )
    assert WorkerStopped(1, 2).text() == "stopped: 1 job succeeded, 2 attempts failed"
    failed = AttemptFailed("7", "work", "default", 1, 3, "error", "ValueError", "no", None, 0.00934)
    assert failed.text().endswith("; next try in 9.34ms")
