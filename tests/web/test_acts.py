"""Every act over HTTP, as a form sends it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from web.site import OURS, Site, served

from stepwell import App, JobHandle
from stepwell.postgres import queries
from stepwell.testing import drain
from stepwell.web import VIEWER, Dashboard


def new(app: App, name: str = "Ada", **options: Any) -> JobHandle[Any]:
    return app.tasks["greet"].using(**options).enqueue(name)


def state_of(job: JobHandle[Any]) -> str:
    info = job.info()
    assert info is not None
    return info.state


def test_an_act_goes_back_to_the_page_with_its_filters(site: Site, shop: App) -> None:
    job = new(shop, delay="1h")
    answer = site.post(f"/jobs/{job.id}/cancel", {"back": "/jobs?state=scheduled&queue=a%2Fb", "reason": "enough"})
    assert answer.status == 303
    assert answer.headers["location"] == "/jobs?state=scheduled&queue=a%2Fb"
    assert answer.said == "The job is cancelled"
    info = job.info()
    assert info is not None
    assert (info.state, info.error) == ("cancelled", "enough")
    said = site.get("/jobs", Cookie=answer.headers["set-cookie"].partition(";")[0])
    assert "The job is cancelled" in said.text
    assert "stepwell_said=" in said.headers["set-cookie"]


@pytest.mark.parametrize(
    "back", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "/a\r\nb: c"]
)
def test_an_act_goes_back_to_no_other_site(site: Site, shop: App, back: str) -> None:
    answer = site.post(f"/jobs/{new(shop, delay='1h').id}/cancel", {"back": back})
    assert answer.headers["location"] == "/"


def test_a_cancelled_job_is_retried_and_a_delayed_one_runs_now(site: Site, shop: App) -> None:
    cancelled, delayed = new(shop, delay="1h"), new(shop, delay="1h")
    cancelled.cancel()
    assert site.post(f"/jobs/{cancelled.id}/retry").status == 303
    assert site.post(f"/jobs/{delayed.id}/run").status == 303
    assert (state_of(cancelled), state_of(delayed)) == ("ready", "ready")
    again = site.post(f"/jobs/{delayed.id}/run")
    assert again.said == "The job is already ready: nothing to run"


def test_acts_on_a_selection_say_how_many(site: Site, shop: App) -> None:
    jobs = [new(shop, delay="1h") for _ in range(3)]
    ids = [str(job.id) for job in jobs]
    headers = {**OURS, "Accept": "application/json"}
    answer = site.post("/jobs/cancel", {"id": ids}, headers)
    assert answer.status == 200
    assert set(answer.json["changed"]) == set(ids)
    assert site.post("/jobs/retry", {"id": ids}, headers).json["said"] == "3 jobs will run again"
    assert site.post("/jobs/retry", {"id": ["x"]}).status == 400
    assert site.post("/jobs/retry").status == 400


def test_a_signal_is_sent(site: Site, shop: App) -> None:
    job = shop.tasks["approve"].enqueue(3)
    drain(shop)
    assert site.post(f"/jobs/{job.id}/signal", {"name": "approved", "value": "yes"}).status == 400
    assert (
        site.post(f"/jobs/{job.id}/signal", {"name": "approved", "value": '"yes"'}).said == "Signal approved was sent."
    )
    drain(shop)
    assert job.result(timeout="20s") == "yes"
    assert "is not live" in site.post(f"/jobs/{job.id}/signal", {"name": "approved"}).said


def test_a_job_is_forked_at_a_step(site: Site, shop: App) -> None:
    job = shop.tasks["approve"].enqueue(4)
    drain(shop)
    forked = site.post(f"/jobs/{job.id}/fork", {"step": "price"}).headers["location"].rpartition("/")[2]
    info = shop.job(forked).info()
    assert info is not None
    assert (info.forked_from, info.args) == (job.id, {"order": 4})
    assert "no step" in site.post(f"/jobs/{job.id}/fork", {"step": "none"}).said
    assert site.post(f"/jobs/{job.id}/fork").status == 400


def test_a_machine_is_enqueued_with_one_of_its_states(site: Site, shop: App) -> None:
    form = {"task": "lamp", "arg.state": '{"Off": {"watts": 9}}'}
    job_id = site.post("/tasks/enqueue", form).headers["location"].rpartition("/")[2]
    info = shop.job(job_id).info()
    assert info is not None
    assert info.args == {"state": {"Off": {"watts": 9}}}
    for wrong in ('{"Off": {"watts": "many"}}', '{"None": {}}', "5", ""):
        assert site.post("/tasks/enqueue", {**form, "arg.state": wrong}).status == 400, wrong


def test_the_args_of_a_waiting_job_are_edited(site: Site, shop: App) -> None:
    job = new(shop, delay="1h")
    assert site.post(f"/jobs/{job.id}/args", {"args": '{"name": "Eve", "times": 9007199254740993}'}).status == 303
    info = job.info()
    assert info is not None
    assert info.args == {"name": "Eve", "times": 9007199254740993}
    wrong = site.post(f"/jobs/{job.id}/args", {"args": '{"name": 5}'})
    assert "argument 'name'" in wrong.said
    assert site.post(f"/jobs/{job.id}/args", {"args": "[]"}).status == 400


def test_a_queue_with_an_odd_name_is_paused_and_resumed(site: Site, shop: App) -> None:
    queue = "x/y.z%2F"
    assert site.post("/queues/pause", {"queue": queue}).said.startswith(f"Queue {queue} is paused")
    [found] = site.json("/queues?" + urlencode({"name": queue}))["queues"]
    assert found["paused_at"]
    assert site.post("/queues/resume", {"queue": queue}).said == f"Queue {queue} is resumed."
    assert site.post("/queues/resume", {"queue": queue}).said == f"Queue {queue} was not paused."
    assert site.post("/queues/pause").status == 400


def test_a_task_is_paused_and_resumed(site: Site, shop: App) -> None:
    assert "Resume" not in site.get("/tasks?name=greet").text
    assert site.post("/tasks/pause", {"task": "greet"}).said == "Task greet is paused. Running jobs go on."
    assert site.json("/tasks?name=greet")["paused_at"]
    assert "/tasks/resume" in site.get("/tasks?name=greet").text
    with served(Dashboard(shop, rights=VIEWER)) as viewer:
        assert 'id="paused"' in viewer.get("/tasks?name=greet").text
        assert viewer.post("/tasks/resume", {"task": "greet"}).status == 403
    assert site.post("/tasks/resume", {"task": "greet"}).said == "Task greet is resumed."
    assert site.post("/tasks/resume", {"task": "greet"}).said == "Task greet was not paused."
    assert site.json("/tasks?name=greet")["paused_at"] is None


def test_a_schedule_is_paused_resumed_and_triggered(site: Site, shop: App) -> None:
    shop.schedule_task(shop.tasks["greet"], "1h", name="a/b", args={"name": "x"})
    which = {"owner": "shop", "name": "a/b"}
    handle = shop.schedule_named("a/b")
    site.post("/schedules/pause", which)
    info = handle.info()
    assert info is not None
    assert info.paused_at
    site.post("/schedules/resume", which)
    triggered = site.post("/schedules/trigger", which)
    assert triggered.headers["location"] == f"/jobs/{handle.ticks()[0].job_id}"
    assert site.post("/schedules/pause", {"owner": "shop", "name": "none"}).status == 404


def test_a_worker_is_quieted_resumed_and_stopped(site: Site, shop: App) -> None:
    [worker] = shop.database.fetch(
        queries.fleet.register_worker("a/host", 7, "0.0", ["x"], "{}", 5, 600.0, owner="<b>", named=True)
    )

    def found() -> dict[str, Any]:
        return next(one for one in site.json("/workers")["workers"] if one["id"] == worker)

    assert "claims no more" in site.post("/workers/quiet", {"worker": worker}).said
    assert found()["paused"]
    assert site.post("/workers/resume", {"worker": worker}).said == "The worker claims jobs again."
    assert not found()["paused"]
    assert "asked to finish" in site.post("/workers/stop", {"worker": worker}).said
    assert found()["stopping"]
    assert "<b>" not in site.get("/workers").text
    assert site.post("/workers/stop", {"worker": "x"}).status == 400
    assert "no worker" in site.post("/workers/stop", {"worker": str(uuid4())}).text.lower()


def test_everything_is_paused_and_resumed_on_the_page_of_queues(site: Site, shop: App) -> None:
    assert site.post("/queues/resume-all").said == "There was no pause of everything."
    [worker] = shop.database.fetch(
        queries.fleet.register_worker("host", 8, "0.0", ["x"], "{}", 5, 600.0, owner="shop", named=True)
    )
    assert site.post("/workers/resume", {"worker": worker}).said == "The worker was not paused."
    assert "/queues/pause-all" in site.get("/queues").text
    assert site.post("/queues/pause-all").said == "Everything is paused. Running jobs go on."
    said = site.post("/workers/resume", {"worker": worker}).said
    assert said == "This worker has no pause of its own; everything is paused."
    assert "/queues/resume-all" in site.get("/queues").text
    with served(Dashboard(shop, rights=VIEWER)) as viewer:
        page = viewer.get("/queues").text
        assert "stepwell resume --all" in page
        assert "resume-all" not in page
        assert viewer.post("/queues/pause-all").status == 403
        assert viewer.post("/queues/resume-all").status == 403
    assert site.post("/queues/resume-all").said.startswith("Everything is resumed.")
    assert site.json("/queues")["everything_paused_at"] is None


def test_an_invalid_request_is_called_so(site: Site) -> None:
    answer = site.get("/jobs?limit=x")
    assert (answer.status, "<h1>Invalid request</h1>" in answer.text) == (400, True)


def test_a_job_is_enqueued_from_a_form_of_its_signature(site: Site, shop: App) -> None:
    page = site.get("/tasks/enqueue?task=greet").text
    assert 'name="arg.name"' in page
    assert '<option value="&#34;cold&#34;"' in page
    form = {"task": "greet", "arg.name": "Ada", "arg.times": "9007199254740993", "arg.tone": '"cold"', "delay": "1h"}
    answer = site.post("/tasks/enqueue", {**form, "metadata": '{"by": "hand"}', "queue": "by hand"})
    job_id = answer.headers["location"].rpartition("/")[2]
    info = shop.job(job_id).info()
    assert info is not None
    assert info.args == {"name": "Ada", "times": 9007199254740993, "tone": "cold"}
    assert (info.queue, info.metadata, info.state) == ("by hand", {"by": "hand"}, "scheduled")
    clone = site.get(f"/tasks/enqueue?task=greet&like={job_id}").text
    assert 'value="9007199254740993"' in clone


def test_a_form_that_does_not_fit_is_shown_again(site: Site) -> None:
    answer = site.post("/tasks/enqueue", {"task": "greet", "arg.name": "<b>", "arg.times": "often"})
    assert answer.status == 400
    assert "it must be a number" in answer.text
    assert "<b>" not in answer.text.partition('id="enqueue"')[2].partition("</form>")[0]
    assert "&lt;b&gt;" in answer.text
    assert site.post("/tasks/enqueue", {"task": "greet", "arg.name": "x", "delay": "soon"}).status == 400


def test_a_form_may_be_json(site: Site) -> None:
    headers = {**OURS, "Content-Type": "application/json", "Accept": "application/json"}
    answer = site.ask("POST", "/tasks/enqueue", '{"task": "greet", "arg.name": "x", "arg.times": 2}', headers)
    assert answer.json["said"] == "The job was enqueued."
    assert site.ask("POST", "/tasks/enqueue", "[1]", headers).status == 400
    assert site.ask("POST", "/tasks/enqueue", "x" * 3_000_000, headers).status == 413


def test_a_backfill_shows_its_number_first_and_enqueues_it_when_confirmed(site: Site, shop: App) -> None:
    shop.schedule_task(shop.tasks["greet"], "1h", name="back/fill", args={"name": "x"}, overlap="allow")
    which = {"owner": "shop", "name": "back/fill", "since": "3h"}
    assert 'action="/schedules/backfill"' in site.get("/schedules?owner=shop&name=back/fill").text
    page = site.post("/schedules/backfill", which)
    assert page.status == 200
    assert "Enqueue 3 runs" in page.text
    assert shop.schedule_named("back/fill").ticks() == []
    headers = {**OURS, "Accept": "application/json"}
    planned = site.post("/schedules/backfill", which, headers).json
    assert (planned["ticks"], planned["enqueued"], planned["ran"]) == (3, 3, 0)
    changed = site.post("/schedules/backfill", {**which, "expected": "7"}, headers)
    assert (changed.status, changed.json["changed"]) == (409, True)
    done = site.post("/schedules/backfill", {**which, "until": planned["until"], "expected": "3"})
    assert done.said == "3 runs of back/fill were enqueued."
    assert len(shop.schedule_named("back/fill").ticks()) == 3
    assert "nothing to enqueue" in site.post("/schedules/backfill", {**which, "until": planned["until"]}).text
    assert site.post("/schedules/backfill", {**which, "since": "often"}).status == 400
    assert site.post("/schedules/backfill", {**which, "name": "none"}).status == 404
