"""The memory of weights is their own, and every change of them is seen by every program that keeps them packed."""

import copy
import ctypes
import gc
import pickle
import threading

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph.compile import Program
from puregraph.compile.trace.withcost import withCost
from puregraph.core import device
from puregraph.core.base.lease import Outer
from puregraph.core.errors import DtypeError, ShapeError
from puregraph.core.param import Param, State
from puregraph.optimizers import SGD, Adam, MomentumSGD

onHost = pytest.mark.skipif(device.name() != "cpu", reason="arrays on a GPU are handed out as they are")


def convolution():
    """A graph whose program keeps a weight of each kind packed."""
    pg.seed(5)
    return pg.Sequential(
        pg.Conv2D(3, 16, 3, pad=1, name="conv"), pg.Relu(), pg.Flatten(), pg.Linear(16 * 36, 24, name="fc"), name="net"
    ).evalMode()


@pytest.fixture(autouse=True, scope="module")
def quickCollections():
    """What earlier tests have left is not looked through again in each of these: hundreds of thousands of objects.

    They stay frozen: thawing would have each collection of later tests look through all tests as well."""
    gc.collect()
    gc.freeze()


X = np.random.default_rng(0).standard_normal((16, 3, 6, 6)).astype(np.float32)


def assertNew(program, net, x=X):
    """A program gives, to the bit, what a new one gives."""
    assert np.array_equal(program.run(x), net.compile(x.shape).run(x))


# Leases -----------------------------------------------------------------------------------------------------------


def torchOf(array):
    return pytest.importorskip("torch").from_numpy(array)


WAYS = {
    "itself": lambda a: a,
    "a slice": lambda a: a[1:],
    "every second": lambda a: a[:, ::2],
    "a row": lambda a: a[2],
    "transposed": lambda a: a.T,
    "reshaped": lambda a: a.reshape(-1),
    "ravelled": lambda a: a.ravel(),
    "a view": lambda a: a.view(),
    "as whole numbers": lambda a: a.view(np.int32),
    "a matrix": lambda a: a.view(np.matrix),
    "a masked array": lambda a: np.ma.masked_array(a),
    "asarray": lambda a: np.asarray(a),
    "a view of a view of a view": lambda a: a[1:][:, 1:].T[::-1],
    "a memoryview": lambda a: memoryview(a),
    "a cast memoryview": lambda a: memoryview(a).cast("B"),
    "frombuffer": lambda a: np.frombuffer(a, np.float32),
    "ndarray over it": lambda a: np.ndarray((3,), np.float32, a),
    "flat": lambda a: a.flat,
    "an iterator": lambda a: iter(a),
    "nditer": lambda a: np.nditer(a, op_flags=["readwrite"]),
    "ctypes": lambda a: (ctypes.c_char * a.nbytes).from_buffer(a),
    "a pointer of ctypes": lambda a: a.ctypes.data_as(ctypes.c_void_p),
    "sliding windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 0, writeable=True),
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (2,), (4,)),
    "dlpack": lambda a: np.from_dlpack(a),
    "a tensor": torchOf,
    "a view of a tensor": lambda a: torchOf(a)[1:],
    "a list of rows": list,
}


@onHost
@pytest.mark.parametrize("way", WAYS)
def test_whatever_can_write_to_a_parameter_keeps_its_lease(way):
    param = Param((4, 6), "ones")
    held = WAYS[way](param.data)
    gc.collect()
    assert param.hasLease
    del held
    gc.collect()
    assert not param.hasLease


@onHost
@pytest.mark.parametrize(
    "way", [np.array, np.copy, copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a)), lambda a: a + 0, list]
)
def test_a_copy_of_a_parameter_is_no_lease(way):
    param = Param((4,), "ones")
    held = way(param.data)
    assert len(held) == 4 and not param.hasLease


@onHost
def test_the_data_of_a_parameter_is_one_array_as_long_as_somebody_has_it():
    param = Param((3,))
    held = param.data
    assert param.data is held and type(held) is np.ndarray and held.flags.writeable and type(held.base) is Outer
    version = param.version
    assert param.data is held and param.version == version
    del held
    assert np.shares_memory(param.data, param.array) and param.version != version


