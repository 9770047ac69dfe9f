"""Checkpoints: exact round trips, all or nothing, and one clear error for whatever else a file may be."""

import gc
import io
import json
import os
import signal
import stat
import sys
import tracemalloc
import zlib
from itertools import count
from pathlib import Path

import h5py
import numpy as np
import pytest
from audited import audited
from fakecupy import FakeArray, useGpu
from nets import branched, same, small, tied, values

from puregraph import optimizers
from puregraph.core import device
from puregraph.core.errors import CheckpointError
from puregraph.core.param import Param, State
from puregraph.core.storage import atomicwrite
from puregraph.core.storage.archive import TITLE, Archive, Header, write
from puregraph.core.storage.hdf import BASE, DTYPES, Array, HdfLayout
from puregraph.core.storage.jsoncodec import dumps, loads
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity, Linear, Relu, costs
from puregraph.serialize import checkpointwriter, staging
from puregraph.serialize.checkpoint import contents, load, loadGraph, loadInto
from puregraph.serialize.classnames import OWN, registerModule


class Arrays(Module):
    """y = x; holds arrays of any shape and dtype."""

    def __init__(self, rows, name=None):
        super().__init__(name)
        for i, (shape, dtype) in enumerate(rows):
            kind = Param if dtype.startswith("float") else State
            setattr(self, f"a{i}", kind(tuple(shape), dtype=dtype))

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x


@pytest.fixture(autouse=True)
def registered():
    registerModule(Arrays)
    yield
    OWN.clear()


# Round trips ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [small, branched, tied])
def test_a_file_gives_the_same_bits_back(make, tmp_path):
    net, path = make(), tmp_path / "net.h5"
    assert net.save(path) is None
    assert same(loadGraph(path), net)
    other = make()
    report = other.load(path)
    assert same(other, net) and report.complete and report.loaded == list(values(net))


def test_bytes_are_what_a_file_would_hold(tmp_path):
    net = small()
    data = net.save(None)
    net.save(tmp_path / "net.h5")
    assert isinstance(data, bytes) and (tmp_path / "net.h5").read_bytes() == data
    for given in (data, bytearray(data), memoryview(data)):
        assert same(loadGraph(given), net)


def test_what_is_loaded_evaluates(rng):
    net, x = small(), rng.standard_normal((4, 1, 6, 6)).astype(np.float32)
    net(x)
    for back in (loadGraph(net.save(None)), load(net.save(None)).graph):
        before = values(back)
        assert not any(module.isTraining for module in (back, *back.modules().values()))
        assert np.array_equal(back(x), back(x)) and np.array_equal(back(x), net.evalMode()(x))
        assert all(np.array_equal(before[path], now) for path, now in values(back).items())


def test_equal_content_makes_equal_bytes():
    net = small()
    assert net.save(None) == net.save(None) == loadGraph(net.save(None)).trainMode().save(None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3), (1, 2, 1, 2, 1, 2)])
def test_every_dtype_and_shape_comes_back(dtype, shape, rng):
    net = Sequential(Arrays([(shape, dtype), ((2,), "float32")], name="m"))
    net["m"].a0.data = (rng.random(shape) * 200).astype(dtype)
    back = loadGraph(net.save(None))
    assert same(back, net) and back["m"].a0.data.shape == shape and str(back["m"].a0.data.dtype) == dtype


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_value_comes_back_bit_for_bit(dtype):
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny, np.finfo(dtype).max], dtype)
    net = Sequential(Arrays([((8,), dtype)], name="m"))
    net["m"].a0.data = special
    assert loadGraph(net.save(None))["m"].a0.data.tobytes() == special.tobytes()


