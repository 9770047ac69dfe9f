"""Loop and Scan are modules that run a graph again and again: what onnxruntime gives, with gradients through time."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

import hostileonnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import puregraph  # noqa: E402
from puregraph import CheckpointError, DataError, GraphError, ShapeError  # noqa: E402
from puregraph.autodiff import Variable, grad  # noqa: E402
from puregraph.core.base.budget import LIMITS  # noqa: E402
from puregraph.modules.costs import MSE  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.optimizers import SGD  # noqa: E402

WIDTH = 3
KINDS = {
    np.dtype("f4"): TensorProto.FLOAT,
    np.dtype("f8"): TensorProto.DOUBLE,
    np.dtype("i8"): TensorProto.INT64,
    np.dtype("?"): TensorProto.BOOL,
}


def modelOf(node, given, constants=(), sizes=None):
    """A model of one node; `sizes` are declared for inputs in place of those of the data."""
    ends = [
        helper.make_tensor_value_info(name, KINDS[x.dtype], (sizes or {}).get(name, x.shape))
        for name, x in given.items()
    ]
    outs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    arrays = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph([node], "it", ends, outs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def expected(model, given):
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def checked(model, given, near=1e-6):
    """The graph of a model, after its outputs were compared with onnxruntime's, and written again."""
    net, wanted = fromOnnx(model), expected(model, given)
    found = net(*given.values())
    for y, want in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        assert y.shape == want.shape and y.dtype == want.dtype
        np.testing.assert_allclose(y, want, 1e-5, near)
    shapes, dtypes = zip(*[(x.shape, x.dtype) for x in given.values()])
    written = toOnnx(net, None, list(shapes), dtypes=list(dtypes))
    onnx.checker.check_model(written, full_check=True)
    for y, want in zip(expected(written, dict(zip(net.arguments, given.values()))), wanted, strict=True):
        np.testing.assert_allclose(y, want, 1e-5, near)
    again = fromOnnx(written)
    second = toOnnx(again, None, list(shapes), dtypes=list(dtypes))
    assert second.SerializeToString(deterministic=True) == written.SerializeToString(deterministic=True)
    return net


def scanModel(rng, dtype="f4"):
    """A Scan of up to two carried rows over one or two inputs, along any axes in any direction.

    None is empty: there onnxruntime divides by zero, and takes the process with it.
    """
    states, scans, length = int(rng.integers(0, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 5))
    axes = [int(rng.integers(-2, 2)) for _ in range(scans)]
    out = int(rng.integers(-2, 2))
    ways = rng.integers(0, 2, scans + 1)
    given = {f"c{i}": rng.standard_normal(WIDTH).astype(dtype) for i in range(states)}
    for i, axis in enumerate(axes):
        x = rng.standard_normal((length, WIDTH)).astype(dtype)
        given[f"x{i}"] = x if axis % 2 == 0 else x.T.copy()
    given["z"] = rng.standard_normal(WIDTH).astype(dtype)
    nodes, last = [], "s0"
    for i in range(1, scans):
        nodes.append(helper.make_node("Mul", [last, f"s{i}"], [f"p{i}"]))
        last = f"p{i}"
    nodes.append(helper.make_node("Mul", [last, "z"], ["read"]))
    for i in range(states):
        nodes.append(helper.make_node("MatMul", [f"b{i}", "W"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"m{i}", "read"], [f"a{i}"]))
        nodes.append(helper.make_node("Tanh", [f"a{i}"], [f"n{i}"]))
    total = helper.make_node("Sum", ["read", *(f"n{i}" for i in range(states))], ["y"])
    ins = [info(f"b{i}") for i in range(states)] + [info(f"s{i}") for i in range(scans)]
    outs = [info(f"n{i}", shape=[WIDTH]) for i in range(states)] + [info("y", shape=[WIDTH])]
    node = helper.make_node(
        "Scan",
        [name for name in given if name != "z"],
        [*(f"last{i}" for i in range(states)), "all"],
        body=helper.make_graph([*nodes, total], "body", ins, outs),
        num_scan_inputs=scans,
        scan_input_axes=axes,
        scan_input_directions=ways[:scans].tolist(),
        scan_output_axes=[out],
        scan_output_directions=ways[scans:].tolist(),
        name="scan",
    )
    return modelOf(node, given, [("W", rng.standard_normal((WIDTH, WIDTH)).astype(dtype))]), given


