"""Checkpoints: exact round trips of graphs, extras and optimizers."""

import gc
from pathlib import Path

import h5py
import numpy as np
import pytest
from nets import branched, same, small, tied, values

from puregraph import optimizers
from puregraph.core.errors import CheckpointError
from puregraph.core.param import Param, State
from puregraph.core.storage.hdf import DTYPES
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity, Linear, Relu, costs
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


def test_two_graphs_of_one_file_share_nothing():
    data = small().save(None)
    one, other = loadGraph(data), loadGraph(data)
    one["fc"].W.data += 1
    assert not np.array_equal(one["fc"].W.data, other["fc"].W.data)


def test_a_graph_with_two_inputs_and_no_names_comes_back():
    a, b = Input().node(), Input().node()
    net = Graph([a, b], [Linear(2, 2).node(a), Linear(3, 1).node(b)])
    assert same(loadGraph(net.save(None)), net)


def test_a_param_is_not_loaded_as_a_state():
    stored, wanted = Sequential(Arrays([((2,), "float32")], name="m")), Sequential(Arrays([], name="m"))
    wanted["m"].a0 = State((2,))
    with pytest.raises(
        CheckpointError, match=r"the graph has \(2,\) float32, the file \(2,\) float32 as one of its par"
    ):
        wanted.load(stored.save(None))
