"""Loading a checkpoint that does not fit, or is interrupted: all of it or nothing, and one clear error."""

import gc
import io
import signal
import sys
from itertools import count

import numpy as np
import pytest
from fakecupy import FakeArray, useGpu
from nets import small, values

from puregraph import optimizers
from puregraph.core import device
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import Archive, write
from puregraph.core.storage.hdf import Array
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.serialize import staging

# What does not fit ----------------------------------------------------------------------------------------------------


def misfits():
    """A file and a graph that differ in every way."""
    stored = Sequential(Linear(3, 4, name="fc"), Linear(4, 4, name="old"), Linear(4, 2, name="head"))
    wanted = Sequential(Linear(3, 4, name="fc"), Linear(4, 4, name="odd"), Linear(4, 5, name="head"))
    wanted["fc"].W.calcMode("float64")
    return stored, wanted


def test_all_that_does_not_fit_is_listed_together_and_nothing_changes():
    stored, wanted = misfits()
    before = values(wanted)
    with pytest.raises(CheckpointError) as caught:
        wanted.load(stored.save(None))
    lines = str(caught.value)
    for words in [
        "cannot load the given bytes: the graph holds other arrays: 1 arrays fit",
        "missing    'odd.W': the graph has (4, 4) float32, the file nothing of that name (near: 'old.W' (4, 4) float32",
        "extra      'old.b': the graph has nothing of that name (near: 'odd.b' (4,) float32",
        "different  'head.W': the graph has (4, 5) float32, the file (4, 2) float32",
        "different  'fc.W': the graph has (3, 4) float64, the file (3, 4) float32",
        "net.load(path, strict=False) loads what fits",
    ]:
        assert words in lines, lines
    assert all(np.array_equal(before[k], v) for k, v in values(wanted).items())


def test_strict_false_loads_what_fits_and_reports_the_rest():
    stored, wanted = misfits()
    before = values(wanted)
    report = wanted.load(stored.save(None), strict=False)
    assert report.loaded == ["fc.b"] and not report.complete
    assert [m.name for m in report.missing] == ["odd.W", "odd.b"]
    assert [m.name for m in report.extra] == ["old.W", "old.b"]
    assert [m.name for m in report.mismatched] == ["fc.W", "head.W", "head.b"]
    assert np.array_equal(wanted["fc"].b.data, stored["fc"].b.data)
    assert np.array_equal(before["odd.W"], wanted["odd"].W.data)


def interruptedAt(number, action):
    """Do something, with Ctrl-C before line `number` of all that Python runs; how many lines there were.

    An exception out of a trace function may leave another one behind as if it were still handled: a generator has a
    stack of these for itself.
    """
    lines = count()

    def apart():
        yield action()

    def trace(frame, event, argument):
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace

    before, handler = sys.gettrace(), signal.getsignal(signal.SIGINT)
    sys.settrace(trace)
    try:
        next(apart())
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler)  # in the midst of setting it back this would be lost
    return next(lines)