def test_the_library_reads_parameters_without_a_lease(tmp_path):
    net, optimizer = convolution().trainMode(), Adam()
    program = net.compile(X.shape, (16, 24), cost=pg.MSE(), optimizer=optimizer)
    t = np.zeros((16, 24), np.float32)
    program.run(X, t)
    before = [p.version for p in net.params.values()]
    net.evalMode()
    net(X)
    reader = net.compile(X.shape)
    reader.run(X)
    pg.Calculator(net).calculate(X)
    pg.Validator(net, pg.MSE()).validate(X, t)
    net.save(tmp_path / "net.pg", optimizer)
    copy.deepcopy(net)
    assert [p.version for p in net.params.values()] == before and not any(p.hasLease for p in net.params.values())


def test_threads_that_read_a_parameter_at_once_all_have_its_lease():
    param, found, start = Param((8,)), [], threading.Barrier(4)

    def read():
        start.wait()
        for _ in range(200):
            found.append(param.data)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if device.name() == "cpu":
        kept = {id(a) for a in found}
        assert kept == {id(lease()) for lease in param.leases}
        del found[:]
        assert not param.hasLease


# Versions ---------------------------------------------------------------------------------------------------------


def raised(stored, change):
    before = stored.version
    change()
    return stored.version != before


@pytest.mark.parametrize("optimizer", [SGD, MomentumSGD, Adam])
@pytest.mark.parametrize("manner", ["eager", "compiled", "foreign"])
def test_an_update_raises_the_version_of_what_it_updates(optimizer, manner):
    class Own(optimizer):
        def update(self):
            return super().update()

    net = pg.Sequential(pg.Linear(3, 4, name="a"), pg.BatchNorm(4, name="b"), pg.Linear(4, 2, name="c"), name="n")
    net["c"].W.trainable = False
    found = (Own if manner == "foreign" else optimizer)(0.1).setupOn(net)
    x, t = np.ones((5, 3), np.float32), np.zeros((5, 2), np.float32)
    program = net.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=found)
    program.run(x, t)

    def step():
        if manner == "eager":
            net.backward(net(x) - t, updGrad=False)
            found.update()
        else:
            program.run(x, t)

    stored = {**net.params, **(net.states if manner != "eager" else {})}
    before = {path: s.version for path, s in stored.items()}
    step()
    assert {path for path, s in stored.items() if s.version == before[path]} == {"c.W"}


def test_loading_casting_and_assigning_raise_the_version(tmp_path):
    net = pg.Sequential(pg.Linear(3, 4, name="a"), name="n")
    W = net["a"].W
    net(np.ones((2, 3), np.float32))
    net.save(tmp_path / "n.pg")
    assert raised(W, lambda: net.load(tmp_path / "n.pg"))
    assert raised(W, lambda: setattr(W, "data", np.zeros((3, 4))))
    assert raised(W, lambda: W.calcMode("float64"))
    assert not raised(W, lambda: net(np.ones((2, 3))))


# Memory -----------------------------------------------------------------------------------------------------------


def readOnly(a):
    a.flags.writeable = False
    return a


def mapped(mode):
    def make(a, folder):
        np.save(folder / "w.npy", a)
        return np.load(folder / "w.npy", mmap_mode=mode)

    return make


def misaligned(a):
    room = np.zeros(a.nbytes + 1, np.uint8)
    found = room[1:].view(a.dtype).reshape(a.shape)
    found[...] = a
    return found


def gaps(a):
    room = np.zeros((a.shape[0], 2 * a.shape[1]), a.dtype)
    room[:, : a.shape[1]] = a
    return room[:, : a.shape[1]]


def backwards(a):
    return np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]


