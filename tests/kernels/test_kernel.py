"""A Kernel calls the right twin, works on the GPU without one, and is one thing however it is copied."""

import copy
import inspect
import pickle
import sys
import threading

import numpy as np
import pytest
from fakecupy import FakeArray, makeCupy

from puregraph.ops import kernel as kernels
from puregraph.ops.kernel import kernel, useFast


@kernel
def scaled(x, factor=2):
    """A kernel that can be pickled, because it has a place."""
    return x * factor


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Kernels made in a test are forgotten after it."""
    monkeypatch.setattr(kernels, "registry", dict(kernels.registry))
    return kernels.registry


@pytest.fixture
def cupy(monkeypatch):
    """A fake CuPy that has been imported."""
    fake = makeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def makeTwins():
    """A kernel whose result says which twin ran."""

    @kernel
    def which(*values, out=None):
        return "reference"

    @which.fast
    def which(*values, out=None):
        return "fast" if len(values) == 1 else NotImplemented

    @which.device
    def which(*values, out=None):
        return "device"

    return which


def test_a_kernel_is_its_function():
    assert scaled(np.arange(3)).tolist() == [0, 2, 4]
    assert scaled(np.arange(3), factor=3).tolist() == [0, 3, 6]
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__.startswith("A kernel that can be pickled")
    assert str(inspect.signature(scaled)) == "(x, factor=2)"
    assert repr(scaled) == f"<kernel {__name__}.scaled>"


def test_the_fast_twin_runs_where_it_applies():
    which = makeTwins()
    assert which(1) == "fast"
    assert which(1, 2) == "reference"
    with useFast(False):
        assert which(1) == "reference"
        with useFast(True):
            assert which(1) == "fast"
    assert which(1) == "fast"


def test_a_thread_that_wants_the_reference_changes_nothing_for_another():
    which, entered, left = makeTwins(), threading.Event(), threading.Event()
    found = []

    def other():
        with useFast(False):
            entered.set()
            left.wait(10)
            found.append(which(1))

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    with useFast(False):  # begins and ends within the other's block
        pass
    found.append(which(1))
    left.set()
    thread.join(10)
    assert found == ["fast", "reference"]
    assert which(1) == "fast"


@pytest.mark.parametrize("shape", ["plain", "tuple", "list", "nested", "option"])
def test_the_twin_for_a_device_runs_wherever_a_device_array_hides(cupy, shape):
    which, x = makeTwins(), cupy.asarray([1])
    arguments = {
        "plain": (x,),
        "tuple": ((1, x),),
        "list": ([1, x],),
        "nested": ([1, (2, [x])],),
        "option": (1,),
    }
    options = {"out": x} if shape == "option" else {}
    assert which(*arguments[shape], **options) == "device"
    assert which(np.arange(3)) == "fast"


def test_without_a_twin_for_a_device_the_reference_runs_on_the_host(cupy):
    seen = []

    @kernel
    def moments(x, parts, axis=None, mask=None):
        seen.extend([x, *parts, mask])
        return x.sum(), [x * 2, axis], "text", None

    x = cupy.asarray([1.0, 2.0])
    total, (doubled, axis), text, nothing = moments(x, (x, 7), axis=0, mask=x)
    assert [type(value) for value in seen] == [np.ndarray, np.ndarray, int, np.ndarray]
    assert isinstance(total, FakeArray) and total.values == 3.0
    assert isinstance(doubled, FakeArray) and doubled.values.tolist() == [2.0, 4.0]
    assert (axis, text, nothing) == (0, "text", None)
    assert isinstance(moments.throughHost(x, [x])[1], list)


def test_every_kernel_is_in_the_registry():
    assert kernels.registry[f"{__name__}.scaled"] is scaled
    which = makeTwins()
    assert kernels.registry[which.name] is which
    assert set(which.implementations) == {"fast", "device"}


def test_a_name_is_given_once():
    which = makeTwins()
    with pytest.raises(ValueError, match="makeTwins.<locals>.which already"):
        makeTwins()
    with pytest.raises(ValueError, match="has an implementation 'fast' already"):
        which.fast(lambda x: x)
    with pytest.raises(ValueError, match="has an implementation 'device' already"):
        which.device(lambda x: x)


def test_copies_and_pickles_are_the_kernel_itself():
    assert copy.copy(scaled) is scaled
    assert copy.deepcopy([scaled])[0] is scaled
    assert pickle.loads(pickle.dumps(scaled)) is scaled


def test_a_kernel_in_a_function_cannot_be_pickled():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(makeTwins())
