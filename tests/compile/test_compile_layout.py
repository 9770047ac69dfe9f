"""Layouts that are told ahead of time are those that numpy makes, and so are shapes and dtypes."""

import random

import numpy as np
import pytest

from puregraph.compile.trace.numpyrules import readerOf
from puregraph.compile.trace.recorder import Recorder, UnreadableError
from puregraph.modules.resize import between, spread
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.ir import strides
from puregraph.ops.ir.value import Value, changed, copy, fill
from puregraph.ops.reduction.reference import logSumExp, moments, softmax


def drawn(rng, rank=None, shape=None):
    """An array that lies in some way: axes in any order, repeated, backward, with gaps."""
    rank = rng.randint(0, 4) if rank is None else rank
    shape = tuple(rng.choice((1, 2, 3, 5)) for _ in range(rank)) if shape is None else shape
    order = list(range(len(shape)))
    rng.shuffle(order)
    steps = [rng.choice((1, 1, 2, -1)) for _ in shape]
    whole = np.arange(np.prod([n * 2 for n in shape], dtype=int), dtype=float).reshape([shape[i] * 2 for i in order])
    turned = whole.transpose(np.argsort(order))
    cut = tuple(
        slice(None, n) if s == 1 else slice(None, 2 * n, 2) if s == 2 else slice(n - 1, None, -1)
        for n, s in zip(shape, steps)
    )
    x = turned[cut][tuple(slice(0, n) for n in shape)] if shape else turned
    if rng.random() < 0.3:
        x = x.copy()
    if shape and rng.random() < 0.2:
        axis = rng.randrange(len(shape))
        x = np.broadcast_to(x.take([0], axis=axis), shape)
    return x


def lays(x, strides_):
    return strides.sameStrides(x.shape, x.strides, strides_)


@pytest.mark.parametrize("seed", range(300))
def test_layouts_of_what_numpy_makes(seed):
    rng = random.Random(seed)
    x = drawn(rng)
    y = drawn(rng, shape=x.shape)
    rank, size = x.ndim, x.itemsize
    operands = [strides.aligned(a.shape, a.strides, rank) for a in (x, y)]
    assert lays(x + y, strides.iterated(x.shape, operands, size))
    assert lays(np.where(x > y, x, y), strides.iterated(x.shape, operands, size))
    for made in (np.copy(x), np.zeros_like(x), x.astype(np.float32).astype(float)):
        assert lays(made, strides.like(x.shape, x.strides, size))
    assert lays(x.astype(np.float32), strides.like(x.shape, x.strides, 4))
    assert strides.isContiguous(x.shape, x.strides, size) == x.flags.c_contiguous
    if rank:
        order = strides.joinedAxes([x.shape, y.shape], [x.strides, y.strides])
        joined = np.concatenate([x, y], axis=rng.randrange(rank))
        assert lays(joined, strides.dense(joined.shape, order, size))


@pytest.mark.parametrize("seed", range(300))
def test_a_reshape_is_a_view_where_it_is_one_for_numpy(seed):
    rng = random.Random(seed)
    x = drawn(rng, rank=rng.randint(1, 4))
    sizes = [d for n in x.shape for d in ((n,) if rng.random() < 0.7 else (1, n))]
    for _ in range(rng.randint(0, 2)):
        if len(sizes) > 1:
            i = rng.randrange(len(sizes) - 1)
            sizes[i : i + 2] = [sizes[i] * sizes[i + 1]]
    found = strides.reshaped(x.shape, x.strides, sizes, x.itemsize)
    wanted = x.reshape(sizes)
    isView = np.shares_memory(wanted, x)
    assert (found is not None) == isView
    if isView:
        assert lays(wanted, found)


# Readers --------------------------------------------------------------------------------------------------------------


def recorded(function, arrays):
    """Read a function on handles; the calls, and the handles that it gives."""
    recorder = Recorder(readerOf)
    values = [recorder.value(x.shape, x.dtype, x.strides, "input") for x in arrays]
    found = function(*[recorder.handle(v) for v in values])
    return recorder, values, list(found) if isinstance(found, (tuple, list)) else [found]


