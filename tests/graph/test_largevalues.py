"""Values larger than the memory of a machine are refused with node, shape and bytes, however the node is run."""

import numpy as np
import pytest
from natively import needsNative

from puregraph import Graph, Input, Linear, Sequential, ShapeError
from puregraph.autodiff import Variable
from puregraph.modules import Constant, Embedder, OneHot, Pad, Relu, Tile, Upsample2D

BATCH = np.ones((1, 2, 3, 2), np.float32)
LARGE = {
    "Tile": (Tile((1 << 40, 1, 1, 1)), BATCH, r"shape \(1099511627776, 2, 3, 2\) of float32, 52,776,558,133,248 bytes"),
    "Tile beyond 64 bits": (Tile((1 << 62, 1, 1, 1)), BATCH, r"shape \(4611686018427387904, 2, 3, 2\) of float32"),
    "Pad": (Pad((1 << 30, 1 << 30)), BATCH, r"shape \(1, 2, 3, 2147483650\) of float32"),
    "Upsample2D": (Upsample2D(1 << 30), BATCH, r"shape \(1, 2, 3221225472, 2147483648\) of float32"),
    "OneHot": (OneHot(1 << 40), np.array([1, 2]), r"shape \(2, 1099511627776\) of float32"),
}


@pytest.mark.parametrize("name", LARGE)
def test_an_output_that_no_memory_holds_is_refused_by_its_node_with_shape_and_bytes(name):
    module, x, words = LARGE[name]
    wanted = (
        rf"at 'it' \({type(module).__name__}\): wanted an output that fits into [\d,]+ bytes of memory, got {words}"
    )
    node = Input().node()
    net = Graph(node, module.node(node, name="it"))
    with pytest.raises(ShapeError, match=wanted):
        net(x)
    with pytest.raises(ShapeError, match=wanted.replace("'it'", r"'\w+'")):
        module(x)
    if x.dtype.kind == "f":
        with pytest.raises(ShapeError, match=wanted.replace("'it'", r"'\w+'")):
            module(Variable(x, requires_grad=True))


@needsNative
def test_a_program_that_no_memory_holds_names_the_node():
    net = Sequential(Tile((1 << 40, 1, 1, 1), name="it"), Relu())
    with pytest.raises(ShapeError, match=r"at 'it' \(Tile\): wanted an output that fits into .* bytes of memory"):
        net.compile(BATCH.shape)


@pytest.mark.parametrize("module", [Linear(1 << 40, 1 << 40), Embedder(1 << 62, 4)])
def test_a_parameter_that_no_memory_holds_is_refused_with_shape_and_bytes(module):
    with pytest.raises(ShapeError, match=r"wanted a parameter that fits into .* bytes of memory, got shape .* bytes$"):
        _ = module.W.data


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 62,)])
def test_a_constant_that_no_memory_holds_is_refused_with_shape_and_bytes(shape):
    with pytest.raises(ShapeError, match=r"wanted a constant that fits into .* bytes of memory, got shape .* bytes$"):
        Constant(shape=shape)


def test_a_constant_of_an_open_shape_is_refused():
    with pytest.raises(ShapeError, match=r"wanted a shape of known sizes, got \(N, 4\)"):
        Constant(shape=("N", 4))
