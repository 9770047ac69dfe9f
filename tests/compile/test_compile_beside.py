"""Costly functions, reductions and comparisons side by side in one graph, at all sizes: compiled, they give what the
graph gives, as exactly as that is of float64."""

import copy

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative
from spread import spread
from test_native_programs import compiled, eagerly, listed

from puregraph.compile.program import Program
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    Add,
    ArgMax,
    BatchNorm,
    Clip,
    Einsum,
    Elu,
    Gelu,
    Greater,
    GroupNorm,
    LayerNorm,
    Linear,
    Max,
    MaxPool1D,
    Mean,
    Min,
    Mul,
    MulAddConst,
    Power,
    Relu,
    Reshape,
    Sigmoid,
    SoftMax,
    SoftPlus,
    Sub,
    Sum,
    Swish,
    Tanh,
    Transpose,
)
from puregraph.modules.costs import MSE, CrossEntropy
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD

pytestmark = [needsNative, pytest.mark.usefixtures("quickly")]


def inputs(count):
    return [Input(name=f"x{i}").node() for i in range(count)]


def check(graph, data, grads=None):
    """Compile a graph and compare outputs, gradients and states with an eager pass in float32, and one in float64."""
    rng = np.random.default_rng(0)
    outputs = listed(copy.deepcopy(graph)(*data))
    grads = [rng.standard_normal(y.shape).astype(y.dtype) for y in outputs] if grads is None else grads
    exact = copy.deepcopy(graph).calcMode(np.float64)
    wide = [[x.astype(np.float64) if x.dtype.kind == "f" else x for x in part] for part in (data, grads)]
    truth, wanted = eagerly(exact, *wide), eagerly(graph, data, grads)
    program, found = compiled(graph, data, grads)
    assert program.executable is not None, program.why
    assert found.keys() == truth.keys()
    for name, true in truth.items():
        if true is None:
            assert found[name] is None
            continue
        assert np.isfinite(found[name]).all() or not np.isfinite(wanted[name]).all(), name
        scale = max(float(np.abs(true).max(initial=0)), 1e-2)
        error, allowed = (float(np.abs(x[name] - true).max(initial=0)) / scale for x in (found, wanted))
        assert error <= 4 * allowed + 2e-6, (name, error, allowed)
    return program


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Rms(Module):
    """y = scale x / sqrt(mean(x^2) + 1e-6)"""

    reads = ("x", "scale", "factor")
    hidden = ("factor",)

    def __init__(self, size, name=None):
        super().__init__(name)
        self.scale = Param((size,), "ones")

    def dataShapeFrom(self, x):
        return x

    def hiddenShapeFrom(self, x):
        return [(*x[:-1], 1)]

    def updateData(self, x, scale):
        factor = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
        return x * factor * scale, factor

    def updateGrad(self, grad, x, scale, y, factor, needs):
        z, d = x * factor, grad * scale
        return factor * (d - z * (d * z).mean(axis=-1, keepdims=True)), (grad * z).sum(axis=tuple(range(x.ndim - 1)))


# Costly functions beside reductions -----------------------------------------------------------------------------------

COSTLY = {"sigmoid": Sigmoid, "tanh": Tanh, "swish": Swish, "gelu": Gelu, "softplus": SoftPlus, "elu": Elu}
REDUCED = {
    "layernorm": lambda n: LayerNorm(n),
    "softmax": lambda n: SoftMax(),
    "max": lambda n: Max(axis=-1, keepdims=True),
    "mean": lambda n: Mean(axis=-1, keepdims=True),
}
JOINED = {"mul": lambda a, b: Mul().node(a, b), "add": lambda a, b: Add().node(a, b), "both": lambda a, b: [a, b]}


@pytest.mark.parametrize(("costly", "reduced", "how"), spread(3, COSTLY, REDUCED, JOINED))
def test_a_costly_function_beside_a_reduction_of_the_same_array(costly, reduced, how):
    for n, c in ((1, 3), (6, 17), (2, 40)):
        (x,) = inputs(1)
        h = MulAddConst(0.7, 0.1).node(x)
        check(Graph(x, JOINED[how](COSTLY[costly]().node(h), REDUCED[reduced](c).node(h))), [normal(n, c)])


@pytest.mark.parametrize("costly", [Swish, Gelu])
def test_a_costly_product_that_is_summed_and_wanted_again(costly):
    for n, c in ((3, 5), (2, 40)):
        (x,) = inputs(1)
        h = costly().node(x)
        check(Graph(x, LayerNorm(c).node(h)), [normal(n, c)])
        (x,) = inputs(1)
        check(
            Graph(x, Sub().node(costly().node(x), Mean(axis=-1, keepdims=True).node(costly().node(x)))), [normal(n, c)]
        )