@pytest.mark.parametrize("name", ["net.h5", "größe 層 🙂.h5", "a'b\"c%d.h5", "x" * 200])
def test_any_path_will_do(name, tmp_path):
    net = small()
    for path in (tmp_path / name, str(tmp_path / name)):
        net.save(path)
        assert same(loadGraph(path), net)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_names_in_any_script_come_back(tmp_path):
    net = Sequential(Linear(2, 3, name="层"), Linear(3, 2, name="größe 1"), name="сеть")
    net.save(tmp_path / "net.h5")
    assert list(loadGraph(tmp_path / "net.h5").params) == ["层.W", "层.b", "größe 1.W", "größe 1.b"]
    with h5py.File(tmp_path / "net.h5") as file:
        assert sorted(file["params"]) == sorted(net.params)


def test_a_name_that_hdf5_cannot_hold_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be a name in HDF5"):
        Sequential(Linear(1, 1, name="a" * 70_000)).save(tmp_path / "net.h5")
    assert list(tmp_path.iterdir()) == []


def test_an_array_that_is_shared_is_stored_once_and_stays_shared():
    net = tied()
    data = net.save(None)
    assert "params/decoder.W" not in contents(data).arrays
    back = loadGraph(data)
    assert back["decoder"].W is back["encoder"].W and same(back, net)


def test_sharing_may_differ_between_file_and_graph():
    net = tied()
    loose = Sequential(Linear(3, 3, name="encoder"), Relu(), Linear(3, 3, name="decoder"))
    loose.load(net.save(None))
    assert np.array_equal(loose["decoder"].W.data, net["encoder"].W.data) and loose["decoder"].W is not net["encoder"].W
    again = tied()
    assert again.load(loose.save(None)).complete and same(again, net)
    loose["decoder"].W.data[0, 0] += 1
    with pytest.raises(CheckpointError, match="'decoder.W': the graph has it shared with 'encoder.W', the file two"):
        again.load(loose.save(None))


def test_a_tie_is_found_whichever_name_owns_it():
    net = tied()
    turned = Sequential(Linear(3, 3, name="decoder"), Relu(), Linear(3, 3, name="encoder"))
    turned["encoder"].W = turned["decoder"].W
    assert turned.load(net.save(None)).complete
    assert np.array_equal(turned["encoder"].W.data, net["encoder"].W.data)


def test_parameters_that_are_only_declared_are_made_when_they_are_saved():
    net = small()
    data = net.save(None)
    assert all(p.made for p in (*net.params.values(), *net.states.values())) and same(loadGraph(data), net)


def test_a_rebuilt_graph_declares_and_loading_makes(rng):
    net = small()
    x = rng.standard_normal((2, 1, 6, 6)).astype(np.float32)
    net(x)
    back = loadGraph(net.save(None)).trainMode()
    assert int(back["batchnorm"].count.data) == 1
    assert np.array_equal(net(x), back(x)), "the dropout mask goes on where it was"


def test_arrays_that_exist_are_filled_in_place():
    net, other = small(), small()
    held = net["fc"].W.data
    net.load(other.save(None))
    assert net["fc"].W.data is held and np.array_equal(held, other["fc"].W.data)


def test_an_array_that_cannot_be_written_is_replaced():
    net, other = small(), small()
    net["fc"].W.data.flags.writeable = False
    net.load(other.save(None))
    assert same(net, other)


def test_an_empty_graph_and_one_without_arrays_come_back():
    assert len(loadGraph(Sequential().save(None))) == 0
    assert loadGraph(Sequential(Relu()).save(None)).load(Sequential(Relu()).save(None)).loaded == []


EXTRA = {
    "epoch": 3,
    "position": (2, [1, None]),
    "big": 2**130,
    "float": [0.1, float("inf"), -0.0],
    "text": "größe \ud800 \0",
    "nested": {"a": {"b": {"array": np.arange(6, dtype=np.int16).reshape(2, 3)}}},
    "arrays": [np.array(1.5), np.zeros((0, 2), bool), np.array([True, False])],
    "": True,
    "a/b.c": None,
    3: "a number as key",
}