ODD = {
    "read-only": lambda a, _: readOnly(a),
    "of a bytes object": lambda a, _: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "mapped to be read": mapped("r"),
    "mapped to be written": mapped("r+"),
    "mapped, copied on write": mapped("c"),
    "misaligned": lambda a, _: misaligned(a),
    "with gaps": lambda a, _: gaps(a),
    "backwards": lambda a, _: backwards(a),
    "in Fortran's order": lambda a, _: np.asfortranarray(a),
    "of swapped bytes": lambda a, _: a.astype(a.dtype.newbyteorder()),
    "in float64": lambda a, _: a.astype("f8"),
    "in float16": lambda a, _: a.astype("f2"),
    "broadcast": lambda a, _: np.broadcast_to(a[:1], a.shape),
    "overlapping itself": lambda a, _: np.lib.stride_tricks.as_strided(a, a.shape, (4, 4)),
    "the data of another parameter": lambda a, _: lent(a),
    "whole numbers": lambda a, _: (a * 10).astype(int),
}


def lent(a):
    param = Param(a.shape)
    param.data = a
    return param.data


def layer():
    pg.seed(3)
    return pg.Sequential(pg.Linear(24, 8, name="a"), pg.Tanh(), pg.Linear(8, 8, name="b"), name="n")


@pytest.mark.parametrize("manner", ["native", "numpy"])
@pytest.mark.parametrize("kind", ODD)
def test_weights_of_any_memory_train_as_a_plain_copy_does(kind, manner, tmp_path):
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal((16, 24)).astype("f4"), rng.standard_normal((16, 8)).astype("f4")
    odd = ODD[kind](rng.standard_normal((24, 8)).astype("f4"), tmp_path)
    values = np.array(odd, "f4")
    nets = layer(), layer()
    nets[0]["a"].W.data, nets[1]["a"].W.data = odd, values
    kept = np.array(odd)
    found = []
    with pg.kernel.useFast(manner == "native"):
        for net in nets:
            program = net.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=MomentumSGD(0.1))
            found.append([float(program.run(x, t)[0]) for _ in range(3)])
            assert program.executable is not None, program.why
    assert found[0] == found[1]
    for path, p in nets[0].params.items():
        assert np.array_equal(p.data, nets[1].params[path].data) and p.array.flags.carray and p.array.dtype.isnative
    assert np.array_equal(odd, kept), "what was assigned is not written to"
    assert not np.shares_memory(odd, nets[0]["a"].W.data)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (np.ma.masked_array(np.zeros((3, 2)), mask=True), DtypeError, r"masked array; fill it"),
        (np.zeros((3, 2), complex), DtypeError, r"got dtype complex128; convert it with .astype\('float32'\)"),
        (np.zeros((3, 2), object), DtypeError, "got dtype object"),
        (np.zeros((3, 2), "U3"), DtypeError, "got dtype <U3"),
        ([[0, 0], [0, 0], [0, 0]], DtypeError, "parameter, got list; np.asarray makes one"),
        (None, DtypeError, "got NoneType"),
        (1.0, DtypeError, "got float"),
        (np.zeros((2, 3)), ShapeError, r"parameter data of shape \(3, 2\), got \(2, 3\)"),
        (np.zeros((1, 2)), ShapeError, r"parameter data of shape \(3, 2\), got \(1, 2\)"),
    ],
    ids=lambda v: "",
)
def test_what_cannot_be_the_values_of_a_parameter_is_refused(given, error, words):
    param = Param((3, 2), "ones")
    held = param.data
    with pytest.raises(error, match=words):
        param.data = given
    assert param.data is held and (held == 1).all()


def test_an_array_that_was_assigned_is_not_shared():
    param, own = Param((3,)), np.ones(3, np.float32)
    param.data = own
    own[...] = 5
    assert (param.data == 1).all()
    param.data[...] = 7
    assert (own == 5).all()


def test_the_memory_that_a_network_was_loaded_from_is_not_shared():
    stored = bytearray(layer().save(None))
    net, other = pg.load(stored), layer()
    other.load(stored)
    before = [{path: p.data.copy() for path, p in each.params.items()} for each in (net, other)]
    stored[:] = bytes(len(stored))
    for each, arrays in zip((net, other), before):
        assert all(np.array_equal(p.data, arrays[path]) for path, p in each.params.items())


def test_weights_are_swapped_and_put_back_by_value():
    net = layer()
    a, b = net["a"].b, net["b"].b
    a.data, b.data = np.arange(8.0), -np.arange(8.0)
    a.data, b.data = b.data, a.data
    assert (a.data == -np.arange(8)).all() and (b.data == np.arange(8)).all()
    kept = a.data
    a.data = np.zeros(8)
    a.data = kept
    assert (a.data == -np.arange(8)).all()
    a.data[...] = 3
    assert (kept == -np.arange(8)).all()