@pytest.mark.parametrize("length", [5, 64, 16384, 20000])
def test_a_gate_over_the_last_axis(length):
    (x,) = inputs(1)
    weight = Sigmoid().node(Mean(axis=-1, keepdims=True).node(Tanh().node(x)))
    check(Graph(x, Mul().node(Swish().node(x), weight)), [normal(3, length)])


def test_costly_functions_of_several_phases_in_one_pass():
    (x,) = inputs(1)
    first = SoftMax().node(Tanh().node(x))
    second = LayerNorm(24).node(Mul().node(first, Sigmoid().node(x)))
    check(Graph(x, [Add().node(second, Gelu().node(first)), Swish().node(second)]), [normal(7, 24)])


# What is compared -----------------------------------------------------------------------------------------------------

COMPARED = {
    "x + 0.7 x": lambda x: Add().node(x, MulAddConst(0.7, 0).node(x)),
    "x - x x": lambda x: Sub().node(x, Mul().node(x, x)),
    "x x + 0.3": lambda x: MulAddConst(1, 0.3).node(Mul().node(x, x)),
    "x sigmoid(x) + x": lambda x: Add().node(Swish().node(x), x),
    "x tanh(x) - 0.2 x": lambda x: Sub().node(Mul().node(x, Tanh().node(x)), MulAddConst(0.2, 0).node(x)),
    "gelu(x) + x^3": lambda x: Add().node(Gelu().node(x), Power(3).node(x)),
}


SHAPES = [((6, 4), 1), ((40, 33), 1), ((40, 33), 0), ((9, 5, 8), (0, 2)), ((2, 20000), 1)]


@pytest.mark.parametrize(("text", "case", "beside"), spread(3, COMPARED, SHAPES, [False, True]))
def test_a_largest_number_gets_its_gradient_however_it_is_computed(text, case, beside):
    shape, axis = case
    for extremum in (Max, Min):
        (x,) = inputs(1)
        h = COMPARED[text](x)
        y = extremum(axis=axis).node(h)
        others = [h, Sigmoid().node(MulAddConst(0.7, 0).node(x)), Mul().node(h, x)] if beside else []
        data = [normal(*shape)]
        outputs = listed(Graph(x, [y, *others])(*data))
        grads = [np.ones_like(outputs[0]), *(np.zeros_like(z) for z in outputs[1:])]
        check(Graph(x, [y, *others]), data, grads)


def test_a_largest_number_of_what_is_made_again_in_the_backward_pass():
    (x,) = inputs(1)
    h = x
    for _ in range(6):
        h = Add().node(Tanh().node(h), MulAddConst(0.7, 0).node(Mul().node(h, h)))
    graph = Graph(x, Max(axis=1).node(h))
    data, grads = [normal(64, 256)], [np.ones(64, np.float32)]
    wanted = eagerly(graph, data, grads)
    full = Program(graph, [(64, 256)], ["f4"], grads=(True,)).bytes
    for part in (0.8, 0.6, 0.5, 0.4):
        try:
            program = Program(graph, [(64, 256)], ["f4"], grads=(True,), budget=int(full * part))
        except Exception:
            break
        program.run(*data, *grads)
        assert np.abs(program.grad - wanted["dx0"]).max() <= 2e-5 * np.abs(wanted["dx0"]).max()
    else:
        return
    assert part < 0.8, "no budget was kept"


SIDES = {
    "clip": lambda x: Clip(-0.5, 0.5).node(COMPARED["x + 0.7 x"](x)),
    "relu": lambda x: Relu().node(COMPARED["x - x x"](x)),
    "maxpool": lambda x: MaxPool1D(2).node(Reshape((-1, 1, 8)).node(COMPARED["x - x x"](x))),
    "elu": lambda x: Elu().node(COMPARED["gelu(x) + x^3"](x)),
    "abs": lambda x: Power(1).node(COMPARED["x - x x"](x)),
}


@pytest.mark.parametrize("name", SIDES)
def test_what_is_compared_with_a_bound_is_the_number_that_was_made(name):
    (x,) = inputs(1)
    h = SIDES[name](x)
    check(Graph(x, [h, Sum(axis=-1).node(h)]), [normal(12, 8)])


# Axes of length one ---------------------------------------------------------------------------------------------------

ONES = [(1,), (1, 1), (1, 3), (3, 1), (1, 1, 4), (4, 1, 1), (1, 5, 1), (2, 1, 3)]


