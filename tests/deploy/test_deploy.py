"""The files in deploy/ against the real thing: metrics that exist, SQL that runs, alerts that fire, units that load."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from scraping import Samples, get, samples_in, scrape
from waiting import auntil

from stepwell import App, JobFailed, Retry, Worker
from stepwell.contrib.prometheus import Prometheus
from stepwell.contrib.prometheus.processes import ProcessMetrics

from . import promql
from .promql import seconds

DEPLOY = Path(__file__).parents[2] / "deploy"
# Labels that Prometheus itself adds, and that a supervisor adds.
_ADDED = {"instance", "job", "process"}


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    return group["rules"]


def panels(name: str) -> list[dict[str, Any]]:
    return json.loads((DEPLOY / f"grafana/{name}.json").read_text())["panels"]


def expressions() -> list[str]:
    drawn = [target["expr"] for panel in panels("stepwell-prometheus") for target in panel["targets"]]
    return drawn + [rule["expr"] for rule in rules()]


async def test_every_expression_names_metrics_and_labels_that_a_worker_has(dsn: str) -> None:
    metrics = Prometheus(port=0)
    app = App(dsn, plugins=[metrics], retry=Retry(max_attempts=1))

    @app.task
    async def works() -> None: ...

    async with app, Worker(app):
        await (await works.aenqueue()).aresult(timeout="20s")
        await works.using(queue="elsewhere").aenqueue()
        async with asyncio.timeout(60):
            text = ""
            while "stepwell_leader 1.0" not in text:
                text = (await asyncio.to_thread(get, metrics.url))[1]
    labels: dict[str, set[str]] = {}
    with ProcessMetrics(2, "127.0.0.1", 0) as supervisor:
        of_supervisor = {sample.name for family in supervisor.collect() for sample in family.samples}
    labels.update({name: set() for name in of_supervisor})
    for name, pairs in samples_in(text):
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    page = (DEPLOY.parent / "docs/telemetry.md").read_text()
    documented = set(re.findall(r"(?<=`)stepwell_\w+", page))
    kinds = re.compile(r"_(bucket|count|sum|created)$")
    assert {kinds.sub("", name) for name in labels} == documented
    unknown: list[str] = []
    for expression in expressions():
        names = re.findall(r"\b(stepwell_\w+)(?:\{([^}]*)\})?", expression)
        assert names, expression
        known: set[str] = set(_ADDED)
        for name, matchers in names:
            unknown += [] if name in labels else [f"{name} in {expression}"]
            known |= labels.get(name, set())
            used = set(re.findall(r"(\w+)\s*=", matchers))
            unknown += [f"{name} has no {label}" for label in used - labels.get(name, set()) - _ADDED]
        for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
            unknown += [f"{label} in {expression}" for label in set(re.split(r"[, ]+", grouping)) - known]
    assert unknown == []
    outcomes = set(re.findall(r'outcome=~?"([\w|]+)"', " ".join(expressions())))
    assert outcomes == {"failed", "succeeded", "succeeded|failed"}


def test_every_panel_of_sql_runs_for_a_viewer(dsn: str, conn: psycopg.Connection[Any]) -> None:
    app = App(dsn, retry=Retry(max_attempts=1))

    @app.task
    def works() -> None: ...

    works.enqueue()
    app.close()
    for panel in panels("stepwell-postgres"):
        for target in panel["targets"]:
            query = target["rawSql"].replace("$__timeFrom()", "now() - interval '3 hours'")
            query = query.replace("$__timeTo()", "now()")
            assert "$" not in query
            found = conn.execute(query)
            assert found.description is not None, panel["title"]
            if target["format"] == "time_series":
                assert found.description[0].name == "time"
    query = yaml.safe_load((DEPLOY / "kubernetes/keda.yaml").read_text())["spec"]["triggers"][0]["metadata"]["query"]
    assert conn.execute(query).fetchall() == [(1,)]


@pytest.mark.parametrize("name", ["stepwell-prometheus", "stepwell-postgres"])
def test_a_dashboard_can_be_imported(name: str) -> None:
    board = json.loads((DEPLOY / f"grafana/{name}.json").read_text())
    assert board["uid"] == name
    assert board["schemaVersion"] == 39
    [given] = board["__inputs"]
    sources = {panel["datasource"]["uid"] for panel in board["panels"]}
    assert sources == {f"${{{given['name']}}}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_alert_is_made_to_fire() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus/alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in rules()}


def numbers(values: str) -> list[float]:
    """The values of a series as promtool writes them: "0x60 1+1x30"."""
    found: list[float] = []
    for part in values.split():
        first, step, times = re.fullmatch(r"(\d+)(?:\+(\d+))?x(\d+)", part).groups()  # pyright: ignore[reportOptionalMemberAccess]
        found += [float(first) + n * float(step or 0) for n in range(int(times) + 1)]
    return found


def fires(rule: dict[str, Any], series: promql.Series, at: float) -> list[dict[str, str]]:
    """The labels with which a rule fires: its expression has held for as long as it says, checked each minute."""
    since = seconds(rule.get("for", "0s"))
    if at < since:
        return []
    times = [at - 60 * n for n in range(int(since // 60) + 1)]
    held: list[set[promql.Labels]] = []
    for time in times:
        vector = promql.evaluate(rule["expr"], series, time)
        assert isinstance(vector, dict)
        held.append(set(vector))
    lasting = held[0].intersection(*held)
    return [{**rule["labels"], **dict(labels)} for labels in lasting]


@pytest.mark.parametrize(
    "case", yaml.safe_load((DEPLOY / "prometheus/alerts_test.yml").read_text())["tests"], ids=lambda case: case["name"]
)
def test_each_alert_fires_when_it_should_and_not_before(case: dict[str, Any]) -> None:
    by_name = {rule["alert"]: rule for rule in rules()}
    series: dict[tuple[str, promql.Labels], list[tuple[float, float]]] = {}
    for given in case["input_series"]:
        name, _, labels = given["series"].partition("{")
        pairs = frozenset(re.findall(r'(\w+)="([^"]*)"', labels))
        series[name, pairs] = [(60.0 * n, value) for n, value in enumerate(numbers(given["values"]))]
    for check in case["alert_rule_test"]:
        found = fires(by_name[check["alertname"]], series, seconds(check["eval_time"]))
        assert found == [alert["exp_labels"] for alert in check.get("exp_alerts", [])], check


async def test_every_expression_has_a_value_on_the_output_of_a_worker(dsn: str) -> None:
    metrics = Prometheus(port=0)
    app = App(dsn, plugins=[metrics], retry=Retry(max_attempts=1))

    @app.task
    async def works(n: int) -> None:
        if n == 0:
            raise LookupError

    pages: list[Samples] = []
    async with app, Worker(app):
        for n in range(2):
            await works.using(queue="elsewhere").aenqueue(n)
            await (await works.aenqueue(1)).aresult(timeout="20s")
            with pytest.raises(JobFailed):
                await (await works.aenqueue(0)).aresult(timeout="20s")
            await auntil(lambda: metrics.database_gauges())
            pages.append(await scrape(metrics.url))
    with ProcessMetrics(2, "127.0.0.1", 0) as supervisor:
        for family in supervisor.collect():
            for sample in family.samples:
                pages[1][sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    series: dict[tuple[str, promql.Labels], list[tuple[float, float]]] = {}
    for n, page in enumerate(pages):
        for (name, labels), value in page.items():
            series.setdefault((name, frozenset(labels)), []).append((60.0 * n, value))
    alerts = [rule["expr"] for rule in rules()]
    for expression in expressions():
        filled = expression.replace("$__rate_interval", "5m").replace("$task", ".*").replace("$queue", ".*")
        promql.evaluate(filled, series, 60.0)
        # An alert that does not fire has no value, so look at what it compares.
        compared = re.split(r" (?:==|<|>|and) ", filled)[0] if expression in alerts else filled
        assert promql.evaluate(compared, series, 60.0), expression


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: the rules are not evaluated")
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_accepts_the_rules_and_makes_each_alert_fire(command: tuple[str, ...]) -> None:
    run = subprocess.run(
        ["promtool", *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_deployment_probes_the_port_that_the_worker_serves() -> None:
    [container] = yaml.safe_load((DEPLOY / "kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"][
        "containers"
    ]
    port = container["ports"][0]
    assert f"--metrics-port={port['containerPort']}" in container["args"]
    for probe, path in (("livenessProbe", "/healthz"), ("startupProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/stepwell-worker.service").read_text()
    unit = tmp_path / "stepwell-worker.service"
    unit.write_text(text.replace("/opt/shop/.venv/bin/stepwell", "/bin/true"))
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert not [line for line in run.stderr.splitlines() if "stepwell-worker" in line], run.stderr


@pytest.mark.parametrize("file", ["docker/Dockerfile", "kubernetes/worker.yaml", "systemd/stepwell-worker.service"])
def test_every_option_that_a_file_gives_exists(file: str) -> None:
    from typer.main import get_command

    from stepwell.cli.commands import cli

    commands: Any = get_command(cli)
    known = {option for parameter in commands.commands["worker"].params for option in parameter.opts}
    text = re.sub(r"(?m)^\s*#.*$", "", (DEPLOY / file).read_text())
    given = set(re.findall(r"(?<=[\s\"])--(?:metrics|log|processes)[\w-]*", text))
    assert given
    assert given <= known
