"""A random graph to ONNX, through onnx.checker, into onnxruntime and back."""

import random
import warnings
from itertools import count
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from graphcompare import Comparison
from graphgrammar import RULES, randomSpec
from randomgraphs import randomGraph

from puregraph.core.errors import DataError, PuregraphError
from puregraph.onnx import fromOnnx, toOnnx

CLOSE = 1e-5
ROUGH = (
    1e-4  # for norms of onnxruntime, which subtracts a mean after it has divided, and remainders by what was rounded
)
COARSE = {"InstanceNormalization", "Mod"}
POOLS = ("MaxPool", "AveragePool")
LENGTHS = 4  # which input of a recurrent layer they are
ABOVE = 16  # times what an element is off by in float32, next to float64


class Drawn(NamedTuple):
    """A graph in float32 and in float64, shapes of its inputs with symbols where it takes them, data and gradients."""

    graph: object
    precise: object
    shapes: list
    data: list
    seeds: list


def drawn(number):
    """The graph of a number: of every second one the modules are any, of the others nodes hang together in any way.

    All modules are the library's own: a user's Function has no ONNX equivalent, which is tested beside this.
    """
    numbers = np.random.default_rng(number)
    if number % 2:
        graph, shapes, outshapes = randomGraph(random.Random(number), hasFunctions=False)
        precise = graph.evalMode()
        data = [numbers.standard_normal(s).astype(np.float32) for s in shapes]
        seeds = [numbers.standard_normal(s).astype(np.float32) for s in outshapes]
        graph = randomGraph(random.Random(number), hasFunctions=False)[0].calcMode("float32").evalMode()
        for path, p in graph.params.items():
            p.data = precise.params[path].data.astype(np.float32)
            precise.params[path].data = p.data.astype(np.float64)
    else:
        spec = randomSpec(number, isDiscrete=number % 4 == 0)
        spec = spec._replace(train=False, optimizer="", dtype="float32", given=(True,) * len(spec.outputs))
        compared = Comparison(spec, RULES)
        graph, precise = compared.graph("float32")[0], compared.graph("float64")[0]
        data, seeds = compared.given(0, "float32")
    return Drawn(graph, precise, opened(graph, data), data, seeds)


def opened(graph, data):
    """The shapes of data, with a symbol for the first axis where the graph takes it."""
    shapes = [x.shape for x in data]
    lead = {s[0] for s in shapes if s}
    for size in sorted(lead, reverse=True):
        tried = [("N", *s[1:]) if s and s[0] == size and size > 1 else s for s in shapes]
        try:
            found = graph.dataShapeFrom(tried)
        except PuregraphError:
            continue
        if all(n is not None for s in listed(found) for n in s):
            return tried
    return shapes


COSTS = {"CTC", "Lovasz", "LovaszHinge", "RNNT"}  # that ONNX has no operators for, see test_onnx_costs
UNWRITTEN = COSTS | {"GumbelSoftMax"}  # whose random bits no operator draws


def kindsOf(graph):
    """The names of the classes of a graph's modules."""
    return {type(module).__name__ for module in graph.modules().values()}


def trip(number):
    """What is wrong with the graph of a number once it was in ONNX; None if nothing is."""
    given = drawn(number)
    kinds = kindsOf(given.graph)
    if UNWRITTEN & kinds:
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given.graph(given.data)
        except DataError:  # a region of a sample that is not there
            return None
        model = toOnnx(given.graph, None, given.shapes)
        onnx.checker.check_model(model, full_check=True)
        again = fromOnnx(model)
        if again.dataShapeFrom(given.shapes) != given.graph.dataShapeFrom(given.shapes):
            return f"shapes {again.dataShapeFrom(given.shapes)}, not {given.graph.dataShapeFrom(given.shapes)}"
        second = toOnnx(again, None, given.shapes)
        isSame = second.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)
        if not isSame and kinds == kindsOf(again):  # what ONNX has no operator for is read as the modules of its parts
            return "the second writing is another"
        data = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in given.data]
        exact, single = listed(given.precise(data)), listed(given.graph(given.data))
        wrong = runtimeDifferences(model, given, single, exact)
        twin = fromOnnx(toOnnx(given.precise, None, given.shapes, dtypes=[x.dtype for x in data]))
        wrong += differences("read back: output", listed(twin(data)), exact, exact)
        return "; ".join(wrong or gradientsOf(given, twin, data)) or None