@pytest.fixture
def withoutCollection():
    """No garbage collection: a callback of it would be interrupted as well, and pytest takes that for a fault."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("made", [True, False], ids=["into arrays that exist", "into a declaration"])
def test_ctrl_c_anywhere_in_a_load_leaves_all_of_it_or_nothing(withoutCollection, made):
    def fresh(value, optimizer):
        net = Sequential(Linear(2, 2, name="a"), Linear(2, 2, name="b"), Linear(2, 2, name="c"))
        for array in net.params.values() if made or optimizer is None else ():
            array.data = np.full(array.shape, value, np.float32)
        return net

    new = fresh(7, None)
    data = new.save(None, optimizer=optimizers.Adam().setupOn(new))

    def attempt(number):
        net = fresh(1, True)
        optimizer = optimizers.Adam().setupOn(net)
        slots = optimizer.slots
        lines = interruptedAt(number, lambda: net.load(data, optimizer=optimizer))
        fresher = {bool((array.array == 7).all()) if array.made else False for array in net.params.values()}
        fresher.add(optimizer.slots is not slots)
        assert len(fresher) == 1, f"interrupted before line {number}, part of it was loaded"
        return lines, fresher.pop()

    attempt(-1)  # what is done only once
    whole, done = attempt(-1)
    assert done
    outcomes = {
        attempt(n)[1] for n in {*range(0, whole, 163), *range(whole - 150, whole + 50, 2)}
    }  # it varies by a few
    assert outcomes == {False, True}


@pytest.mark.parametrize("copies", [1, 3])
def test_ctrl_c_between_two_copies_to_a_gpu_waits_for_all_of_them(monkeypatch, copies):
    useGpu(monkeypatch)
    new, net = (Sequential(Linear(2, 2, name="a"), Linear(2, 2, name="b"), name="net") for _ in range(2))
    for array in new.params.values():
        array.data = device.toDevice(np.full(array.shape, 7, np.float32))
    data, put, calls = new.save(None), FakeArray.__setitem__, count(1)
    for array in net.params.values():
        array.materialize()

    def interrupted(self, key, value):
        put(self, key, value)
        if next(calls) == copies:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(FakeArray, "__setitem__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        net.load(data)
    assert next(calls) == 5
    assert all((device.toHost(array.array) == 7).all() for array in net.params.values())


def test_memory_that_ends_while_a_file_is_loaded_changes_nothing(monkeypatch):
    data = small().save(None)
    for number in range(4):
        net, calls = small(), count()
        untouched = [array.array for array in net.params.values()]

        def scarce(values, number=number, calls=calls):
            if next(calls) == number:
                raise MemoryError
            return values

        monkeypatch.setattr(staging, "aligned", scarce)
        with pytest.raises(CheckpointError, match="MemoryError"):
            net.load(data)
        assert [array.array for array in net.params.values()] == untouched == [None] * len(untouched)


def test_a_failed_load_changes_nothing_anywhere(monkeypatch):
    net, other = small(), small()
    optimizer = optimizers.Adam().setupOn(net)
    data = other.save(None, optimizer=optimizers.Adam().setupOn(other))
    before = values(net)
    monkeypatch.setattr(optimizer, "restored", lambda *_: (_ for _ in ()).throw(CheckpointError("no")), raising=False)
    with pytest.raises(CheckpointError, match="no"):
        net.load(data, optimizer=optimizer)
    damaged = bytearray(data)
    where = Archive(io.BytesIO(data)).offsets["states/dropout.count"]
    damaged[where] ^= 1
    with pytest.raises(CheckpointError, match="'states/dropout.count' is damaged"):
        net.load(bytes(damaged))
    assert all(np.array_equal(before[k], v) for k, v in values(net).items())


# Messages ---------------------------------------------------------------------------------------------------------


def test_a_file_whose_names_all_differ_is_told_shortly_by_work_that_grows_with_their_number():
    def net(start, count):
        return Sequential(*(Linear(1, 1, name=f"{start}{'layer' * 8}_{k}") for k in range(count)))

    def told(count):
        """How many functions are entered until all is said, of which the names that are near are 20."""
        data, other, entered = net("a", count).save(None), net("b", count), 0

        def profile(frame, event, argument):
            nonlocal entered
            entered += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            with pytest.raises(CheckpointError) as caught:
                other.load(data)
        finally:
            sys.setprofile(None)
        text, left = str(caught.value), 2 * count - 10
        assert f"  missing    and {left} more" in text and f"  extra      and {left} more" in text
        assert text.count("near:") == 20 and len(text) < 10_000
        return entered

    assert told(800) < 2.2 * told(400)


def test_names_with_escapes_are_written_as_such():
    array, name = np.zeros(1, np.float32), "a\x1b]0;owned\x07\nb"
    memory = io.BytesIO()
    about = {"blueprint": {"ties": {}}, "optimizer": None, "extra": None}
    write(memory, [(Array(f"params/{name}", (1,), "float32"), lambda: array)], about)
    with pytest.raises(CheckpointError) as caught:
        small().load(memory.getvalue())
    assert r"'a\x1b]0;owned\x07\nb'" in str(caught.value) and "\x1b" not in str(caught.value)
