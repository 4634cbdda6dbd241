"""`stepwell limits`: limits and rates by key."""

from __future__ import annotations

from cli.commands import Jobs, Run

LIMITED = '{"admission": {"limits": [{"key": "tenant-acme", "most": 2}]}}'
RATED = '{"admission": {"rates": [{"key": "api", "interval": 1, "burst": 1}]}}'


def test_limits_are_listed_set_and_unset(run: Run, jobs: Jobs) -> None:
    assert run("limits").out == "no job has a limit or rate, and none is set\n"
    jobs.ready(policy=LIMITED)
    [listed] = run("limits", "--json").json
    assert (listed["key"], listed["most"], listed["held"], listed["waiting"]) == ("tenant-acme", 2, 0, 1)
    ran = run("limits", "set", "tenant-acme", "--most", "5", "--rate", "100/m", "--burst", "7")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "at most 5 with key tenant-acme run at once",
        "at most 100/m with key tenant-acme start, up to 7 at once",
    ]
    assert run("limits").out.splitlines()[1].split()[:6] == ["tenant-acme", "5*", "0", "1", "1.667/s*", "7"]
    ran = run("limits", "set", "tenant-acme", "--rate", "100/m", "--smooth")
    assert ran.out == "at most 100/m with key tenant-acme start, evenly spaced\n"
    assert run("limits").out.splitlines()[1].split()[:6] == ["tenant-acme", "5*", "0", "1", "1.664/s*", "1"]
    assert run("limits", "unset", "tenant-acme").out == "key tenant-acme is as in the code\n"
    assert run("limits").out.splitlines()[1].split() == ["tenant-acme", "2", "0", "1"]


def test_a_mistyped_key_is_warned_about(run: Run, jobs: Jobs) -> None:
    jobs.ready(policy=LIMITED)
    ran = run("limits", "set", "tenant-acm", "--most", "5")
    assert ran.code == 0
    assert ran.err == (
        "stepwell: warning: no live job has a limit or rate with the key 'tenant-acm': did you mean 'tenant-acme'?\n"
    )
    ran = run("limits", "unset", "tenant-acmm")
    assert (ran.code, ran.err) == (1, "stepwell: nothing is set for key 'tenant-acmm': did you mean 'tenant-acm'?\n")
    assert run("limits", "unset", "tenant-acm").code == 0


def test_a_number_that_no_job_is_under_is_warned_about(run: Run, jobs: Jobs) -> None:
    jobs.ready(policy=LIMITED)
    jobs.ready(policy=RATED)
    assert "a limit with the key 'tenant-acme', and no rate" in run("limits", "set", "tenant-acme", "--rate", "5/s").err
    assert "a rate with the key 'api', and no limit" in run("limits", "set", "api", "--most", "5").err
    assert run("limits", "set", "tenant-acme", "--most", "5").err == ""
    assert run("limits", "set", "api", "--rate", "5/s").err == ""


def test_what_cannot_be_set_is_refused(run: Run) -> None:
    assert "set what? Give --most N, --rate 50/s, or both" in run("limits", "set", "k").err
    assert "--burst needs --rate" in run("limits", "set", "k", "--most", "1", "--burst", "3").err
    assert "--smooth needs --rate" in run("limits", "set", "k", "--most", "1", "--smooth").err
    assert "leave one out" in run("limits", "set", "k", "--rate", "1/s", "--smooth", "--burst", "3").err
    for rate in ("50", "x/s", "0/s", "5/0s", "5/fortnight", "/s", "5/-1s", "1/1x", "1/6000w"):
        ran = run("limits", "set", "k", "--rate", rate)
        assert (ran.code, f"--rate is '{rate}'" in ran.err) == (2, True), rate
    assert "the limit of k is -1: give 0 to 1000000" in run("limits", "set", "k", "--most", "-1").err


def test_sizes_are_another_command(run: Run) -> None:
    ran = run("limits", "set", "args", "5MB")
    assert ran.code == 2
    assert "run 'stepwell sizes set args 5MB'" in ran.err