def test_extra_comes_back_exactly():
    back = load(small().save(None, extra=EXTRA)).extra
    assert list(back) == list(EXTRA) and repr(back) == repr(EXTRA)
    found, wanted = back["nested"]["a"]["b"]["array"], EXTRA["nested"]["a"]["b"]["array"]
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    assert [a.dtype.name for a in back["arrays"]] == ["float64", "bool", "bool"] and back["arrays"][1].shape == (0, 2)


def test_whole_numbers_of_any_length_come_back():
    assert load(small().save(None, extra=[2**20_000, -(2**20_000)])).extra == [2**20_000, -(2**20_000)]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_random_state_goes_on_where_it_was(kind):
    generator = np.random.Generator(kind(7))
    generator.random(5)
    state = load(small().save(None, extra={"random": generator.bit_generator.state})).extra["random"]
    expected = generator.random(9)
    again = np.random.Generator(kind())
    again.bit_generator.state = state
    assert again.random(9).tolist() == expected.tolist()


def test_arrays_of_other_layouts_are_stored_as_what_they_mean():
    extra = {"swapped": np.arange(3, dtype=">i4"), "turned": np.arange(6.0).reshape(2, 3).T, "every": np.arange(9)[::2]}
    back = load(small().save(None, extra=extra)).extra
    for name, array in extra.items():
        assert np.array_equal(back[name], array) and back[name].dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 1, r"extra\['x'\]\[0\]: a function cannot be stored"),
        (np.array([1j]), "'extra/0' is complex128; known are float16"),
        (np.array(["a"], object), "'extra/0' is object"),
        (np.zeros(1, [("a", "f4")]), "'extra/0' is void"),
        (np.datetime64("2020-01-01"), r"extra\['x'\]\[0\]: a datetime64 cannot"),
        (Path("."), "cannot be stored"),
    ],
)
def test_extra_that_cannot_be_stored_is_refused_with_its_place(value, words, tmp_path):
    with pytest.raises(CheckpointError, match=words):
        small().save(tmp_path / "net.h5", extra={"x": [value]})
    assert list(tmp_path.iterdir()) == []


# Optimizers -----------------------------------------------------------------------------------------------------------