def loopModel(rng):
    """A Loop of a carried row, and perhaps one that grows, ended by a count, a condition of data, or both."""
    hasCount, hasCondition, grows = rng.random() < 0.7, rng.random() < 0.5, rng.random() < 0.5
    given = {"count": np.array(rng.integers(0, 6))} if hasCount else {}
    given |= {"on": np.array(rng.random() < 0.9)} if hasCondition else {}
    given["c"] = rng.standard_normal(WIDTH).astype("f4")
    given |= {"g": rng.standard_normal((1, WIDTH)).astype("f4")} if grows else {}
    given["most"] = np.array(rng.integers(1, 7))
    nodes = [
        helper.make_node("Mul", ["c_in", "W"], ["m"]),
        helper.make_node("Sin", ["m"], ["c_out"]),
        helper.make_node("Add", ["c_out", "c_in"], ["row"]),
        helper.make_node("Less", ["t", "most"], ["on_out"])
        if not hasCount or rng.random() < 0.5
        else helper.make_node("Identity", ["on_in"], ["on_out"]),
    ]
    ins = [info("t", TensorProto.INT64, []), info("on_in", TensorProto.BOOL, []), info("c_in")]
    outs = [info("on_out", TensorProto.BOOL, []), info("c_out")]
    if grows:
        nodes.append(helper.make_node("Unsqueeze", ["c_out", "zero"], ["new"]))
        nodes.append(helper.make_node("Concat", ["g_in", "new"], ["g_out"], axis=0))
        ins, outs = [*ins, info("g_in")], [*outs, info("g_out")]
    body = helper.make_graph(nodes, "body", ins, [*outs, info("row", shape=[WIDTH])])
    inputs = ["count" if hasCount else "", "on" if hasCondition else "", "c", *(["g"] if grows else [])]
    node = helper.make_node("Loop", inputs, ["last", *(["grown"] if grows else []), "rows"], body=body, name="loop")
    constants = [("W", rng.standard_normal(WIDTH).astype("f4")), ("zero", np.array([0]))]
    return modelOf(node, given, constants, {"g": ["rows", WIDTH]}), given


@pytest.mark.parametrize("make", [scanModel, loopModel])
def test_20_random_settings_give_what_onnxruntime_gives_and_are_written_again(make):
    rng = np.random.default_rng(1)
    for _ in range(20):
        model, given = make(rng)
        checked(model, given)


@pytest.mark.slow
@pytest.mark.parametrize("make", [scanModel, loopModel])
def test_300_random_settings_give_what_onnxruntime_gives_and_are_written_again(make):
    rng = np.random.default_rng(2)
    for _ in range(300):
        model, given = make(rng)
        checked(model, given)


def test_gradients_through_time_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    model, given = scanModel(np.random.default_rng(5), "f8")
    net = fromOnnx(model).trainMode()
    scan = net["scan"]
    W = next(iter(net.params.values())).data
    found = net(*given.values())
    found = found if isinstance(found, list) else [found]
    seeds = [rng.standard_normal(y.shape) for y in found]
    net.backward(seeds if len(seeds) > 1 else seeds[0])
    own = {name: torch.tensor(x, requires_grad=True) for name, x in given.items()}
    weight = torch.tensor(W, requires_grad=True)
    carried = [own[f"c{i}"] for i in range(scan.carried)]
    rows, count = [], given["x0"].shape[scan.ins[0][0]]
    for t in range(count):
        read = own["z"]
        for i, (axis, isReversed) in enumerate(scan.ins):
            read = own[f"x{i}"].select(axis, count - 1 - t if isReversed else t) * read
        carried = [torch.tanh(c @ weight + read) for c in carried]
        rows.append(sum(carried, read))
    axis, isReversed = scan.outs[0]
    outputs = [*carried, torch.stack(rows[::-1] if isReversed else rows, axis)]
    torch.autograd.backward(outputs, [torch.tensor(s) for s in seeds])
    for g, x in zip(net.grad, own.values(), strict=True):
        np.testing.assert_allclose(g, x.grad.numpy(), 1e-8, 1e-10)
    np.testing.assert_allclose(next(iter(net.params.values())).grad, weight.grad.numpy(), 1e-8, 1e-10)


def test_a_scan_of_nothing_gives_what_is_carried_and_empty_rows():
    model, given = scanModel(np.random.default_rng(5))
    net = fromOnnx(model, shapes={name: tuple(f"{name}_{i}" for i in range(x.ndim)) for name, x in given.items()})
    empty = {
        name: x.T[:0].T if name[0] == "x" and net["scan"].ins[int(name[1])][0] % 2 else x for name, x in given.items()
    }
    empty = {name: x[:0] if name[0] == "x" and x is given[name] else x for name, x in empty.items()}
    found = net(*empty.values())
    assert sorted(found[-1].shape) == [0, WIDTH]
    net.backward([np.ones_like(y) for y in found])
    for name, g in zip(given, net.grad, strict=True):
        np.testing.assert_array_equal(g, np.full_like(empty[name], float(name[0] == "c")))


def test_a_loop_that_data_ends_is_saved_and_runs_in_a_compiled_step(tmp_path):
    model, given = loopModel(np.random.default_rng(0))
    net = fromOnnx(model)
    net.save(tmp_path / "net.h5")
    again = puregraph.load(tmp_path / "net.h5")
    program = net.compile(*[x.shape for x in given.values()], dtypes=[x.dtype for x in given.values()])
    for _ in range(3):
        for x, y, z in zip(*(f(*given.values()) for f in (net, again, program.run)), strict=True):
            np.testing.assert_array_equal(x, y)
            np.testing.assert_allclose(x, z, 1e-6)
    assert "loop   as it is: loop_y1_0, loop_y2_0 depends on the data" in str(program.table())


