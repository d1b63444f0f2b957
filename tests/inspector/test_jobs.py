"""What runs in the background."""

from __future__ import annotations

import threading

import pytest
from support.inspected import wait

from hermes_core import HermesError
from hermes_inspector.jobs import Jobs


def test_a_job_has_a_result_or_a_problem():
    jobs = Jobs(clock=lambda: 7.0)
    good = jobs.start("a", "Adding", lambda: 1 + 1, "about")
    bad = jobs.start("b", "Failing", lambda: 1 // 0)
    ugly = jobs.start("c", "Refusing", lambda: (_ for _ in ()).throw(HermesError("no", hint="go")))
    wait(lambda: not any(jobs.get(each.id).running for each in (good, bad, ugly)))
    assert jobs.get(good.id).result == 2
    assert jobs.get(good.id).about == "about"
    assert "ZeroDivisionError" in jobs.get(bad.id).problem
    assert jobs.get(ugly.id).problem == "no (go)"
    assert jobs.get(good.id, "b") is None
    assert jobs.newest("a").id == good.id
    assert jobs.get("nothing") is None
    jobs.close()


def test_a_job_that_waits_holds_up_no_other_kind_and_is_bounded():
    jobs, gate = Jobs(), threading.Event()
    try:
        for _ in range(4):
            jobs.start("slow", "Waiting", gate.wait)
        with pytest.raises(HermesError, match="too many jobs are queued"):
            jobs.start("slow", "Waiting", gate.wait)
        quick = jobs.start("quick", "Quick", lambda: "done")
        wait(lambda: jobs.get(quick.id).result == "done")
        assert jobs.newest("slow").running
    finally:
        gate.set()
        jobs.close()


def test_old_results_are_forgotten_and_running_jobs_are_not():
    jobs, gate = Jobs(), threading.Event()
    try:
        waiting = jobs.start("slow", "Waiting", gate.wait)
        first = jobs.start("quick", "Quick", int)
        wait(lambda: not jobs.get(first.id).running)
        for _ in range(60):
            last = jobs.start("quick", "Quick", int)
            wait(lambda last=last: not jobs.get(last.id).running)
        assert jobs.get(first.id) is None
        assert jobs.get(waiting.id).running
    finally:
        gate.set()
        jobs.close()