def steps(net, optimizer, data, count):
    cost = costs.CrossEntropy()
    for x, labels in data[optimizer.step : optimizer.step + count]:
        cost(net(x), labels)
        cost.backward()
        net.backward(cost.grad[0] if isinstance(cost.grad, list) else cost.grad)
        optimizer.update()


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.Adam(alpha=0.01, schedule=optimizers.WarmUp(3, optimizers.Cosine(20)), decay=1e-3),
        lambda: optimizers.MomentumSGD(learnRate=0.05, clipNorm=1.0),
        lambda: optimizers.SGD(),
    ],
    ids=["adam", "momentum", "sgd"],
)
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_stopping_and_going_on_equals_the_run_that_never_stopped(make, stop, rng):
    data = [(rng.standard_normal((4, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(6)]
    net = small()
    start = net.save(None)
    optimizer = make().setupOn(net)
    steps(net, optimizer, data, 6)
    part = loadGraph(start).trainMode()
    first = make().setupOn(part)
    steps(part, first, data, stop)
    resumed = load(part.save(None, optimizer=first, extra={"at": stop}))
    assert resumed.extra == {"at": stop} and repr(resumed.optimizer) == repr(optimizer)
    steps(resumed.graph.trainMode(), resumed.optimizer, data, 6)
    assert same(resumed.graph, net)
    existing = small()
    given = make().setupOn(existing)
    assert loadInto(part.save(None, optimizer=first, extra=9), existing, given).extra == 9
    steps(existing, given, data, 6)
    assert same(existing, net)


def test_an_optimizer_of_another_class_or_none_is_refused():
    net = small()
    data = net.save(None, optimizer=optimizers.Adam().setupOn(net))
    with pytest.raises(CheckpointError, match="state of optimizers.Adam, the optimizer given is SGD"):
        net.load(data, optimizer=optimizers.SGD().setupOn(net))
    with pytest.raises(CheckpointError, match="holds no optimizer; the Adam given would start anew"):
        net.load(net.save(None), optimizer=optimizers.Adam().setupOn(net))


def test_a_schedule_that_is_a_function_is_refused_with_its_place():
    net = small()
    with pytest.raises(CheckpointError, match=r"the optimizer \(SGD\): argument 'schedule': a function cannot be"):
        net.save(None, optimizer=optimizers.SGD(schedule=lambda step: 1.0).setupOn(net))


def test_an_optimizer_of_ones_own_comes_back():
    @registerModule
    class Slow(optimizers.SGD):
        pass

    net = small()
    data = net.save(None, optimizer=Slow().setupOn(net))
    assert type(load(data).optimizer) is Slow
    del OWN["Slow"]
    with pytest.raises(CheckpointError, match="unknown class 'user:Slow'"):
        load(data)
    assert same(loadGraph(data), net), "the graph alone needs no optimizer"


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


def test_a_param_is_not_loaded_as_a_state():
    stored, wanted = Sequential(Arrays([((2,), "float32")], name="m")), Sequential(Arrays([], name="m"))
    wanted["m"].a0 = State((2,))
    with pytest.raises(
        CheckpointError, match=r"the graph has \(2,\) float32, the file \(2,\) float32 as one of its par"
    ):
        wanted.load(stored.save(None))


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


# The file -------------------------------------------------------------------------------------------------------------


def test_other_programs_can_read_it(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    net.save(path, extra={"x": np.arange(3)})
    with h5py.File(path) as file:
        assert sorted(file) == ["extra", "manifest", "params", "states"]
        for name, array in net.params.items():
            dataset = file["params"][name]
            assert np.array_equal(dataset[()], array.data) and dataset.dtype == array.dtype and dataset.chunks is None
        manifest = json.loads(bytes(file["manifest"][()]))
    assert {name: (tuple(s), d) for name, s, d, _ in manifest["arrays"]}["params/fc.W"] == ((32, 3), "float32")
    assert path.read_bytes().startswith(b"puregraph checkpoint 1\nlength ")


@pytest.mark.parametrize("count", [0, 1, 7, 9, 2047, 2048, 5000])
def test_hdf5_agrees_with_the_layout_for_any_number_of_arrays(count):
    arrays = [Array(f"params/p{i}", (i % 3,), "int16") for i in range(count)] + [Array("manifest", (3,), "uint8")]
    layout = HdfLayout(arrays)
    data = b"".join([bytes(BASE), *(piece.data for piece in layout.structure())])
    assert len(data) == layout.structureEnd
    with h5py.File(io.BytesIO(data.ljust(layout.end, b"\0"))) as file:
        assert len(file["params"]) == count if count else "params" not in file
        for array, offset in list(zip(arrays, layout.offsets, strict=True))[:: max(count // 50, 1)]:
            dataset = file[array.name]
            assert dataset.shape == array.shape and dataset.dtype == array.dtype
            assert array.nbytes == 0 or dataset.id.get_offset() == offset


def test_contents_are_told_without_reading_the_arrays():
    net = small()
    found = contents(net.save(None, optimizer=optimizers.Adam().setupOn(net), extra={"epoch": 2}))
    assert found.arrays["params/fc.W"] == Array("params/fc.W", (32, 3), "float32")
    assert found.optimizer["class"] == "optimizers.Adam" and found.blueprint["modules"][0]["class"] == "Conv2D"


def test_permissions_and_links_stay(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    old = os.umask(0o027)
    try:
        net.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(old)
    path.chmod(0o604)
    link = tmp_path / "latest.h5"
    link.symlink_to("net.h5")
    net["fc"].b.data += 1
    net.save(link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o604 and same(loadGraph(path), net)


def test_what_cannot_be_saved_to_is_said(tmp_path):
    net = small()
    with pytest.raises(CheckpointError, match=r"cannot save '.*': there is no folder '.*nowhere'; make it first"):
        net.save(tmp_path / "nowhere" / "net.h5")
    with pytest.raises(CheckpointError, match="exists and is not a file"):
        net.save(tmp_path)
    with pytest.raises(CheckpointError, match="exists and is not a file"):
        net.save("/dev/null")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot save"):
        net.save(tmp_path / "file" / "net.h5")
    with pytest.raises(CheckpointError, match="cannot save"):
        net.save(tmp_path / ("x" * 300))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_said(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="no permission to write"):
            small().save(tmp_path / "net.h5")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, OSError])
def test_the_old_file_survives_a_save_that_fails_in_the_middle(error, tmp_path, monkeypatch):
    net, path = small(), tmp_path / "net.h5"
    net.save(path)
    before = path.read_bytes()
    fetch = checkpointwriter.device.toHost
    calls = iter(range(100))
    monkeypatch.setattr(
        checkpointwriter.device, "toHost", lambda a: fetch(a) if next(calls) < 4 else (_ for _ in ()).throw(error())
    )
    with pytest.raises(CheckpointError if error is OSError else error):
        net.save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["net.h5"]


def test_a_file_that_is_open_for_reading_can_be_replaced(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    net.save(path)
    with open(path, "rb") as reader:
        net["fc"].b.data += 1
        net.save(path)
        assert not same(loadGraph(reader.read()), net) and same(loadGraph(path), net)


# Broken and hostile files ---------------------------------------------------------------------------------------------


def forge(change):
    """A file whose manifest was changed, and all else is as it should be."""
    data = small().save(None, extra={"a": np.arange(4)})
    layout = Archive(io.BytesIO(data)).layout
    offset = layout.offsets[-1]
    manifest = loads(data[offset:])
    result = change(manifest)
    text = dumps(result if isinstance(result, list) else manifest)
    layout = HdfLayout([*layout.arrays[:-1], Array("manifest", (len(text),), "uint8")])
    structure = b"".join(piece.data for piece in layout.structure())
    header = Header(1, layout.end, offset, len(text), zlib.crc32(text)).write()
    return header + structure + data[layout.structureEnd : offset] + text


def adam(**settings):
    """An optimizer as a manifest describes it."""
    return {"class": "optimizers.Adam", "args": [], "kwargs": settings, "step": 0, "state": []}


def rowOf(manifest, name="params/fc.W"):
    return next(row for row in manifest["arrays"] if row[0] == name)


def setRow(index, value):
    return lambda m: rowOf(m).__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (setRow(1, [32, 4]), "its arrays need|is not as puregraph wrote it"),
        (setRow(1, [3, 32]), "the header of 'params/fc.W' is not as puregraph wrote it"),
        (setRow(1, [10**6, 10**6]), r"'params/fc.W' cannot have the shape \(1000000, 1000000\): 4000000000000 bytes"),
        (setRow(1, [2**40, 2**40]), "impossible.*which no memory holds"),
        (setRow(1, [-1, 3]), "describes no array"),
        (setRow(1, [32.0, 3]), "describes no array"),
        (setRow(1, [True, 3]), "describes no array"),
        (setRow(1, [1] * 200), "describes no array"),
        (setRow(1, "32"), "describes no array"),
        (setRow(2, "int32"), "is not as puregraph wrote it"),
        (setRow(2, "object"), "'params/fc.W' is object; known are"),
        (setRow(2, "|V1000000000"), "known are"),
        (setRow(3, 1), "'params/fc.W' is damaged: wanted crc32 00000001"),
        (setRow(3, None), "describes no array"),
        (setRow(0, "params/fc.V"), "the link to 'params/fc.V' is not as|the group"),
        (setRow(0, "params/../x"), "cannot be a name"),
        (setRow(0, "a/b/c"), "cannot be a name"),
        (setRow(0, "params/fc.b"), "stands twice"),
        (setRow(0, "params"), "names both a group and an array"),
        (setRow(0, "manifest"), "stands twice"),
        (lambda m: m["arrays"].append(rowOf(m)), "stands twice"),
        (lambda m: m["arrays"].remove(rowOf(m)), "its arrays need"),
        (lambda m: m["arrays"].reverse(), "is not as puregraph wrote it|its arrays need"),
        (lambda m: m.update(arrays=3), "lists no arrays"),
        (lambda m: m.update(arrays=[3]), "describes no array: 3"),
        (lambda m: [1], "lists no arrays"),
        (lambda m: m.update(blueprint=None), "cannot load"),
        (lambda m: m.update(blueprint=3), "cannot load"),
        (lambda m: m.pop("blueprint") and None, "cannot load"),
        (
            lambda m: m["blueprint"]["arrays"]["fc.W"].update(shape=[10**9, 10**6]),
            r"the graph has \(1000000000, 1000000\)",
        ),
        (
            lambda m: m["blueprint"]["modules"][0].update({"class": "Mystery"}),
            "unknown class 'Mystery'.*registerModule",
        ),
        (lambda m: m.update(extra={"array": 7}), "it holds no array 'extra/7'"),
        (lambda m: m.update(extra={"array": "../params/fc.W"}), "cannot load"),
        (lambda m: m.update(extra={"file": "/etc/passwd"}), "no value that puregraph writes"),
        (
            lambda m: m.update(optimizer={"class": "Linear", "args": [1, 1], "kwargs": {}}),
            "its optimizer cannot be {'args'",
        ),
        (lambda m: m.update(optimizer={"class": "optimizers.Adam"}), "cannot load"),
        (
            lambda m: m.update(optimizer=adam(beta1=1)),
            "cannot load.*cannot be made: Adam: wanted beta1 from 0 to below 1",
        ),
        (
            lambda m: m.update(optimizer=adam(module=1)),
            "cannot load.*cannot be made: Adam: there is no argument module",
        ),
    ],
)
def test_a_forged_manifest_is_refused(change, words):
    data = forge(change)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=words):
            load(data)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def external(file, folder):
    del file["params/fc.W"]
    file["params/fc.W"] = h5py.ExternalLink(str(folder / "victim.h5"), "/secret")


def soft(file, folder):
    del file["params/fc.W"]
    file["params/fc.W"] = h5py.SoftLink("/params/fc.b")


def virtual(file, folder):
    del file["params/fc.W"]
    layout = h5py.VirtualLayout((32, 3), "f4")
    layout[...] = h5py.VirtualSource(str(folder / "victim.h5"), "secret", (32, 3))
    file.create_virtual_dataset("params/fc.W", layout)


def storage(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), "f4", external=[(str(folder / "victim.bin"), 0, 384)])


def compressed(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", data=np.zeros((32, 3), "f4"), compression="gzip")


def bomb(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (2**21, 2**21), "f4", chunks=(1024, 1024), compression="gzip")


def ragged(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), h5py.vlen_dtype("f4"))


def text(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), h5py.string_dtype())


def group(file, folder):
    file.create_group("surprise")


def further(file, folder):
    file["params/more.W"] = np.zeros(3)


def attribute(file, folder):
    file["params/fc.W"].attrs["note"] = 1


def edited(file, folder):
    file["params/fc.W"][0, 0] += 1


HOSTILE = [external, soft, virtual, storage, compressed, bomb, ragged, text, group, further, attribute, edited]


def withVictims(folder):
    """A folder with files that nobody may read."""
    with h5py.File(folder / "victim.h5", "w") as file:
        file["secret"] = np.full((32, 3), 42, "f4")
    (folder / "victim.bin").write_bytes(np.full((32, 3), 42, "f4").tobytes())
    return folder


@pytest.fixture
def folder(tmp_path):
    return withVictims(tmp_path)


@pytest.mark.parametrize("change", HOSTILE, ids=lambda f: f.__name__)
def test_a_file_that_was_edited_is_refused(change, folder):
    net, path = small(), folder / "net.h5"
    net.save(path)
    with h5py.File(path, "r+") as file:
        change(file, folder)
    with pytest.raises(CheckpointError, match="net.h5"):
        load(path)
    resealed = path.read_bytes()
    header = Archive(io.BytesIO(net.save(None))).header()
    for length in (len(resealed), header.length):
        data = bytearray(resealed[:length])
        data[:BASE] = header._replace(length=length).write()
        with pytest.raises(CheckpointError, match="is not as puregraph wrote it|its arrays need|is damaged|not zero"):
            load(bytes(data))


def test_an_edited_entry_is_named(folder):
    net, path = small(), folder / "net.h5"
    net.save(path)
    layout = Archive(io.BytesIO(path.read_bytes())).layout
    at = BASE
    seen = set()
    for piece in layout.structure():
        data = bytearray(path.read_bytes())
        data[at + len(piece.data) // 2] ^= 4
        with pytest.raises(CheckpointError) as caught:
            load(bytes(data))
        assert piece.name in str(caught.value)
        seen.add(piece.name)
        at += len(piece.data)
    assert {"the link to 'params/fc.W'", "the header of 'params/fc.W'", "the group '/params'", "the superblock"} <= seen


def test_every_byte_of_a_small_file_matters():
    data = Sequential(Linear(2, 1, name="fc")).save(None)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(CheckpointError):
            load(bytes(changed))


def test_every_truncation_of_a_small_file_is_refused():
    data = Sequential(Linear(2, 1, name="fc")).save(None)
    for length in range(len(data)):
        with pytest.raises(CheckpointError):
            load(data[:length])
    with pytest.raises(CheckpointError, match="longer than it was written"):
        load(data + b"\0")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (
            b"PK\x03\x04abc",
            r"a zip archive, .*; load its weights .* net.load\(path, names=...\), or .*readWeights\(path\)",
        ),
        (
            b"\x80\x04cos\nsystem\n",
            r"a pickle, which puregraph never reads; .*torch.save\(model.state_dict\(\), path\)",
        ),
        (b"\x93NUMPY\x01", "not an array of numpy"),
        (b"hello", "it begins with b'hello'"),
        (TITLE, "its header, the first 512 bytes, is damaged"),
        (b"\x89HDF\r\n\x1a\n", "its superblock has version 0"),
    ],
)
def test_other_files_are_told_apart(data, words):
    for attempt in (load, small().load):
        with pytest.raises(CheckpointError, match=words):
            attempt(data)


def test_a_newer_version_says_so():
    data = bytearray(small().save(None))
    data[:BASE] = Archive(io.BytesIO(bytes(data))).header()._replace(version=2).write()
    with pytest.raises(CheckpointError, match="of version 2, this puregraph reads version 1"):
        load(bytes(data))


def test_paths_that_are_no_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="it is a folder"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="a path is wanted as text"):
        small().save(b"net.h5")
    with pytest.raises(CheckpointError, match=r"cannot load '.*none.h5': there is no such file"):
        load(tmp_path / "none.h5")
    with pytest.raises(CheckpointError, match="cannot load"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load("/dev/zero")


ACTS = ("exec", "import", "pickle", "marshal", "socket", "subprocess", "os", "ctypes")


def hostileFile(change, folder, resealed):
    """A checkpoint that was changed, in a folder of its own; its header may have been made to fit again."""
    folder.mkdir()
    path = folder / "net.h5"
    small().save(path)
    header = Archive(io.BytesIO(path.read_bytes())).header()
    with h5py.File(path, "r+") as file:
        change(file, withVictims(folder))
    if resealed:
        data = bytearray(path.read_bytes())
        data[:BASE] = header._replace(length=len(data)).write()
        path.write_bytes(data)
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is loaded in a fork")
@pytest.mark.parametrize("resealed", [False, True])
def test_loading_opens_one_file_and_runs_nothing(resealed, tmp_path):
    good = tmp_path / "net.h5"
    small().save(good)
    paths = [good, *[hostileFile(change, tmp_path / change.__name__, resealed) for change in HOSTILE]]
    for path, found in zip(paths, audited("load", paths)):
        result = found["result"].partition(":")[0]
        assert result == ("loaded" if path == good else "CheckpointError"), f"{path}: {found['result']}"
        opened = {name for event, name in found["events"] if event == "open"}
        acts = [each for each in found["events"] if each[0].split(".")[0] in ACTS]
        assert opened == {str(path)} and not acts, f"{path}: {opened}, {acts}"


def test_two_graphs_of_one_file_share_nothing():
    data = small().save(None)
    one, other = loadGraph(data), loadGraph(data)
    one["fc"].W.data += 1
    assert not np.array_equal(one["fc"].W.data, other["fc"].W.data)


def test_a_graph_with_two_inputs_and_no_names_comes_back():
    a, b = Input().node(), Input().node()
    net = Graph([a, b], [Linear(2, 2).node(a), Linear(3, 1).node(b)])
    assert same(loadGraph(net.save(None)), net)


# Rights and errors of the file system -----------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_a_private_file_is_replaced_through_a_private_one(tmp_path, monkeypatch):
    path, seen = tmp_path / "net.h5", []
    small().save(path)
    path.chmod(0o600)
    inner = checkpointwriter.write

    def watched(file, *rest):
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        inner(file, *rest)

    monkeypatch.setattr(checkpointwriter, "write", watched)
    small().save(path)
    assert seen == [0o600] and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    small().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_an_error_at_close_after_the_rename_does_not_say_that_the_old_file_is_there(tmp_path, monkeypatch):
    path = tmp_path / "net.h5"
    small().save(path)
    net = small()
    for array in net.params.values():
        array.data = np.ones(array.shape, np.float32)
    opened = atomicwrite.openPartial

    class Failing:
        """A file whose close reports an error, as one on a network may."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def close(self):
            self.file.close()
            raise OSError(5, "Input/output error")

    def failing(*given):
        file, partial = opened(*given)
        return Failing(file), partial

    monkeypatch.setattr(atomicwrite, "openPartial", failing)
    net.save(path)  # all was brought to the disk and renamed: the new file is there
    assert all((array.data == 1).all() for array in loadGraph(path).params.values())
    assert [p.name for p in tmp_path.iterdir()] == ["net.h5"]


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


# Depth ------------------------------------------------------------------------------------------------------------


def test_graphs_in_graphs_run_at_any_depth_and_are_saved_to_two_hundred():
    def nest(depth):
        net = Sequential(Linear(2, 2, name="fc"))
        for _ in range(depth):
            net = Sequential(net)
        return net

    x = np.ones((1, 2), np.float32)
    deep = nest(350)
    assert deep(x).shape == (1, 2) and len(deep.params) == 2
    with pytest.raises(CheckpointError, match="it is nested more than 200 deep"):
        deep.save(None)
    net = nest(150)
    assert np.array_equal(loadGraph(net.save(None))(x), net(x))


def test_a_graph_that_unfolds_into_more_than_a_file_may_is_not_saved():
    net = Identity()
    for _ in range(13):
        net = Sequential(net, net)
    with pytest.raises(CheckpointError, match="it asks for .* nodes or more, a file of its size may have"):
        net.save(None)


def test_garbage_is_not_collected_while_modules_are_built():
    data = Sequential(*[Relu(name=f"r{i}") for i in range(3000)]).save(None)
    collections = []

    def note(phase, info):
        collections.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        load(data)
    finally:
        gc.callbacks.remove(note)
    assert len(collections) < 20 and gc.isenabled()
