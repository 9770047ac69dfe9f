"""All threads or one: whichever was faster, found out by a few runs and not once and for all."""

import threading

import pytest

from puregraph.ops.native.threads import tuner
from puregraph.ops.native.threads.tuner import (
    MAX_LOSING_RUNS,
    MAX_TRIAL_GAP,
    MAX_TUNED_NANOSECONDS,
    MIN_TRIAL_GAP,
    TRIAL_RUNS,
    WARM,
    ThreadTuner,
)


class Machine:
    """Time, and how much of it a run takes alone or not."""

    def __init__(self, together, alone, monkeypatch):
        self.now, self.takes, self.runs = 0, {False: together, True: alone}, []
        self.tuner = ThreadTuner()
        monkeypatch.setattr(tuner, "perf_counter_ns", lambda: self.now)

    def go(self, isAlone):
        self.runs.append(isAlone)
        spent = self.takes[isAlone]
        self.now += spent(len(self.runs)) if callable(spent) else spent

    def run(self, count):
        """As a table does; how many runs were alone."""
        before = len(self.runs)
        for _ in range(count):
            if self.tuner.left:
                self.tuner.left -= 1
                self.go(self.tuner.isAlone)
            else:
                self.tuner.run(self.go)
        return sum(self.runs[before:])


@pytest.mark.parametrize(("together", "alone", "isAlone"), [(1000, 500, True), (500, 800, False), (1000, 990, False)])
def test_the_faster_way_is_taken(together, alone, isAlone, monkeypatch):
    machine = Machine(together, alone, monkeypatch)
    assert machine.run(WARM + TRIAL_RUNS) == 0
    machine.run(TRIAL_RUNS)
    assert machine.tuner.isAlone is isAlone and machine.tuner.left
    assert machine.run(MIN_TRIAL_GAP - 1) == (MIN_TRIAL_GAP - 1) * isAlone


def test_what_takes_long_is_left_to_all(monkeypatch):
    machine = Machine(MAX_TUNED_NANOSECONDS, MAX_TUNED_NANOSECONDS // 4, monkeypatch)
    assert machine.run(3000) == 0


def test_a_way_that_is_much_slower_is_given_up_soon_and_tried_ever_more_seldom(monkeypatch):
    machine = Machine(1000, 8000, monkeypatch)
    assert machine.run(WARM + 2 * TRIAL_RUNS) == MAX_LOSING_RUNS
    assert machine.run(20 * MAX_TRIAL_GAP) < 20 * 2 * MAX_LOSING_RUNS


def test_the_first_run_of_another_way_may_be_slow(monkeypatch):
    machine = Machine(1000, lambda n: 500 if n > WARM + TRIAL_RUNS + 2 else 5000, monkeypatch)
    machine.run(WARM + 2 * TRIAL_RUNS)
    assert machine.tuner.isAlone


def test_a_choice_made_while_somebody_else_was_busy_is_soon_looked_at_again(monkeypatch):
    machine = Machine(lambda n: 5000 if n <= WARM + TRIAL_RUNS else 1000, 2000, monkeypatch)
    machine.run(WARM + 2 * TRIAL_RUNS)
    assert machine.tuner.isAlone
    machine.run(30)
    assert not machine.tuner.isAlone


def test_a_machine_may_change(monkeypatch):
    machine = Machine(1000, 500, monkeypatch)
    machine.run(WARM + 2 * TRIAL_RUNS)
    assert machine.tuner.isAlone
    machine.takes[False] = 250
    machine.run(2 * MAX_TRIAL_GAP)
    assert not machine.tuner.isAlone
    machine.takes[False] = 4000
    machine.run(2 * MAX_TRIAL_GAP)
    assert machine.tuner.isAlone


def test_several_threads_may_run_while_one_is_measured():
    found, inside, leave = ThreadTuner(), threading.Event(), threading.Event()
    runs = []

    def slowly(isAlone):
        inside.set()
        assert leave.wait(10)

    thread = threading.Thread(target=found.run, args=(slowly,))
    thread.start()
    assert inside.wait(10)
    found.run(runs.append)
    leave.set()
    thread.join()
    assert runs == [False]


def test_an_error_of_a_run_ends_no_trial(monkeypatch):
    machine = Machine(1000, 500, monkeypatch)

    def fail(isAlone):
        raise RuntimeError("not today")

    machine.run(WARM + 1)
    with pytest.raises(RuntimeError):
        machine.tuner.run(fail)
    machine.run(2 * TRIAL_RUNS)
    assert machine.tuner.isAlone
