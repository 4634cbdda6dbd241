"""`stepwell worker --metrics-port`: one port for the worker, or for all of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.commands import Jobs, Start
from cli.process import Process
from scraping import get, samples_in


@pytest.mark.slow
@pytest.mark.crash
def test_a_supervisor_serves_all_of_its_processes(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--processes", "2", "--metrics-port", "0", command=("worker", "plant:app"))
    process.says("claims from", 2)
    url = next(word for word in process.log.split() if word.startswith("http://")).rstrip(";")
    assert url.startswith("http://127.0.0.1:")
    job = jobs.ready("grow", '{"megabytes": 1}')
    process.until(lambda: jobs.state(job) == "succeeded")
    # The worker counts a run when it hears that its outcome was written, which others may see before.
    process.until(lambda: "stepwell_jobs_total{" in get(url)[1])
    status, text = get(url)
    assert status == 200
    found = samples_in(text)
    ended = {labels: value for (name, labels), value in found.items() if name == "stepwell_jobs_total"}
    assert sum(ended.values()) == 1
    assert {dict(labels)["process"] for (name, labels) in found if name == "stepwell_slots"} == {"1", "2"}
    assert found[("stepwell_processes_up", ())] == found[("stepwell_processes", ())] == 2
    assert found[("stepwell_process_starts_total", (("process", "1"),))] == 1
    assert get(url.replace("metrics", "healthz"))[0] == 200
    assert get(url.replace("metrics", "readyz")) == (200, "process 1: ok\nprocess 2: ok\n")
    process.signal()
    assert process.end() == 0