def runtimeDifferences(model, given, single, exact):
    """How onnxruntime differs, where it runs the model.

    It divides no integers by zero, has pools of three axes, and no last state of a sequence of length 0. Linear sizing
    of samples and channels it lacks.
    """
    kinds = {node.op_type for node in model.graph.node}
    pools = [
        a for node in model.graph.node if node.op_type in POOLS for a in node.attribute if a.name == "kernel_shape"
    ]
    if any(len(a.ints) > 3 for a in pools):
        return []
    layers = [node.input for node in model.graph.node if node.op_type in ("RNN", "GRU", "LSTM")]
    hasEmpty = any(x.dtype.kind == "i" and not x.all() for x in given.data)
    if hasEmpty and any(len(read) > LENGTHS and read[LENGTHS] for read in layers):
        return []
    try:
        found = ran(model, given.data)
    except Exception as error:  # its own errors have no common base
        if "modulo by zero" in str(error) or "'Linear' mode only supports" in str(error):
            return []
        raise
    close = CLOSE if COARSE.isdisjoint(kinds) else ROUGH
    return [*differences("onnxruntime: output", found, single, exact, close)]


def ran(model, data):
    """What onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {info.name: x for info, x in zip(session.get_inputs(), data)})


def gradientsOf(given, twin, data):
    """How the gradients of inputs and parameters differ, those by float64."""
    seeds = [y if y is None else y.astype(np.float64) for y in given.seeds]
    found = []
    for graph in (twin, given.precise):
        graph(data)
        graph.backward(seeds if len(seeds) > 1 else seeds[0])
        own = sorted((p.grad for p in graph.params.values() if p.grad is not None and p.grad.any()), key=norm)
        found.append((listed(graph.grad), own))
    wrong = []
    for what, (mine, wanted) in zip(("an input", "a parameter"), zip(*found)):
        if len(mine) != len(wanted):
            wrong.append(f"gradients of {len(mine)} of {len(wanted)} parameters")
        for x, y in zip(mine, wanted):
            if x is None or y is None:
                if (x is None) != (y is None) and np.any(x if y is None else y):
                    wrong.append(f"no gradient of {what}")
            else:
                wrong += differences(f"gradient of {what}", [x.ravel()], [y.ravel()], [y.ravel()])
    return wrong


def norm(x):
    """What gradients are sorted by, which keep their elements and may have another shape."""
    return x.size, float(np.abs(x).sum())


def differences(what, found, wanted, exact, close=CLOSE):
    """Sentences on arrays that differ by more than so much of the largest element and than `wanted` from what is exact."""
    for i, x, y, z in zip(count(), found, wanted, exact, strict=False):
        if x.shape != y.shape or x.dtype != y.dtype:
            yield f"{what} {i} is {x.dtype}{x.shape}, not {y.dtype}{y.shape}"
        elif y.dtype.kind != "f":
            if (x != y)[y == z].any():
                yield f"{what} {i} is another"
        else:
            isSure = np.isfinite(y) & np.isfinite(z)
            a, b = x[isSure].astype(float), y[isSure].astype(float)
            scale = max(1.0, np.abs(b).max(initial=0.0))
            off = np.abs(b - z[isSure]).max(initial=0.0)
            far = np.abs(a - b).max(initial=0.0)
            if not far <= max(close * scale, ABOVE * off):
                yield f"{what} {i} is off by {far:.2g} of {scale:.2g}"


def listed(value):
    return value if isinstance(value, list) else [value]