def test_a_recurrent_scan_is_trained_by_a_compiled_step():
    model, given = scanModel(np.random.default_rng(5))
    net = fromOnnx(model)
    targets = [np.zeros(y, np.float32) for y in net.dataShapeFrom([x.shape for x in given.values()])][:1]
    program = net.compile(
        *[x.shape for x in given.values()], targets[0].shape, cost=MSE(), optimizer=SGD(learnRate=0.1)
    )
    costs = [program.run(*given.values(), targets[0]) for _ in range(10)]
    first, last = (c[0] if isinstance(c, (list, tuple)) else c for c in (costs[0], costs[-1]))
    assert last < first


def test_a_loop_without_an_end_is_stopped():
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["on"], ["go"])],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("c")],
        [info("go", TensorProto.BOOL, []), info("d")],
    )
    given = {"x": np.ones(1, np.float32)}
    model = modelOf(helper.make_node("Loop", ["", "", "x"], ["y"], body=body, name="loop"), given)
    with pytest.raises(DataError, match="wanted at most 1,000 runs of a loop and those inside it, got more; fromOnnx"):
        fromOnnx(model, mostRuns=1000)(*given.values())


@pytest.mark.parametrize("count", [3, 10])
def test_runs_of_loops_inside_a_loop_are_counted_too(count):
    inner = hostileonnx.loopBody([("Relu", ["a"], ["b"])])
    body = hostileonnx.loopBody([("Loop", ["n", "on", "a"], ["b"], {"body": inner})])
    number, condition = hostileonnx.value("n", (), TensorProto.INT64), hostileonnx.value("on", (), TensorProto.BOOL)
    nodes = [("Loop", ["n", "on", "x"], ["y"], {"body": body})]
    net = fromOnnx(hostileonnx.model(nodes, ["x", number, condition]), mostRuns=50)
    given = np.ones(2, np.float32), np.array(count), np.array(True)
    if count == 3:
        assert np.array_equal(net(*given), np.ones(2)) and np.array_equal(net(*given), np.ones(2))
    else:
        with pytest.raises(DataError, match="wanted at most 50 runs"):
            net(*given)


def test_functions_and_graphs_in_one_another_are_refused_before_they_grow_without_bound(monkeypatch):
    monkeypatch.setitem(LIMITS, "nodes", (500, 0))  # so many are written out before it is known

    def function(i):
        node = (
            helper.make_node(f"f{i - 1}", ["x"], ["a"], domain="own") if i else helper.make_node("Relu", ["x"], ["a"])
        )
        last = helper.make_node(f"f{i - 1}", ["a"], ["y"], domain="own") if i else helper.make_node("Neg", ["a"], ["y"])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        return helper.make_function("own", f"f{i}", ["x"], ["y"], [node, last], opsets)

    node = helper.make_node("f38", ["x"], ["y"], domain="own", name="call")
    model = modelOf(node, {"x": np.ones(2, np.float32)})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(function(i) for i in range(39))
    with pytest.raises(
        CheckpointError, match="^the model asks for 501 nodes or more, a file of its size may have 500$"
    ):
        fromOnnx(model)


def test_a_carried_value_of_other_axes_is_refused():
    body = helper.make_graph(
        [helper.make_node("Unsqueeze", ["c", "zero"], ["d"]), helper.make_node("Identity", ["on"], ["go"])],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("c")],
        [info("go", TensorProto.BOOL, []), info("d")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")
    given = {"n": np.array(2), "x": np.ones(1, np.float32)}
    with pytest.raises(
        (ShapeError, GraphError), match=r"'loop' \(Loop\): wanted a carried value of \(1,\) in every run, got"
    ):
        fromOnnx(modelOf(node, given, [("zero", np.array([0]))]))(*given.values())


def test_gradients_of_a_loop_are_right_to_the_second_order():
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["c", "x"], ["m"]),
            helper.make_node("Sin", ["m"], ["d"]),
            helper.make_node("Identity", ["on"], ["go"]),
        ],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("c")],
        [info("go", TensorProto.BOOL, []), info("d")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")
    given = {"x": np.array([0.3, -0.7], np.float32)}
    net = fromOnnx(modelOf(node, given, [("n", np.array(3))]))
    x = given["x"].astype(np.float64)
    v = Variable(x, requires_grad=True)
    (g,) = grad(net["loop"](np.array(3), np.array(True), v, v).sum(), [v], create_graph=True)
    (h,) = grad(g.sum(), [v])

    def slope(at):
        a = at.copy()
        return (f(a + 1e-4) - f(a - 1e-4)) / 2e-4

    def f(a):
        c = a
        for _ in range(3):
            c = np.sin(c * a)
        return c

    np.testing.assert_allclose(g.data, slope(x), 1e-6)
    np.testing.assert_allclose(h.data, (slope(x + 1e-4) - slope(x - 1e-4)) / 2e-4, 1e-4)