def test_flags_of_what_was_given_or_handed_out_do_not_reach_a_parameter():
    net, own = pg.Sequential(pg.Linear(2, 3, name="a")), np.ones(3, np.float32)
    optimizer, param = SGD(1.0).setupOn(net), net["a"].b
    param.data = own
    own.flags.writeable = False
    held = param.data
    if device.name() == "cpu":
        held.flags.writeable = False
    param.grad = np.ones(3, np.float32)
    optimizer.update()
    assert (device.toHost(param.data) == 0).all() and (own == 1).all()


def test_changing_a_parameter_in_place_by_an_operator_keeps_its_memory(monkeypatch):
    net = convolution()
    program = net.compile(X.shape)
    program.run(X)
    W = net["fc"].W
    array = W.array
    monkeypatch.setattr(Program, "build", lambda self: pytest.fail("compiled again"))
    W.data *= 2
    W.data += 1
    monkeypatch.undo()
    assert W.array is array
    assertNew(program, net)


@pytest.mark.parametrize("protocol", [2, 4, 5, "out of band", "deepcopy", "copy"])
def test_a_copied_parameter_has_memory_of_its_own(protocol):
    param = Param((4, 3), "ones")
    held = param.data
    if protocol == "out of band":
        buffers = []
        text = pickle.dumps(param, 5, buffer_callback=buffers.append)
        other = pickle.loads(text, buffers=[bytes(b) for b in buffers])
    elif isinstance(protocol, int):
        other = pickle.loads(pickle.dumps(param, protocol))
    else:
        other = getattr(copy, protocol)(param)
    assert not other.hasLease and not np.shares_memory(held, other.data)
    if device.name() == "cpu":
        assert other.array.flags.carray
    other.data[...] = 2
    assert (held == 1).all()


def test_what_a_scheme_gives_is_copied():
    own = np.ones((24, 8), np.float32)
    net = pg.Sequential(pg.Linear(24, 8, initscheme=lambda rng, shape: own, name="a"), name="n")
    x, t = np.ones((16, 24), "f4"), np.zeros((16, 8), "f4")
    net.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=SGD(0.1)).run(x, t)
    assert (own == 1).all() and not (net["a"].W.data == 1).all()


class Whole(pg.Module):
    """Gives its parameter itself, or a view of it."""

    def __init__(self, view=None, name=None):
        super().__init__(name)
        self.W, self.view = Param((4, 6), "ones"), view

    def dataShapeFrom(self, x):
        return (4, 6) if self.view is None else (6, 4)

    def updateData(self, x, W):
        return W if self.view is None else np.transpose(W)

    def updateGrad(self, grad, x, W, y):
        return None, grad


@pytest.mark.parametrize("manner", ["eager", "compiled", "lent"])
@pytest.mark.parametrize("view", [None, "transposed"])
def test_a_result_never_is_the_memory_of_a_parameter(view, manner):
    module = Whole(view, name="w")
    net = pg.Graph(node := pg.Input().node(), module.node(node))
    x = np.ones((1,), np.float32)
    y = net(x) if manner == "eager" else net.compile(x.shape, train=False).run(x, copy=manner == "compiled")
    if isinstance(y, np.ndarray):
        y[...] = 5
    assert (device.toHost(module.W.data) == 1).all()


def test_what_an_optimizer_keeps_may_be_any_array():
    """Then the graph itself runs, as a program cannot write to such memory."""
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal((16, 24)).astype("f4"), rng.standard_normal((16, 8)).astype("f4")
    nets, optimizers = (layer(), layer()), (MomentumSGD(0.1), MomentumSGD(0.1))
    programs = [n.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=o) for n, o in zip(nets, optimizers)]
    for program in programs:
        program.run(x, t)
    slot = optimizers[0].slots[0]
    slot.arrays["velocity"] = gaps(slot.arrays["velocity"])
    with pytest.warns(pg.GraphWarning, match="wanted memory for 'velocity/a.W' that is writeable, aligned, and row by"):
        found = [programs[0].run(x, t)[0]]
    found.append(programs[0].run(x, t)[0])
    np.testing.assert_allclose(found, [programs[1].run(x, t)[0] for _ in range(2)], rtol=1e-5)
    for path, p in nets[0].params.items():
        np.testing.assert_allclose(p.data, nets[1].params[path].data, rtol=1e-4, atol=1e-6)


