"""Compare a model of others with onnxruntime, with itself in float64, and its gradient with differences."""

from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from puregraph import BatchNorm, Dropout
from puregraph.onnx import fromOnnx

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
CLOSE = 2e-5  # of the largest element


class Comparison(NamedTuple):
    """Differences from onnxruntime, relative to the largest element; those of the gradient from differences."""

    nodes: int
    eager: float
    compiled: float
    gradient: float
    faults: list[str]

    def row(self, name: str) -> str:
        """A row of a table."""
        return f"{name:62} {self.nodes:5} {self.eager:9.1e} {self.compiled:9.1e} {self.gradient:9.1e}"


def listed(values):
    """The outputs of a network as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def compare(model, data, values=None):
    """Run a model eagerly, compiled and in onnxruntime on the data by the names of its inputs."""
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fed = {name: data[name] for name in [info.name for info in session.get_inputs()] if name in data}
    given = {name: np.asarray(x) for name, x in (values or {}).items()}
    wanted = session.run(None, fed | given)
    net = fromOnnx(proto, shapes={name: x.shape for name, x in fed.items()}, values=values)
    inputs = [fed[name] for name in net.arguments]
    eager = listed(net(inputs))
    program = net.compile([x.shape for x in inputs], dtypes=[x.dtype for x in inputs], train=False)
    compiled = listed(program.run(*inputs))
    exact = fromOnnx(widened(proto), shapes={name: x.shape for name, x in fed.items()}, values=values)
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]
    gradient, reference = gradientError(exact, wide)
    faults = []
    for kind, results in (("eager", eager), ("compiled", compiled)):
        for i, (y, theirs, right) in enumerate(zip(results, wanted, reference, strict=True)):
            if y.dtype != theirs.dtype or y.shape != theirs.shape:
                faults.append(f"{kind} output {i}: {y.dtype}{y.shape}, onnxruntime has {theirs.dtype}{theirs.shape}")
            elif distance(y, theirs) > CLOSE and distance(y, right) > distance(theirs, right):
                faults.append(
                    f"{kind} output {i}: {distance(y, theirs):.1e} from onnxruntime, {distance(y, right):.1e} from float64, "
                    f"of which onnxruntime is {distance(theirs, right):.1e}"
                )
    if not gradient < 1e-4:
        faults.append(f"gradient: {gradient:.1e} from differences")
    worst = [
        max((distance(y, t) for y, t in zip(results, wanted) if y.shape == t.shape), default=np.inf)
        for results in (eager, compiled)
    ]
    return Comparison(len(proto.graph.node), *worst, gradient, faults)


def widened(proto):
    """The model in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    widenGraph(wide.graph)
    return wide


def widenGraph(graph):
    """Have a graph, and those in its attributes, compute in float64."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == FLOAT:
            info.type.tensor_type.elem_type = DOUBLE
    for tensor in graph.initializer:
        widenTensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE
            elif attribute.HasField("t"):
                widenTensor(attribute.t)
            elif attribute.HasField("g"):
                widenGraph(attribute.g)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.array(numbers, np.float64))
                attribute.CopyFrom(helper.make_attribute("value", tensor))


def widenTensor(tensor):
    """Have floats of a tensor be of float64."""
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def distance(y, reference):
    """The largest difference, relative to the largest element."""
    y, reference = np.asarray(y, np.float64), np.asarray(reference, np.float64)
    if y.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.where(y == reference, 0, np.abs(y - reference))
    return float(np.nan_to_num(difference, nan=np.inf).max() / max(1e-6, np.abs(reference).max()))


def gradientError(net, inputs):
    """(the gradient against differences, the outputs), along a random direction of inputs and parameters.

    Norms of batches use their running statistics, so their own parameters stay; whole numbers in floats are ids.
    """
    rng = np.random.default_rng(1)
    net.trainMode()
    fixed = [node.module for node in net.nodes if isinstance(node.module, (BatchNorm, Dropout))]
    for module in fixed:
        module.evalMode()
    still = {id(p) for module in fixed for p in module.params.values()}
    params = [p for p in net.params.values() if p.trainable and id(p) not in still]
    starts = [p.data.copy() for p in params]
    isMoved = [x.dtype == np.float64 and not (x == np.rint(x)).all() for x in inputs]
    steps = [rng.standard_normal(x.shape) * (np.abs(x).mean() + 1e-3) if m else None for x, m in zip(inputs, isMoved)]
    scales = [np.abs(start).mean() if start.size else 0.0 for start in starts]
    moves = [rng.standard_normal(p.shape) * (scale if np.isfinite(scale) else 0) for p, scale in zip(params, scales)]

    def outputs(length):
        for p, start, move in zip(params, starts, moves):
            p.data = start + length * move
        return listed(net([x if s is None else x + length * s for x, s in zip(inputs, steps)]))

    reference = outputs(0.0)
    ways = [rng.standard_normal(y.shape) if y.dtype.kind == "f" else None for y in reference]
    net.backward(ways if len(ways) > 1 else ways[0])
    grads = listed(net.grad)
    found = sum((g * s).sum() for g, s in zip(grads, steps) if g is not None and s is not None)
    found += sum((p.grad * m).sum() for p, m in zip(params, moves) if p.grad is not None)

    def total(length):
        return sum((y * w).sum() for y, w in zip(outputs(length), ways) if w is not None)

    error = np.inf
    for length in (1e-6, 1e-8, 1e-10):  # the smaller, the fewer kinks on the way
        slope = (total(length) - total(-length)) / (2 * length)
        error = min(error, abs(found - slope) / max(abs(found), abs(slope), 1e-12))
        if error < 1e-5:
            break
    for p, start in zip(params, starts):
        p.data = start
    return float(error), reference
