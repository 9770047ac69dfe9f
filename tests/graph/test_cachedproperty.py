"""Attributes that are computed when they are first read."""

import os
import signal
import threading
import time

import pytest

from puregraph.core.base.cachedproperty import CachedProperty


class Slow:
    """Computes for as long as it is told to."""

    def __init__(self, go):
        self.go, self.counted, self.begun = go, 0, threading.Event()

    @CachedProperty
    def value(self):
        """What it is."""
        self.counted += 1
        self.begun.set()
        return self.go.wait(30)


def test_an_attribute_is_computed_once_and_may_be_forgotten():
    go = threading.Event()
    go.set()
    slow = Slow(go)
    assert slow.value and slow.value and slow.counted == 1
    del slow.value
    assert slow.value and slow.counted == 2
    assert Slow.value.__doc__ == "What it is."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_while_an_attribute_is_computed_does_not_wait_for_it():
    slow, done = Slow(threading.Event()), threading.Event()
    done.set()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    slow.begun.wait(30)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if Slow(done).value else 1)
    slow.go.set()
    end = time.monotonic() + 60
    found = (0, None)
    while found[0] == 0 and time.monotonic() < end:
        found = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    if found[0] == 0:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    thread.join()
    assert found == (pid, 0)
