"""Nodes whose attributes contradict their inputs or the standard, and odd settings that it allows."""

import numpy as np
import onnx
from onnx import helper


def model(kind, inputs, outputs=1, opset=17, **attributes):
    """A model of one node: arrays are initializers, tuples the shapes of inputs of floats, None is left out."""
    ends, weights, names, given = [], [], [], {}
    for i, value in enumerate(inputs):
        name = "" if value is None else f"i{i}"
        names.append(name)
        if isinstance(value, np.ndarray):
            weights.append(onnx.numpy_helper.from_array(value, name))
        elif value is not None:
            ends.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value))
            given[name] = np.random.default_rng([i, *value]).standard_normal(value).astype(np.float32)
    found = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, found, name="it", **attributes)
    graph = helper.make_graph([node], "g", ends, [helper.make_empty_tensor_value_info(n) for n in found], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), given


def floats(*shape):
    """Floats that are a little over 0."""
    return np.random.default_rng(shape).random(shape).astype(np.float32) + np.float32(0.1)


def whole(*numbers):
    """Integers along one axis."""
    return np.array(numbers, np.int64)


X, W = (1, 2, 6, 6), floats(4, 2, 3, 3)
SEQUENCE = (5, 2, 3)  # time, samples, features


def recurrent(gates, hidden=4, sides=1, **changes):
    """The inputs of a recurrent layer."""
    shapes = {"W": (sides, gates * hidden, 3), "R": (sides, gates * hidden, hidden), "B": (sides, 2 * gates * hidden)}
    return [SEQUENCE, *(floats(*changes.get(name, shape)) for name, shape in shapes.items())]


