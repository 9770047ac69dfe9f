"""Hidden outputs, such as a mask or the indices of a pool, are read by other nodes like any output, without a gradient."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    MSE,
    SGD,
    BatchNorm,
    Cast,
    Dropout,
    Graph,
    GraphError,
    Input,
    LayerNorm,
    Linear,
    MaxPool2D,
    Mul,
    Sequential,
    autodiff,
)
from puregraph.graph.module import Module

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 3, 6, 6)).astype(np.float32)
ROWS = RNG.standard_normal((4, 5)).astype(np.float32)


def pooled():
    x = Input(name="x").node()
    pool = MaxPool2D(2, name="pool")(x)
    return Graph(x, [pool, (pool, "indices"), Cast("float32", name="where")((pool, "indices"))])


def centred():
    x = Input(name="x").node()
    norm = LayerNorm(5, name="norm")(Linear(5, 5, name="fc")(x))
    return Graph(x, Mul(name="out")(norm, (norm, "center")))


def dropped():
    x = Input(name="x").node()
    drop = Dropout(0.5, name="drop")(x)
    return Graph(x, [drop, (drop, "mask")])


def test_the_indices_of_a_pool_are_an_output_with_shape_and_dtype_ahead_of_data():
    net = pooled()
    assert net.dataShapeFrom(("N", 3, 6, 6)) == [("N", 3, 3, 3)] * 3
    y, indices, floats = net(IMAGE)
    assert net.infer(IMAGE.shape).dtypes[1:] == [indices.dtype, np.float32] and indices.dtype.kind == "i"
    assert np.array_equal(IMAGE.reshape(2, 3, -1)[0, 0][indices[0, 0]], y[0, 0])
    assert np.array_equal(floats, indices.astype(np.float32))


def test_dtypes_of_hidden_outputs_are_known_without_shapes():
    assert pooled().dataTypeFrom("float64") == [np.float64, np.int32, np.float32]
    assert dropped().dataTypeFrom("float32") == [np.float32, np.bool_]
    assert centred().calcMode(np.float16).dataTypeFrom("float16") == np.float32  # a center is kept in float32
    net = centred()
    assert net.dataTypeFrom("float32") == net(ROWS).dtype


def test_what_reads_a_hidden_output_changes_no_gradient():
    net, plain = pooled(), Sequential(MaxPool2D(2))
    y = plain(IMAGE)
    plain.backward(np.ones_like(y))
    net(IMAGE)
    net.backward([np.ones_like(y), None, np.ones_like(y)])
    assert np.array_equal(net.grad, plain.grad)


@pytest.mark.parametrize("make", [pooled, centred, dropped])
def test_a_compiled_graph_gives_hidden_outputs_as_eagerly(make):
    net = make().evalMode()
    x = ROWS if make is centred else IMAGE
    wanted, found = net(x), net.compile(x.shape).run(x)
    for a, b in zip(*([y] if not isinstance(y, list) else y for y in (wanted, found)), strict=True):
        assert a.dtype == b.dtype and np.allclose(a, b, atol=1e-6)


def test_training_through_a_hidden_output_is_the_same_compiled_as_eagerly():
    eager, compiled = centred(), centred()
    compiled["fc"].W.data, compiled["fc"].b.data = eager["fc"].W.data, eager["fc"].b.data
    program = compiled.compile([ROWS.shape, ROWS.shape], cost=MSE(), optimizer=SGD(0.1))
    optimizer, cost = SGD(0.1).setupOn(eager), MSE()
    for _ in range(3):
        y = eager(ROWS)
        cost(y, ROWS)
        cost.backward()
        eager.backward(cost.grad[0])
        optimizer.update()
        program.run(ROWS, ROWS)
    assert np.allclose(eager["fc"].W.data, compiled["fc"].W.data, atol=1e-5)


def test_a_mask_that_is_read_is_the_one_that_dropped():
    net = dropped()
    y, mask = net(IMAGE)
    assert np.array_equal(y != 0, mask.astype(bool)) and 0.3 < mask.astype(bool).mean() < 0.7


def test_hidden_outputs_survive_nesting_and_files(tmp_path):
    x = Input(name="x").node()
    outer = Graph(x, centred().node(x)).evalMode()
    outer.save(tmp_path / "net.h5")
    assert np.array_equal(puregraph.load(tmp_path / "net.h5")(ROWS), outer(ROWS))
    x = Input(name="x").node()
    nested = Graph(x, pooled().node(x))
    assert np.array_equal(nested(IMAGE)[1], pooled()(IMAGE)[1])


def test_nodes_walked_one_by_one_read_hidden_outputs():
    x = Input(name="x").node()
    pool = MaxPool2D(2, name="pool")(x)
    cast = Cast("float32")((pool, "indices"))
    x.forward(IMAGE)
    assert np.array_equal(cast.data, pooled()(IMAGE)[2])
    shapes = {}
    for node in (x, pool, cast):
        node.dataShapeFrom({x: IMAGE.shape}, shapes)
    assert shapes[cast] == (2, 3, 3, 3)


def test_a_backward_pass_made_ahead_of_time_reads_hidden_outputs():
    net = centred()
    back = autodiff.add_backward_pass(net, [net.outputNames[0]], ["x"])
    net(ROWS)
    net.backward(np.ones_like(net.data))
    found = back(ROWS, np.ones_like(net.data)) if len(back.inputs) > 1 else back(ROWS)
    assert np.allclose(found[-1], net.grad, atol=1e-6)


def test_a_name_that_is_no_output_is_refused_with_those_that_are():
    x = Input(name="x").node()
    norm = BatchNorm(3, name="norm")(x)
    with pytest.raises(GraphError, match="has no output 'mean'; it has 3: 0 'y', 1 'center', 2 'factor'"):
        Cast("float32")((norm, "mean"))


class Halved(Module):
    """Its hidden rule gives pairs, as rules did before there was one for dtypes."""

    hidden = ("sign",)

    def dataShapeFrom(self, x):
        return x

    def hiddenShapeFrom(self, x):
        return [(x, np.dtype(bool))]

    def updateData(self, x):
        return x / 2, x > 0


def test_pairs_of_shape_and_dtype_are_still_taken_with_a_warning():
    x = Input(name="x").node()
    halved = Halved().node(x, name="h")
    net = Graph(x, [(halved, "y"), (halved, "sign")])
    with pytest.warns(DeprecationWarning, match="hiddenTypeFrom"):
        assert net.dataShapeFrom(("N", 3)) == [("N", 3), ("N", 3)]
