"""Workers run on other CPUs than the thread that wakes them."""

import os

import pytest

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.threads import affinity
from puregraph.ops.native.threads.workers import Workers

if not jit.available():
    pytest.skip(str(jit.missing()), allow_module_level=True)
if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
    pytest.skip("this process may use one CPU, or cannot choose one", allow_module_level=True)

CPUS = os.sched_getaffinity(0)


@pytest.fixture
def workers():
    """A function that makes so many threads; they end with the test."""
    made = []

    def make(count):
        made.append(Workers(count))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def cpusOf(team):
    """The CPUs that each worker may use."""
    return [os.sched_getaffinity(worker.native_id) for worker in team.workers]


def test_workers_that_are_woken_run_on_any_cpu_but_that_of_the_thread_that_wakes_them(workers, monkeypatch):
    team = workers(2)
    for cpu in sorted(CPUS)[:2] * 2:
        monkeypatch.setattr(affinity, "currentCpu", lambda cpu=cpu: cpu)
        team.wake()
        assert cpusOf(team) == [CPUS - {cpu}]
    assert os.sched_getaffinity(0) == CPUS


def test_workers_without_a_cpu_for_each_are_left_where_they_are(workers):
    team = workers(len(CPUS) + 1)
    team.wake()
    assert cpusOf(team) == [CPUS] * len(CPUS)


def test_where_the_cpu_is_unknown_workers_are_left_where_they_are(workers, monkeypatch):
    monkeypatch.setattr(affinity, "currentCpu", lambda: -1)
    team = workers(2)
    team.wake()
    assert cpusOf(team) == [CPUS]


def test_a_worker_that_has_ended_is_passed_over(workers):
    team = workers(2)
    team.wake()
    gone = team.workers[0].native_id
    team.stop()
    affinity.keepOff(min(CPUS), [gone])


def test_the_cpu_of_the_calling_thread_is_known():
    assert affinity.currentCpu() in CPUS
