"""Parameters and what an optimizer keeps begin where a line of the cache does."""

import numpy as np

import puregraph as pg
from puregraph.core.base.align import BANDWIDTH_BOUND_BYTES, CACHE_LINE_BYTES, aligned
from puregraph.optimizers import MomentumSGD
from puregraph.serialize.checkpoint import loadInto, save


def begins(array):
    return array.ctypes.data % CACHE_LINE_BYTES == 0


def at(offset, count=100):
    room = np.zeros(4 * count + 2 * CACHE_LINE_BYTES, np.uint8)
    start = -room.ctypes.data % CACHE_LINE_BYTES + offset
    return room[start : start + 4 * count].view("f4")


def test_an_array_that_begins_elsewhere_is_copied():
    for offset in (4, 16, 60):
        x = at(offset)
        x[:] = np.arange(100)
        assert begins(aligned(x)) and (aligned(x) == x).all()


def test_axes_stay_in_their_order():
    x = at(4, 24)
    x[:] = np.arange(24)
    for each in (x.reshape(2, 3, 4).transpose(2, 0, 1), x.reshape(4, 6).T):
        assert (aligned(each) == each).all() and aligned(each).strides == each.strides and begins(aligned(each))
    assert aligned(x.reshape(4, 6)[:, ::2]).strides == (12, 4)


def test_others_stay_what_they_are():
    fine, none = at(0), np.zeros((0, 3))
    words = np.array(["a", None], object)
    large = np.lib.stride_tricks.as_strided(at(4, 1), (BANDWIDTH_BOUND_BYTES,), (0,))  # one number, seen often
    assert aligned(fine) is fine and aligned(words) is words and aligned(large) is large
    assert aligned(none).shape == (0, 3) and aligned(3.0) == 3.0


def test_parameters_states_of_optimizers_and_what_is_loaded(tmp_path):
    net = pg.Sequential(pg.Linear(7, 5), pg.BatchNorm(5), pg.Linear(5, 3))
    optimizer = MomentumSGD(0.1).setupOn(net)
    net(np.ones((4, 7), "f4"))
    net.backward(np.ones((4, 3), "f4"))
    optimizer.update()
    arrays = [*(p.data for p in net.params.values()), *(a for slot in optimizer.slots for a in slot.arrays.values())]
    assert len(arrays) == 12 and all(map(begins, arrays))
    assert all(begins(p.data) for p in net.calcMode(np.float64).params.values())
    save(tmp_path / "net.h5", net.calcMode(np.float32))
    other = pg.Sequential(pg.Linear(7, 5), pg.BatchNorm(5), pg.Linear(5, 3))
    loadInto(tmp_path / "net.h5", other)
    assert all(begins(p.data) for p in other.params.values())