# Changes ----------------------------------------------------------------------------------------------------------


@needsNative
def test_programs_that_change_no_parameter_keep_weights_packed():
    """What follows would show nothing without."""
    program = convolution().compile(X.shape)
    assert len(program.executable.packedWeights.weights) == 2


def assigned(net):
    net["fc"].W.data = net["fc"].W.data * 3


COUNTER = {
    "one element": lambda net: net["fc"].W.data.__setitem__((17, 5), 9),
    "a filter": lambda net: net["conv"].W.data[3].fill(0),
    "one number of a filter": lambda net: net["conv"].W.data.__setitem__((2, 1, 0, 1), 9),
    "pruning one of a hundred": lambda net: np.put(net["fc"].W.data, range(0, 16 * 36 * 24, 100), 0),
    "copyto": lambda net: np.copyto(net["fc"].W.data[5:6], 4),
    "out": lambda net: np.multiply(net["fc"].W.data[:1], 5, out=net["fc"].W.data[:1]),
    "flat": lambda net: net["fc"].W.data.flat.__setitem__(1000, 7),
    "a mask": lambda net: net["fc"].W.data.__setitem__(np.arange(16 * 36) == 99, 7),
    "a memoryview": lambda net: memoryview(net["fc"].W.data).cast("B").cast("f").__setitem__(77, 7.0),
    "another array": assigned,
}


@pytest.mark.parametrize("name", COUNTER)
def test_a_change_in_place_is_seen(name):
    net = convolution()
    program, calculator = net.compile(X.shape), pg.Calculator(net)
    before = program.run(X)
    calculator.calculate(X)
    COUNTER[name](net)
    found = program.run(X)
    assert not np.array_equal(found, before)
    assert np.array_equal(found, net.compile(X.shape).run(X))
    assert np.array_equal(calculator.calculate(X), pg.Calculator(net).calculate(X))


def test_a_view_from_before_the_first_run_may_be_written_to_at_any_time():
    net = convolution()
    view = net["fc"].W.data[40:41, 3:4]
    program = net.compile(X.shape)
    for k in range(4):
        program.run(X)
        view[...] = k
        assertNew(program, net)
    view[...] = 9
    del view
    assertNew(program, net)


@needsNative
def test_weights_are_packed_once_more_after_the_last_lease_and_then_no_more(monkeypatch):
    net = convolution()
    program = net.compile(X.shape)
    packed, built = [], program.executable
    monkeypatch.setattr(built, "packing", lambda pack=built.packing: packed.append(pack()))
    program.fastPath = None  # it has what packs already
    program.run(X)
    view = net["fc"].W.data[1:]
    counts = []
    for k in range(7):
        if k == 3:
            del view
        before = len(packed)
        program.run(X)
        counts.append(len(packed) - before)
    assert counts == [1, 1, 1, 1, 0, 0, 0]


@needsNative
def test_packing_that_is_interrupted_is_done_again(monkeypatch):
    net = convolution()
    program = net.compile(X.shape)
    program.run(X)
    net["fc"].W.data[3, 3] = 50
    packedWeights = program.executable.packedWeights

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packedWeights.refresh(interrupted)
    assertNew(program, net)


def test_states_are_leased_as_well():
    state = State((3,), "ones")
    held = state.data
    assert state.hasLease == (device.name() == "cpu") and (held == 1).all()


# Inputs -----------------------------------------------------------------------------------------------------------


def square():
    pg.seed(1)
    layers = pg.Linear(128, 128, name="a"), pg.Tanh(), pg.Linear(128, 128, name="b"), pg.BatchNorm(128, name="n")
    return pg.Sequential(*layers, pg.Tanh(), pg.Linear(128, 128, name="c"), name="net")