@pytest.mark.parametrize(("shape", "reduction"), spread(2, ONES, [Max, Min, Sum, Mean]))
def test_a_reduction_over_axes_of_length_one_and_others(shape, reduction):
    axes = [None, *range(len(shape)), tuple(range(len(shape)))]
    for axis in axes:
        (x,) = inputs(1)
        m = reduction(axis=axis, keepdims=True).node(x)
        check(Graph(x, Sub().node(m, x)), [normal(*shape)])
        (x,) = inputs(1)
        m = reduction(axis=axis, keepdims=True).node(MulAddConst(0.7, 0.2).node(x))
        check(Graph(x, [Mul().node(m, x), Tanh().node(m)]), [normal(*shape)])


@pytest.mark.parametrize("shape", [s for s in ONES if len(s) > 1])
def test_normalisations_at_axes_of_length_one(shape):
    norms = [LayerNorm(shape[-1]), SoftMax(), SoftMax(axis=0), BatchNorm(shape[1])]
    for norm in norms[: 4 if np.prod(shape) > shape[1] else 3]:
        (x,) = inputs(1)
        h = norm.node(x)
        check(Graph(x, [Mul().node(h, Sigmoid().node(x)), Sum(axis=0).node(h)]), [normal(*shape)])


EINSUMS = ["e,e,be->", "be,e->b", "be,be->e", "be,b->", "b,e->be", "be,cb->ce", "ab,bc,ca->", "e,be,b->e"]


@pytest.mark.parametrize("spec", EINSUMS)
def test_sums_of_products_at_every_small_size(spec):
    for sizes in ({"b": 1, "e": 3, "c": 2, "a": 1}, {"b": 2, "e": 1, "c": 1, "a": 3}, dict.fromkeys("beca", 1)):
        shapes = [tuple(sizes[c] for c in part) for part in spec.split("->")[0].split(",")]
        nodes = inputs(len(shapes))
        check(Graph(nodes, Einsum(spec).node(*nodes)), [normal(*s, seed=i) for i, s in enumerate(shapes)])


def test_one_sample_of_one_moment():
    (x,) = inputs(1)
    h = LayerNorm(4).node(Max(axis=1).node(Linear(4, 4).node(x)))
    check(Graph(x, Linear(4, 2).node(h)), [normal(1, 1, 4)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (2, 0, 3)])
def test_reductions_of_nothing(shape):
    for reduction in (Sum(axis=0), Sum(), Sum(axis=-1)):
        (x,) = inputs(1)
        with np.errstate(all="ignore"):
            graph = Graph(x, reduction.node(Tanh().node(x)))
            program = Program(graph, [shape], ["f4"])
            assert np.array_equal(program.run(normal(*shape)), graph(normal(*shape)), equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 1, 4), (2, 1, 2, 3), (4, 1), (1, 1), (2, 3, 1), (2, 3, 4)])
@pytest.mark.parametrize("weights", [False, True])
def test_classes_along_the_second_axis_whatever_its_length(shape, weights):
    n, classes, *spatial = shape
    cost = CrossEntropy(weights=np.linspace(0.5, 2, classes)) if weights else CrossEntropy()
    labels = np.random.default_rng(1).integers(0, classes, (n, *spatial))
    x, t = inputs(2)
    check(Graph([x, t], cost.node(x, t)), [normal(*shape), labels])
    x, t = inputs(2)
    check(Graph([x, t], cost.node(Tanh().node(x), t)), [normal(*shape), labels])


# Two directions -------------------------------------------------------------------------------------------------------

NORMS = {
    "layer": lambda: LayerNorm(8),
    "batch": lambda: BatchNorm(8),
    "softmax": lambda: SoftMax(),
    "columns": lambda: SoftMax(axis=0),
    "group": lambda: GroupNorm(2, 8),
}


@pytest.mark.parametrize(("first", "second"), spread(2, NORMS, NORMS))
def test_norms_over_rows_and_over_columns_follow_one_another(first, second):
    for n in (5, 16) if "batch" in (first, second) else (1, 16):
        (x,) = inputs(1)
        h = NORMS[first]().node(x)
        check(Graph(x, NORMS[second]().node(h)), [normal(n, 8)])
        (x,) = inputs(1)
        h = NORMS[first]().node(x)
        check(
            Graph(x, [NORMS[second]().node(h), Sum(axis=0).node(Mul().node(h, x)), Max(axis=1).node(h)]), [normal(n, 8)]
        )