def replayed(recorder, values, arrays, results):
    """Make the calls that were read, each checked against what was told of it."""
    known = {v.number: x for v, x in zip(values, arrays, strict=True)}

    def get(v):
        return v.source if v.role == "constant" else known[v.number]

    for call in recorder.calls:
        given = [changed(a, get) for a in call.arguments]
        if call.function in (fill, copy):
            (y,) = call.outs
            made = [np.ndarray(y.shape, y.dtype, np.empty(y.size, y.dtype), 0, y.strides)]
            made[0][...] = given[0]
        else:
            made = call.function(*given, **{k: changed(v, get) for k, v in call.options.items()})
            made = list(made) if call.several else [made]
        for value, y in zip(call.outs, made, strict=True):
            assert (value.shape, value.dtype) == (np.shape(y), y.dtype), call
            if call.kind.name != "put":
                assert strides.sameStrides(value.shape, value.strides, y.strides), call
            known[value.number] = y
    return [get(r.value) for r in results]


X, Y = np.arange(24.0).reshape(2, 3, 4), np.linspace(-1, 1, 24).reshape(4, 3, 2).T
N = np.array([[0, 2], [1, 1]])
F = Formula("where(x > 0, x * y, exp(-y))").numpy(("x", "y"))

CASES = {
    "arithmetic": lambda x, y: (x + y, x - 2, 3 / (x + 1), x @ y.swapaxes(1, 2), -x, abs(y), x**2, x // 2, x % 3),
    "comparisons": lambda x, y: (x > y, x == 1, ~(x < y), (x > 1) & (y > 0), (x > 1) | (y > 0), x != y),
    "views": lambda x, y: (x[0], x[:, 1:, None], x[..., -1], y.T, y.reshape(2, 12), x.reshape(-1), x[1, ::-1], x[0, 0, 0]),
    "more views": lambda x, y: (np.moveaxis(y, 0, 2), np.flip(x, 1), np.expand_dims(x, 1), x[None].squeeze(0), np.ravel(y)),
    "repeated": lambda x, y: (np.broadcast_to(x[0, 0], (3, 4)) + 1, np.broadcast_to(x[0, :1], (3, 4)).copy()),
    "sums": lambda x, y: (x.sum(), y.sum(axis=1), y.mean(axis=(0, 2)), x.max(axis=-1, keepdims=True), y.min(axis=0)),
    "more sums": lambda x, y: (x.var(axis=1), y.std(axis=0, ddof=1), np.prod(x, axis=2), (x > 3).any(axis=0), (y > 0).sum()),
    "reduce": lambda x, y: (np.add.reduce(y, axis=2), np.maximum.reduce(x), np.add.reduce(x, axis=(0, 1), keepdims=True)),
    "joined": lambda x, y: (np.concatenate([x, y], axis=2), np.stack([y, y], axis=1), np.stack([x, y], -1)),
    "copies": lambda x, y: (y.copy() + 1, np.copy(y), y.flatten(), y.astype("f4"), x.astype(x.dtype)),
    "filled": lambda x, y: (np.zeros_like(y) + x, np.ones_like(x, shape=(2, 2)), np.full_like(x, 3), np.ones_like(x, shape=())),
    "choices": lambda x, y: (np.where(y > 0, x, y), np.where(x > 1, 0, y), np.clip(y, -0.5, 0.5), np.maximum(x, y)),
    "places": lambda x, y: (x.argmax(axis=1), y.argsort(axis=2), np.take(x, [0, 1], axis=2), x[:, [0, 2]], y[[1, 0]], y[:, N], x.cumsum(axis=1)),
    "shaped": lambda x, y: (np.repeat(x, 2, axis=1), np.tile(x[0], 2), np.pad(x[0], 1), np.roll(y, 1), np.tril(x)),
    "products": lambda x, y: (np.einsum("abc,dbc->ad", x, y), np.tensordot(x, y, ([1, 2], [1, 2])), x[0] @ y[1].T, np.vdot(x, y)),
    "of vectors": lambda x, y: (x @ x[0, 0], x[0, 0] @ y[0].T, x[0, 0] @ x[1, 1], np.outer(x[0, 0], y[0, 1])),
    "batches": lambda x, y: (x.transpose(1, 0, 2) @ y.transpose(1, 2, 0), y.swapaxes(0, 1) @ x.transpose(1, 2, 0)),
    "formulas": lambda x, y: (F(x, y), F(y, x[0, 0]), *numpyFrom([Formula("x"), Formula("y - x"), Formula("x > y")], ("x", "y"))(x, y)),
    "kernels": lambda x, y: (softmax(y, 1), logSumExp(x, (0, 1)), *moments(y, (0, 2)), *moments(x, 1, keepdims=True)),
    "stretched": lambda x, y: (between(y, 2, 1), spread(x.repeat(3, axis=2), 3, 2)),
    "shape": lambda x, y: (x.reshape(np.shape(y)), x * np.size(y), x / len(y), x + np.ndim(y)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_numpy_makes(name):
    function = CASES[name]
    recorder, values, handles = recorded(function, [X, Y])
    found = replayed(recorder, values, [X, Y], handles)
    for y, wanted in zip(found, function(X, Y), strict=True):
        assert np.array_equal(y, wanted) and y.dtype == np.asarray(wanted).dtype


def test_parts_of_a_row_are_read_one_by_one():
    recorder, values, handles = recorded(lambda x: [row * 2 for row in x], [X])
    assert len(handles) == 2
    assert np.array_equal(replayed(recorder, values, [X], handles)[1], X[1] * 2)


def inPlace(x, y):
    a = x + 1
    a += y
    a *= 2
    np.exp(a, out=a)
    b = np.zeros_like(x)
    b[:, 1:] = y[:, :2]
    a -= b
    c = x.sum(axis=0)
    c /= 3
    return a, b, c, y


def test_writing_in_place_makes_new_values():
    x, y = np.sin(X), np.cos(X)
    recorder, values, handles = recorded(inPlace, [x, y])
    found = replayed(recorder, values, [x, y], handles)
    for made, wanted in zip(found, inPlace(x, y), strict=True):
        assert np.array_equal(made, wanted)
    assert handles[-1].value is values[1]


def test_a_sum_in_place_keeps_its_dtype():
    x, y = X.astype(np.float32), Y
    recorder, values, (handle,) = recorded(lambda x, y: (lambda a: a.__iadd__(y))(x * 1), [x, y])
    assert handle.dtype == np.float32 and handle.value.strides == contiguousStrides(x)


def contiguousStrides(x):
    return strides.contiguous(x.shape, x.itemsize)


REFUSED = {
    "truth": lambda x: x if x.sum() > 0 else -x,
    "number": lambda x: x * float(x[0, 0, 0]),
    "index": lambda x: x[int(x[0, 0, 0])],
    "array": lambda x: np.asarray(x) + 1,
    "list": lambda x: sum(x.tolist()[0][0]) + x,
    "mask": lambda x: x[x > 0],
    "mask written": lambda x: x.__setitem__(x > 0, 1),
    "places": lambda x: np.where(x > 0),
    "unique": lambda x: np.unique(x),
    "stale": lambda x: stale(x),
    "selected": lambda x: np.add(x, 1, where=x > 0),
    "other": lambda x: np.linalg.inv(x),
    "contained": lambda x: 3 in x,
    "at": lambda x: np.add.at(x, 0, 1),
}


def stale(x):
    """A view that is read after its memory was written to."""
    y = x + 1
    row = y[0]
    y += 1
    return row * 2


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_numbers_cannot_be_read(name):
    with pytest.raises((UnreadableError, AttributeError)):
        recorded(REFUSED[name], [X])


def test_a_constant_is_worked_out_once():
    recorder, _, (handle,) = recorded(lambda x: x + np.ones_like(x, shape=()) * 3, [X])
    (call,) = recorder.calls
    constant = call.arguments[1]
    assert type(constant) is Value and constant.role == "constant" and constant.source == 3


def test_views_know_where_they_lie():
    recorder, values, handles = recorded(lambda x: (x[1:, ::-1, 1], x.T[1:].reshape(3, 3, 2)), [X])
    first = handles[0].value
    assert (
        first.base is values[0]
        and first.offset == X[1:, ::-1, 1].__array_interface__["data"][0] - X.__array_interface__["data"][0]
    )
    assert first.strides == X[1:, ::-1, 1].strides
    assert handles[1].value.base is values[0]