LSTM, GRU, RNN = recurrent(4), recurrent(3), recurrent(1)
ODD = {  # onnxruntime refuses them, the standard does not
    "pads that reflect beyond the array": ("Pad", [(2, 3), whole(0, 3, 0, 0)], {"mode": "reflect"}),
    "a size of neighbours that is even": ("LRN", [(3, 3, 2, 2)], {"size": 2}),
}
MISTAKES = {  # each is refused by name, or gives what onnxruntime gives
    "a kernel of other sizes": ("Conv", [X, W], {"kernel_shape": [5, 5]}),
    "a kernel of other axes": ("Conv", [X, W], {"kernel_shape": [3]}),
    "a stride for one axis of two": ("Conv", [X, W], {"strides": [2]}),
    "a dilation for three axes of two": ("Conv", [X, W], {"dilations": [1, 1, 1]}),
    "pads of one side": ("Conv", [X, W], {"pads": [1, 1]}),
    "a stride of 0": ("Conv", [X, W], {"strides": [0, 1]}),
    "a dilation of 0": ("Conv", [X, W], {"dilations": [1, 0]}),
    "a negative stride": ("Conv", [X, W], {"strides": [-1, 1]}),
    "groups that do not divide": ("Conv", [X, W], {"group": 3}),
    "groups of other channels": ("Conv", [X, W], {"group": 2}),
    "no groups": ("Conv", [X, W], {"group": 0}),
    "a padding of a name that is none": ("Conv", [X, W], {"auto_pad": "SAME"}),
    "a bias of other channels": ("Conv", [X, W, floats(3)], {}),
    "a bias of two axes": ("Conv", [X, W, floats(4, 1)], {}),
    "filters of other axes": ("Conv", [X, floats(4, 2, 3)], {}),
    "an attribute that is misspelt": ("Conv", [X, W], {"stride": [2, 2]}),
    "an attribute of a newer opset": ("ReduceMean", [X], {"noop_with_empty_axes": 1}),
    "an attribute of another type": ("Softmax", [X], {"axis": 1.0}),
    "an attribute that is needed": ("Cast", [X], {}),
    "a transposed kernel of other sizes": ("ConvTranspose", [X, floats(2, 3, 3, 3)], {"kernel_shape": [2, 2]}),
    "a transposed stride for one axis": ("ConvTranspose", [X, floats(2, 3, 3, 3)], {"strides": [2]}),
    "an output padding for one axis": ("ConvTranspose", [X, floats(2, 3, 3, 3)], {"output_padding": [1]}),
    "an output shape for one axis": ("ConvTranspose", [X, floats(2, 3, 3, 3)], {"output_shape": [8]}),
    "transposed channels of others": ("ConvTranspose", [X, floats(3, 3, 3, 3)], {}),
    "pads of one side, transposed": ("ConvTranspose", [X, floats(2, 3, 3, 3)], {"pads": [1, 1]}),
    "a pool of other axes": ("MaxPool", [X], {"kernel_shape": [2]}),
    "a pool with a stride for one axis": ("MaxPool", [X], {"kernel_shape": [2, 2], "strides": [2]}),
    "a pool with pads of one side": ("AveragePool", [X], {"kernel_shape": [2, 2], "pads": [1, 1]}),
    "a pool of nothing": ("AveragePool", [X], {"kernel_shape": [0, 2]}),
    "a pool open by 2": ("MaxPool", [X], {"kernel_shape": [2, 2], "ceil_mode": 2}),
    "a pool that counts padding by 2": ("AveragePool", [X], {"kernel_shape": [2, 2], "count_include_pad": 2}),
    "a pool stored in order 2": ("MaxPool", [X], {"kernel_shape": [2, 2], "storage_order": 2}),
    "a norm of power 0": ("LpPool", [X], {"kernel_shape": [2, 2], "p": 0}),
    "a pool padded beyond its window": ("MaxPool", [X], {"kernel_shape": [2, 2], "pads": [3, 3, 3, 3]}),
    "axes kept by 2": ("ReduceSum", [X], {"keepdims": 2}),
    "axes kept by -1": ("ArgMax", [X], {"keepdims": -1}),
    "an axis twice": ("ReduceMean", [X], {"axes": [1, 1]}),
    "an axis twice, once from behind": ("ReduceMax", [X], {"axes": [1, -3]}),
    "an axis that is not there": ("ReduceMean", [X], {"axes": [4]}),
    "an index of the last by 2": ("ArgMin", [X], {"select_last_index": 2}),
    "a hidden size of others": ("LSTM", LSTM, {"hidden_size": 3}),
    "a hidden size of others, of a GRU": ("GRU", GRU, {"hidden_size": 5}),
    "a hidden size of others, of an RNN": ("RNN", RNN, {"hidden_size": 2}),
    "no hidden size": ("RNN", RNN, {}),
    "two directions with the weights of one": ("LSTM", LSTM, {"hidden_size": 4, "direction": "bidirectional"}),
    "one direction with the weights of two": ("GRU", recurrent(3, sides=2), {"hidden_size": 4}),
    "a direction that is none": ("RNN", RNN, {"hidden_size": 4, "direction": "backward"}),
    "recurrent weights of others": ("LSTM", recurrent(4, R=(1, 16, 3)), {"hidden_size": 4}),
    "biases of half": ("LSTM", recurrent(4, B=(1, 16)), {"hidden_size": 4}),
    "weights of other features": ("GRU", recurrent(3, W=(1, 12, 4)), {"hidden_size": 4}),
    "two activations of three": ("LSTM", LSTM, {"hidden_size": 4, "activations": ["Sigmoid", "Tanh"]}),
    "an activation that is none": ("RNN", RNN, {"hidden_size": 4, "activations": ["Cube"]}),
    "a negative clip": ("RNN", RNN, {"hidden_size": 4, "clip": -1.0}),
    "a reset that is linear by 2": ("GRU", GRU, {"hidden_size": 4, "linear_before_reset": 2}),
    "a layout of 2": ("RNN", RNN, {"hidden_size": 4, "layout": 2}),
    "lengths of another batch": ("RNN", [*RNN, np.array([5, 5, 5], np.int32)], {"hidden_size": 4}),
    "a state of another batch": ("RNN", [*RNN, None, floats(1, 3, 4)], {"hidden_size": 4}),
    "peepholes of others": ("LSTM", [*LSTM, None, None, None, floats(1, 8)], {"hidden_size": 4}),
    "statistics of other channels": ("BatchNormalization", [X, *[floats(3)] * 4], {}),
    "a scale of other channels": ("InstanceNormalization", [X, floats(3), floats(2)], {}),
    "a bias of fewer features": ("LayerNormalization", [X, floats(6), floats(5)], {}),
    "a norm from an axis that is not there": ("LayerNormalization", [X, floats(6), floats(6)], {"axis": 5}),
    "a norm of power 3": ("LpNormalization", [X], {"p": 3}),
    "an axis of softmax that is not there": ("Softmax", [X], {"axis": 4}),
    "an axis of joining that is not there": ("Concat", [X, X], {"axis": 4}),
    "joined arrays of other sizes": ("Concat", [X, (1, 2, 5, 6)], {"axis": 1}),
    "an order of fewer axes": ("Transpose", [X], {"perm": [1, 0]}),
    "an order with an axis twice": ("Transpose", [X], {"perm": [0, 1, 1, 2]}),
    "parts that are too few": ("Split", [(6, 2), whole(2, 2)], {}, 2),
    "parts that are too many": ("Split", [(6, 2), whole(2, 2, 4)], {}, 3),
    "parts of which one is negative": ("Split", [(6, 2), whole(8, -2)], {}, 2),
    "more parts than outputs": ("Split", [(6, 2), whole(2, 2, 2)], {}, 2),
    "a depth that blocks do not divide": ("DepthToSpace", [(1, 6, 2, 2)], {"blocksize": 2}),
    "a picture that blocks do not divide": ("SpaceToDepth", [(1, 1, 3, 4)], {"blocksize": 2}),
    "blocks of 0": ("DepthToSpace", [(1, 4, 2, 2)], {"blocksize": 0}),
    "a mode of depth that is none": ("DepthToSpace", [(1, 4, 2, 2)], {"blocksize": 2, "mode": "RCD"}),
    "transposed by 2": ("Gemm", [(2, 3), floats(3, 4)], {"transA": 2}),
    "a product of other sizes": ("Gemm", [(2, 3), floats(4, 3)], {}),
    "a bias that is larger than the product": ("Gemm", [(2, 3), floats(3, 4), floats(3, 4)], {}),
    "matrices of other sizes": ("MatMul", [(2, 3), floats(4, 3)], {}),
    "pads for one axis of two": ("Pad", [(2, 3), whole(1, 1)], {}),
    "a mode of pads that is none": ("Pad", [(2, 3), whole(1, 1, 1, 1)], {"mode": "mirror"}),
    "a size that does not fit": ("Reshape", [(2, 3), whole(4, 2)], {}),
    "two sizes that are left open": ("Reshape", [(2, 3), whole(-1, -1)], {}),
    "a size of an axis that is not there": ("Reshape", [(2, 3), whole(2, 3, 0)], {}),
    "zeros allowed by 2": ("Reshape", [(2, 3), whole(2, 3)], {"allowzero": 2}),
    "an axis of one that is not one": ("Squeeze", [(2, 3), whole(0)], {}),
    "a new axis twice": ("Unsqueeze", [(2, 3), whole(0, 0)], {}),
    "a new axis beyond": ("Unsqueeze", [(2, 3), whole(4)], {}),
    "a step of 0": ("Slice", [(2, 3), whole(0), whole(2), whole(0), whole(0)], {}),
    "starts for more axes than ends": ("Slice", [(2, 3), whole(0, 0), whole(2)], {}),
    "an axis of a slice twice": ("Slice", [(2, 3), whole(0, 0), whole(1, 1), whole(0, 0)], {}),
    "more elements than there are": ("TopK", [(2, 3), whole(4)], {}, 2),
    "largest by 2": ("TopK", [(2, 3), whole(2)], {"largest": 2}, 2),
    "a count of elements below 0": ("TopK", [(2, 3), whole(-1)], {}, 2),
    "an index that is not there": ("Gather", [(2, 3), whole(5)], {}),
    "an axis of indices that is not there": ("Gather", [(2, 3), whole(1)], {"axis": 2}),
    "scales for one axis of four": ("Resize", [X, None, floats(1)], {}),
    "scales and lengths": ("Resize", [X, None, floats(4), whole(1, 2, 3, 3)], {}),
    "neither scales nor lengths": ("Resize", [X], {}),
    "a scale below 0": ("Resize", [X, None, np.array([1, 1, -2, 2], np.float32)], {}),
    "a mode of resizing that is none": ("Resize", [X, None, floats(4)], {"mode": "bicubic"}),
    "a rounding that is none": ("Resize", [X, None, floats(4)], {"nearest_mode": "round"}),
    "repeats of fewer axes": ("Tile", [(2, 3), whole(2)], {}),
    "repeats below 0": ("Tile", [(2, 3), whole(1, -1)], {}),
    "a shape that does not fit": ("Expand", [(2, 3), whole(2, 4)], {}),
    "an equation of other axes": ("Einsum", [(2, 3), floats(3, 4)], {"equation": "ijk,kl->il"}),
    "an equation of other sizes": ("Einsum", [(2, 3), floats(4, 4)], {"equation": "ij,jk->ik"}),
    "an equation of one of two inputs": ("Einsum", [(2, 3), floats(3, 4)], {"equation": "ij->i"}),
    "an accumulation from the other end by 2": ("CumSum", [(2, 3), np.array(1)], {"reverse": 2}),
    "an accumulation along no axis": ("CumSum", [(2, 3), np.array(2)], {}),
    "a triangle that is upper by 2": ("Trilu", [(3, 3)], {"upper": 2}),
    "slopes that do not fit": ("PRelu", [X, floats(3)], {}),
    "a grid of three for two axes": ("GridSample", [X, (1, 3, 3, 3)], {}),
    "a mode of a grid that is none": ("GridSample", [X, (1, 3, 3, 2)], {"mode": "linear"}),
    "an axis of flattening that is not there": ("Flatten", [(2, 3)], {"axis": 3}),
    "a ratio above 1": ("Dropout", [(2, 3), np.array(1.5, np.float32), np.array(True)], {}),
    "a region of three numbers": ("RoiAlign", [X, floats(2, 3), whole(0, 0)], {}),
    "a scale of quantising for other channels": ("QuantizeLinear", [X, floats(3)], {"axis": 1}),
    "a zero point of another shape": ("QuantizeLinear", [X, floats(2), np.zeros(1, np.uint8)], {"axis": 1}),
    "an axis of quantising that is not there": ("QuantizeLinear", [X, floats(2)], {"axis": 4}),
    "a length of a hot axis below 1": ("OneHot", [whole(0, 1), np.array(-1), floats(2)], {}),
    "no values on and off": ("OneHot", [whole(0, 1), np.array(3), floats(1)], {}),
}  # fmt: skip