@pytest.mark.parametrize(("first", "second"), spread(2, NORMS, NORMS))
def test_a_step_through_two_norms_to_a_cost(first, second):
    for cost, target in ((CrossEntropy, np.arange(16) % 8), (MSE, normal(16, 8, seed=3))):
        x, t = inputs(2)
        net = Graph([x, t], cost(name="c").node(NORMS[second]().node(NORMS[first]().node(Linear(8, 8).node(x))), t))
        check(net, [normal(16, 8), target])
        twin = copy.deepcopy(net)
        dtypes = ["f4", target.dtype]
        program = Program(net, [(16, 8), target.shape], dtypes, grads="one", optimizer=SGD(0.1).setupOn(net))
        optimizer = SGD(0.1).setupOn(twin)
        for _ in range(3):
            program.run(normal(16, 8), target)
            twin(normal(16, 8), target)
            twin.backward(np.float32(1))
            optimizer.update()
        for path, p in twin.params.items():
            assert np.abs(net.params[path].data - p.data).max() <= 1e-4 * max(1, np.abs(p.data).max()), path


@pytest.mark.parametrize("classes", [1, 5])
def test_labels_beside_a_product_of_the_same_array(classes):
    x, labels, t = inputs(3)
    h = Relu().node(x)
    cost = Add().node(CrossEntropy().node(h, labels), MSE().node(Linear(classes, 2).node(h), t))
    data = [normal(3, classes), np.arange(3) % classes, normal(3, 2)]
    check(Graph([x, labels, t], cost), data)
    x, labels = inputs(2)
    h = Linear(4, classes).node(x)
    check(Graph([x, labels], [CrossEntropy().node(h, labels), Linear(classes, 3).node(h)]), [normal(3, 4), data[1]])


@pytest.mark.parametrize("shape", [(2, 1, 1, 2), (1, 2), (16, 8), (40, 5)])
@pytest.mark.parametrize("make", [lambda n: LayerNorm(n), lambda n: Rms(n), lambda n: Linear(n, n)])
def test_one_module_at_two_nodes_adds_the_gradients_of_both(make, shape):
    module, nodes = make(shape[-1]), inputs(2)
    check(Graph(nodes[:1], [module.node(nodes[0]), module.node(nodes[0])]), [normal(*shape)])
    check(Graph(nodes, [module.node(x) for x in nodes]), [normal(*shape), normal(*shape, seed=1)])


# Updates --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [SGD, MomentumSGD, Adam, AdamW])
@pytest.mark.parametrize("make", [Rms, LayerNorm])
@pytest.mark.parametrize("shape", [(3, 4), (16, 8), (64, 32), (2, 5, 4)])
def test_a_parameter_is_updated_in_place_after_its_last_reader(make, shape, optimizer):
    (x,) = inputs(1)
    net = Graph(x, make(shape[-1]).node(x))
    program = Program(net, [shape], ["f4"], grads=[True], optimizer=optimizer(0.1).setupOn(net))
    assert leftToNumpy(program) == []


VIEWS = {
    "mul": lambda h: Mul().node(Transpose((2, 1, 0)).node(h), Transpose((0, 2, 1)).node(h)),
    "cycled": lambda h: Mul().node(Transpose((1, 2, 0)).node(h), Transpose((2, 0, 1)).node(h)),
    "beside": lambda h: Mul().node(h, Transpose((2, 0, 1)).node(h)),
    "einsum": lambda h: Einsum("abc,bac->abc").node(h, h),
    "three": lambda h: Einsum("abc,abc,cab->abc").node(h, h, h),
}


@needsNative
@pytest.mark.parametrize("views", VIEWS.values(), ids=VIEWS)
def test_a_result_is_not_written_over_a_view_of_what_another_view_still_reads(views):
    x = Input(name="x").node()
    graph, data = Graph(x, views(Tanh().node(x))), normal(5, 5, 5)
    program = Program(graph, [data.shape], [data.dtype])
    assert np.allclose(program.run(data), graph(data), atol=1e-6)
    assert program.executable is not None, program.why


@needsNative
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_a_sum_over_rows_of_what_is_the_same_in_all_of_them_goes_with_a_sum_over_columns(size):
    x = Input(name="x").node()
    y = Einsum("ab,ac->cba").node(x, x)
    net = Graph(x, Pointwise(formula="sin(tanh(ceil(x)))").node(y))  # whose gradient is 0
    data, seed = [np.full((1, size), 0.3, np.float32)], [np.ones((size, size, 1), np.float32)]
    wanted = eagerly(net, data, seed)
    program, got = compiled(net, data, seed)
    assert not leftToNumpy(program)
    assert all(np.array_equal(got[name], wanted[name]) for name in wanted)


@needsNative
@pytest.mark.parametrize("shape", [(2, 2), (7, 16), (16, 7), (64, 33)])
def test_indices_of_extremes_along_rows_and_along_columns_follow_one_another(shape):
    x = Input(name="x").node()
    along, across = ArgMax(axis=-1, keepdims=True).node(x), ArgMax(axis=-2).node(x)
    net = Graph(x, Greater().node(across, along))
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    program = Program(net, [shape], ["f4"])
    assert not leftToNumpy(program)
    assert np.array_equal(program.run(data), net(data))