INPUTS = {
    "a weight": lambda net, optimizer: net["b"].W.data,
    "a view of a weight": lambda net, optimizer: net["a"].W.data[:],
    "a gradient": lambda net, optimizer: net["c"].W.grad,
    "what the optimizer keeps": lambda net, optimizer: optimizer.state["velocity/a.W"],
    "read-only": lambda net, optimizer: readOnly(T.copy()),
    "misaligned": lambda net, optimizer: misaligned(T),
    "with gaps": lambda net, optimizer: gaps(T),
    "backwards": lambda net, optimizer: backwards(T),
    "broadcast": lambda net, optimizer: np.broadcast_to(T[:1], T.shape),
    "its target": lambda net, optimizer: T,
}
T = np.random.default_rng(1).standard_normal((128, 128)).astype(np.float32)


@pytest.mark.parametrize("manner", ["native", "numpy"])
@pytest.mark.parametrize("kind", INPUTS)
def test_an_input_may_be_any_memory_even_what_the_step_writes_to(kind, manner):
    found = []
    for isCopied in (False, True):
        with pg.kernel.useFast(manner == "native"):
            net, optimizer = square(), MomentumSGD(5.0)
            program = net.compile(T.shape, T.shape, cost=pg.MSE(), optimizer=optimizer)
            program.run(T, T)
            for _ in range(2):
                x = INPUTS[kind](net, optimizer)
                before = x.copy()
                y = program.run(before if isCopied else x, T)[1]
                assert kind not in ("read-only", "misaligned", "its target") or np.array_equal(x, before)
            found.append([y, *[p.data.copy() for p in net.params.values()]])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("manner", ["native", "numpy"])
def test_a_lent_result_may_be_the_next_input(manner):
    with pg.kernel.useFast(manner == "native"):
        net = square().evalMode()
        program = net.compile(T.shape)
        lent = own = T
        for _ in range(3):
            lent, own = program.run(lent, copy=False), program.run(own)
        assert np.array_equal(lent, own)


def test_two_parameters_that_were_cut_out_of_one_array_are_apart():
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal((16, 24)).astype("f4"), rng.standard_normal((16, 8)).astype("f4")
    big, found = rng.standard_normal(12).astype("f4"), []
    for copied in (False, True):
        net = layer()
        net["a"].b.data, net["b"].b.data = (v.copy() if copied else v for v in (big[:8], big[4:]))
        program = net.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=SGD(1.0))
        found.append([float(program.run(x, t)[0]) for _ in range(3)])
    assert found[0] == found[1]


def test_what_an_optimizer_keeps_of_two_parameters_may_not_be_one_array():
    net, optimizer = layer(), MomentumSGD(0.1)
    x, t = np.ones((16, 24), "f4"), np.zeros((16, 8), "f4")
    program = net.compile(x.shape, t.shape, cost=pg.MSE(), optimizer=optimizer)
    program.run(x, t)
    a, b = (slot for slot in optimizer.slots if slot.path in ("a.b", "b.b"))
    a.arrays["velocity"] = b.arrays["velocity"]
    with pytest.warns(pg.GraphWarning, match="memory of their own for 'velocity/a.b' and 'velocity/b.b', which share"):
        program.run(x, t)


@pytest.mark.parametrize("manner", ["native", "numpy"])
def test_gradients_that_a_user_sets_are_added_to_whatever_their_memory(manner):
    x, t = np.ones((16, 24), "f4"), np.zeros((16, 8), "f4")
    found = []
    for odd in (lambda g: g.copy(), gaps, lambda g: readOnly(g.copy()), np.asfortranarray, misaligned):
        with pg.kernel.useFast(manner == "native"):
            net = layer()
            task = withCost(net, pg.MSE(), 1, 1).trainMode()
            program = Program(task, [x.shape, t.shape], grads="one", added=True, scaled=True)
            W = net["a"].W
            W.grad = given = odd(np.full((24, 8), 0.5, "f4"))
            program.run(x, t, scale=1.0)
            found.append(np.array(W.grad))
            assert (given == 0.5).all()
    assert all(np.array_equal(found[0], g) for g in found[1:])
