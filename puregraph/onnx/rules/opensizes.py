"""OpenSizes: write a rule for any size, by writing it for several trial sizes of each symbol.

The nodes must be the same for all trial sizes. A constant that changes is expressed as a sum of products of lengths
that the model can read, such as 2 N T - 1, and must be exact in every try. If a rule writes different nodes for a small
or large size, the written nodes must give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import combinations_with_replacement
from math import prod
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.errors import GraphError, PuregraphError
from puregraph.core.shape import bind, symbols
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, kindOf
from puregraph.onnx.rules.opentrial import OpenTrial

NUMBERS = (11, 13, 17, 19, 21, 22, 23, 26, 27, 29, 31)  # trial sizes of symbols, different in each try
EXTRA_TRIES = 2  # tries in addition to one for each length
TRIAL_SIZES = (1, 2, 3, 257)  # sizes at which a rule may behave differently, each tried for one symbol at a time
MAX_DEGREE = 4  # maximum number of lengths in a product
Terms = dict[tuple[int, ...], int]  # {lengths: coefficient}
FIXED = "give shapes= without symbols"
OFDATA = f"a size is known only with the data, so its rule cannot be written: {FIXED}"


class OpenLength(NamedTuple):
    """A length with symbols, and its value in each try."""

    dim: Dim
    tried: tuple[int, ...]


def forAnySize(step: OnnxStep, write: Callable[[OnnxStep], None]) -> None:
    """Write a step whose inputs have symbolic lengths.

    Raises    GraphError if a length is unknown, or a constant is not a sum of products of lengths
    """
    shapes = [shape for shape in [*step.shapes, *step.outshapes] if shape is not None]
    if all(isWhole(n) for shape in shapes for n in shape):
        write(step)
        return
    if any(n is None for shape in shapes for n in shape):
        raise GraphError(OFDATA)
    names = dict.fromkeys(name for shape in shapes for name in symbols(shape))
    dims = dict.fromkeys(n for shape in step.shapes if shape is not None for n in shape if isinstance(n, Dim))
    tries = [
        {name: NUMBERS[(3 * i + (i % 10 + 1) * k) % len(NUMBERS)] for i, name in enumerate(names)}
        for k in range(len(dims) + EXTRA_TRIES)
    ]
    usual = [(sizes, sketch(step, write, sizes)) for sizes in tries]
    needSame([tried.writer.nodes for _, tried in usual])
    limits = list(atLimits(step, write, names, tries[0]))
    _, first = usual[0]
    step.writer.taken |= first.writer.taken
    step.writer.weights.update(first.writer.weights)
    step.kinds.update(first.kinds)
    mark = len(step.writer.nodes)
    alike = [(sizes, tried) for sizes, tried in limits if skeleton(tried) == skeleton(first)]
    try:
        adopt(step, [*usual, *alike], dims)
    except GraphError:  # a small array may not look like a progression
        alike = []
        again(step, mark, usual, dims)
    for sizes, tried in limits:
        if (sizes, tried) not in alike and not OpenTrial(step, step.writer.nodes[mark:], sizes).isLike(tried):
            raise GraphError(f"its rule behaves differently where {shown(sizes)}: {FIXED}")


def again(step: OnnxStep, mark: int, sketches: list[tuple[dict[str, int], OnnxStep]], dims: Iterable[Dim]) -> None:
    """Write the nodes from `mark` on again, including the lengths that they read."""
    gone = {name for node in step.writer.nodes[mark:] for name in node.output}
    del step.writer.nodes[mark:]
    known = step.writer.lengths
    for dim in [dim for dim, name in known.items() if name in gone]:
        del known[dim]
    adopt(step, sketches, dims)


def atLimits(
    step: OnnxStep, write: Callable[[OnnxStep], None], names: Any, usual: dict[str, int]
) -> Iterator[tuple[dict[str, int], OnnxStep]]:
    """The step as written for small or large numbers of one symbol, if such sizes are possible."""
    for sizes in [usual | {name: limit} for name in names for limit in TRIAL_SIZES]:
        try:
            yield sizes, sketch(step, write, sizes)
        except PuregraphError:
            continue


def skeleton(step: OnnxStep) -> list[Any]:
    """The nodes of a step in comparable form: constants are only names."""
    return [
        node.output[0] if node.op_type == "Constant" else node.SerializeToString(deterministic=True)
        for node in step.writer.nodes
    ]


def shown(sizes: dict[str, int]) -> str:
    """The sizes of symbols in words, as `N is 3`."""
    return ", ".join(f"{name} is {size}" for name, size in sizes.items())


def sketch(step: OnnxStep, write: Callable[[OnnxStep], None], sizes: dict[str, int]) -> OnnxStep:
    """The step, written for these sizes by a copy of its writer."""
    tried = copy(step)
    tried.writer = copy(step.writer)
    tried.writer.nodes, tried.writer.taken = [], set(step.writer.taken)
    tried.writer.weights = dict(step.writer.weights)
    tried.kinds = {}
    tried.shapes, tried.outshapes = (
        [None if shape is None else bind(shape, sizes, complete=True) for shape in shapes]
        for shapes in (step.shapes, step.outshapes)
    )
    try:
        write(tried)
    except ValueError:  # from numpy: a size depends on the data
        raise GraphError(OFDATA) from None
    return tried


def adopt(step: OnnxStep, sketches: list[tuple[dict[str, int], OnnxStep]], dims: Iterable[Dim]) -> None:
    """Add the nodes of the first try; constants that differ between tries are computed from lengths.

    Raises    GraphError for constants that cannot be fitted
    """
    lengths = [OpenLength(dim, tuple(bind((dim,), sizes)[0] for sizes, _ in sketches)) for dim in dims]
    tries = [tried.writer.nodes for _, tried in sketches]
    for nodes in zip(*tries):
        if len({node.SerializeToString(deterministic=True) for node in nodes}) == 1:
            step.writer.nodes.append(nodes[0])
        else:
            OpenConstant(step, lengths, nodes[0].output[0]).write([arrayOf(node) for node in nodes])


def needSame(tries: list[list[Any]]) -> None:
    """Check that nodes are the same in every try, except for the elements of constants.

    Raises    GraphError if they are not
    """
    if len({len(nodes) for nodes in tries}) > 1:
        raise GraphError(f"its rule behaves differently for other sizes: {FIXED}")
    for nodes in zip(*tries):
        isSame = len({node.SerializeToString(deterministic=True) for node in nodes}) == 1
        if not isSame and any(node.op_type != "Constant" or node.output != nodes[0].output for node in nodes):
            raise GraphError(f"an option of {nodes[0].op_type} in its rule depends on open sizes: {FIXED}")


def arrayOf(node: Any) -> np.ndarray:
    """The elements of a Constant."""
    from onnx import numpy_helper

    return numpy_helper.to_array(node.attribute[0].t)


class OpenConstant:
    """Writes a constant that differs between the tries, under its `name`."""

    def __init__(self, step: OnnxStep, lengths: list[OpenLength], name: str):
        self.step, self.op, self.lengths, self.name = step, step.op, lengths, name

    def write(self, arrays: list[np.ndarray]) -> None:
        """Write the nodes that compute the constant.

        Raises    GraphError for arrays that cannot be fitted
        """
        if len({array.shape for array in arrays}) > 1:
            self.filled(arrays)
        elif arrays[0].ndim == 1 and arrays[0].dtype == np.int64:
            self.sizes(np.array(arrays), self.name)
        elif arrays[0].size == 1:
            self.number(np.array([array.reshape(()) for array in arrays]), arrays[0].shape, self.name)
        else:
            raise self.unknown()

    def unknown(self) -> GraphError:
        """The error for a constant that cannot be fitted."""
        return GraphError(f"a constant in its rule depends on open sizes in a way that has no ONNX equivalent: {FIXED}")

    def sizes(self, rows: np.ndarray, out: str | None = None) -> str:
        """Write a vector of integers, given as one row for each try; returns its name."""
        parts: list[str] = []
        known: list[int] = []
        for column in rows.T:
            if (column == column[0]).all():
                known.append(int(column[0]))
                continue
            parts += [self.step.whole(*known)] if known else []
            known = []
            parts.append(self.length(column))
        parts += [self.step.whole(*known)] if known else []
        return self.op("Concat", *parts, out=out, axis=0)

    def length(self, tried: np.ndarray) -> str:
        """Write an integer, given for each try, as an array of one element; returns its name."""
        terms = fitted(tried, [length.tried for length in self.lengths])
        if terms is None:
            raise self.unknown()
        total = None
        for factors, count in terms.items():
            names = [self.read(self.lengths[i].dim) for i in factors]
            names += [self.step.whole(count)] if count != 1 or not names else []
            product = names[0]
            for name in names[1:]:
                product = self.op("Mul", product, name)
            total = product if total is None else self.op("Add", total, product)
        return str(total)

    def read(self, dim: Dim) -> str:
        """Read a length from the shape of an input of the model, or else of the step; returns its name."""
        step, known = self.step, self.step.writer.lengths
        if dim not in known:
            writer = step.writer
            ends = [
                *zip((writer.values[n] for n in writer.steps.inputs), writer.shapes),
                *zip(step.inputs, step.shapes),
            ]
            x, shape = next((x, shape) for x, shape in ends if x and shape is not None and dim in shape)
            known[dim] = self.op("Gather", self.op("Shape", x), step.whole(list(shape).index(dim)))
        return str(known[dim])

    def number(self, tried: np.ndarray, shape: tuple[int, ...], out: str | None = None) -> str:
        """Write one element of any dtype, an integer or the reciprocal of one; returns its name."""
        dtype, isOne = tried.dtype, (tried == np.rint(tried)).all()
        integers = np.rint(tried if isOne else 1 / tried).astype(np.int64)
        if not isOne and not np.allclose(integers * tried.astype(np.float64), 1, 8 * np.finfo(dtype).eps):
            raise self.unknown()
        value = self.op("Reshape", self.length(integers), self.step.constant(shape, np.int64))
        if isOne and dtype == np.int64:
            return self.op("Identity", value, out=out)
        value = self.op("Cast", value, to=kindOf(dtype), out=out if isOne else None)
        return value if isOne else self.op("Reciprocal", value, out=out)

    def filled(self, arrays: list[np.ndarray]) -> None:
        """Write an array whose shape differs between tries: constant, an arithmetic progression, or a triangle."""
        if len({array.ndim for array in arrays}) > 1:
            raise self.unknown()
        shape = self.sizes(np.array([array.shape for array in arrays], np.int64))
        if all(array.size and (array == array.flat[0]).all() for array in arrays):
            firsts = np.array([array.flat[0] for array in arrays])
            isSame = (firsts == firsts[0]).all()
            value = self.step.constant(firsts[0], firsts.dtype) if isSame else self.number(firsts, ())
            self.op("Expand", value, shape, out=self.name)
        elif all(array.dtype == np.int64 and isCount(array) for array in arrays):
            elements = self.count(np.array([array.size for array in arrays]))
            steps, starts = (np.array([progression(array)[i] for array in arrays]) for i in (0, 1))
            elements = elements if (steps == 1).all() else self.op("Mul", elements, self.length(steps))
            elements = elements if not starts.any() else self.op("Add", elements, self.length(starts))
            self.op("Reshape", elements, shape, out=self.name)
        elif all(array.dtype == bool and array.ndim == 2 and isTriangle(array) for array in arrays):
            rows, columns = (self.count(np.array([array.shape[i] for array in arrays])) for i in (0, 1))
            self.op("LessOrEqual", columns, self.op("Unsqueeze", rows, self.step.whole(1)), out=self.name)
        else:
            raise self.unknown()

    def count(self, sizes: np.ndarray) -> str:
        """Write the integers from 0 to below a size, given for each try; returns their name."""
        if (sizes == sizes[0]).all():
            return self.step.constant(np.arange(sizes[0]))
        zero, one = (self.step.constant(n, np.int64) for n in (0, 1))
        return self.op("Range", zero, self.op("Squeeze", self.length(sizes), self.step.whole(0)), one)


def progression(array: np.ndarray) -> tuple[int, int]:
    """The step of an arithmetic progression, and its first element."""
    flat = array.ravel()
    return int(flat[1] - flat[0]), int(flat[0])


def isCount(array: np.ndarray) -> bool:
    """True for an arithmetic progression."""
    return array.size > 1 and bool((np.diff(array.ravel()) == progression(array)[0]).all())


def isTriangle(array: np.ndarray) -> bool:
    """True if a matrix is True exactly on and below its diagonal."""
    return bool((array == (np.tri(*array.shape) > 0)).all())


def fitted(tried: np.ndarray, lengths: list[tuple[int, ...]]) -> Terms | None:
    """Fit an integer, known for each try, by a product of lengths, a sum of lengths, or a product plus a number.

    None if none of these holds in every try.
    """
    if (tried == tried[0]).all():
        return {(): int(tried[0])}
    count = range(len(lengths))
    products = {
        factors: np.array([prod(sizes) for sizes in zip(*(lengths[i] for i in factors))], np.int64)
        for degree in range(1, MAX_DEGREE + 1)
        for factors in combinations_with_replacement(count, degree)
    }
    for factors, value in products.items():
        if (tried == (times := tried[0] // value[0]) * value).all():
            return {factors: int(times)}
    rows = np.array([np.ones(len(tried)), *lengths]).T
    coefficients = np.rint(np.linalg.lstsq(rows, tried, None)[0]).astype(np.int64)
    if (rows.astype(np.int64) @ coefficients == tried).all():
        terms = zip([(), *((i,) for i in count)], map(int, coefficients))
        return {factors: times for factors, times in terms if times}
    for factors, value in products.items():
        step = value[1] - value[0]
        times = (tried[1] - tried[0]) // step if step else 0
        if (tried - times * value == (offset := tried[0] - times * value[0])).all():
            return {factors: int(times), (): int(offset)}
    return None
