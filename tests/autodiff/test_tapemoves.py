"""The gradients of what moves elements on the tape, by shape, axis or index: against central differences."""

import numpy as np
import pytest
from tapechecks import check, some
from tapechecks import recording as recording

from puregraph.autodiff import Variable
from puregraph.core.tracer import astype

MOVES = {
    "reshape": lambda x: np.reshape(x, (3, 4)),
    "reshape to a number of axes": lambda x: x.reshape(1, -1),
    "ravel": np.ravel,
    "squeeze": lambda x: np.squeeze(x.reshape(1, 2, 1, 6), axis=0),
    "expand": lambda x: np.expand_dims(x, (0, -1)),
    "transpose": np.transpose,
    "transpose axes": lambda x: np.transpose(x, (2, 0, 1)),
    "transpose negative axes": lambda x: np.transpose(x, [-1, 0, 1]),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, (0, 1), (-1, 0)),
    "flip": np.flip,
    "flip axes": lambda x: np.flip(x, (0, -1)),
    "roll": lambda x: np.roll(x, 4),
    "roll axis": lambda x: np.roll(x, -1, 1),
    "roll axes": lambda x: np.roll(x, (1, 2), (0, 1)),
    "roll list": lambda x: np.roll(x, [1, 2], axis=[0, 1]),
    "broadcast": lambda x: np.broadcast_to(x, (4, 2, 3, 2)),
    "broadcast ones": lambda x: np.broadcast_to(x[:, :1], (2, 3, 2)),
    "tril": lambda x: np.tril(x, -1),
    "triu": lambda x: np.triu(x, 1),
    "pad": lambda x: np.pad(x, 1),
    "pad sides": lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3),
    "pad pair": lambda x: np.pad(x, (1, 2)),
    "pad mode": lambda x: np.pad(x, 1, "constant"),
    "diagonal": lambda x: np.diagonal(x),
    "diagonal of others": lambda x: np.diagonal(x, 1, 2, 1),
    "diagonal below": lambda x: np.diagonal(x, -1, axis1=1, axis2=2),
    "trace": np.trace,
    "trace below": lambda x: np.trace(x, -1, 1, 2),
    "trace of nothing": lambda x: np.trace(x, 5),
    "diag of a vector": lambda x: np.diag(x[0, 0], 1),
    "diag of a matrix": lambda x: np.diag(x[0], -1),
    "concatenate": lambda x: np.concatenate([x, x[:1], 2 * x]),
    "concatenate axis": lambda x: np.concatenate((x, x), axis=-1),
    "concatenate flat": lambda x: np.concatenate([x, x[0]], axis=None),
    "concatenate rows": lambda x: np.concatenate(x),
    "concatenate constants": lambda x: np.concatenate([x[0, 0], [1.0, 2.0], np.ones(2)]),
    "stack": lambda x: np.stack([x, x * x]),
    "stack axis": lambda x: np.stack([x, x * x], -1),
    "stack rows": lambda x: np.stack(x, 1),
    "vstack": lambda x: np.vstack([x[0], x[0, 0], x[1]]),
    "hstack": lambda x: np.hstack([x[0], x[1, :, :1]]),
    "hstack flat": lambda x: np.hstack([x[0, 0], x[0, 0, 1], x[0, 1]]),
    "split": lambda x: np.split(x, 3, 1),
    "split at": lambda x: np.split(x, [1, 2], axis=1),
    "split unread": lambda x: np.split(x, [1, 2], axis=-2)[1],
    "array_split": lambda x: np.array_split(x, 2, 1),
    "split empty": lambda x: np.split(x, [0, 1], 0),
    "repeat": lambda x: np.repeat(x, 2),
    "repeat axis": lambda x: np.repeat(x, 2, -1),
    "repeat each": lambda x: np.repeat(x, [1, 0, 2], axis=1),
    "tile": lambda x: np.tile(x, 2),
    "tile more": lambda x: np.tile(x, (2, 1, 2, 3)),
    "tile less": lambda x: np.tile(x, (3, 2)),
    "take": lambda x: np.take(x, [0, 5, 5]),
    "take axis": lambda x: np.take(x, [[0, 1], [1, 1]], axis=-1),
    "take one": lambda x: np.take(x, 1, 1),
    "take negative": lambda x: np.take(x, [-1, -1, 0], 1),
    "along": lambda x: np.take_along_axis(x, np.array([[[0], [1], [1]], [[1], [1], [0]]]), -1),
    "along other": lambda x: np.take_along_axis(x, np.array([[[2, 0]], [[1, 1]]]), axis=1),
    "along broadcast": lambda x: np.take_along_axis(x, np.array([[[2], [0]]]), axis=1),
    "along broadcast values": lambda x: np.take_along_axis(x[:1], np.ones((2, 1, 2), int), axis=1),
    "along flat": lambda x: np.take_along_axis(x, np.array([3, 3, 1]), None),
    "where": lambda x: np.where(x > 0, x * x, 3 * x),
    "where broadcast": lambda x: np.where(np.array([True, False]), x, x[0, 0]),
    "where number": lambda x: np.where(x > 0, x, 0),
    "full_like": lambda x: np.full_like(x[0], x[0, 0, 0]) * x[0, 0, 1],
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0, 0], x[0, 0]),
    "atleast_2d": lambda x: np.atleast_2d(x[0, 0]),
    "atleast_3d": lambda x: [np.atleast_3d(x[0])] + [np.atleast_3d(x[0], x[1])[1]],
    "nan_to_num": np.nan_to_num,
    "copy": np.copy,
    "astype": lambda x: astype(x, np.float64),
    "clip": lambda x: np.clip(x, x[:, :1] - 0.5, x[0, 0] + 0.3),
    "clip both": lambda x: np.clip(x[0], -0.1 - x[1] ** 2, 0.1 + x[1] ** 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    f = MOVES[name]
    check(lambda x: [y * y for y in many(f(x))], some(2, 3, 2))


def many(result):
    return result if isinstance(result, (tuple, list)) else [result]


KEYS = {
    "number": 1,
    "negative": -1,
    "numpy number": np.int64(1),
    "numbers": (1, 2, 0),
    "slice": slice(None, None, -1),
    "slices": (slice(1), slice(0, 3, 2)),
    "ellipsis": (..., 1),
    "new axis": (None, slice(None), None),
    "empty": slice(2, 2),
    "array": np.array([1, 1, 0]),
    "list": [1, 1, 0],
    "matrix": np.array([[1, 0], [1, 1]]),
    "arrays": (np.array([0, 1, 1]), np.array([2, 2, 2])),
    "broadcast arrays": (np.array([[0], [1]]), np.array([2, 2, 0])),
    "array and slice": (slice(None), np.array([2, 2]), slice(1)),
    "array apart": (np.array([0, 0]), slice(None), np.array([1, 1])),
    "mask": np.array([[True, False, True], [False, False, True]]),
    "mask of all": np.arange(12).reshape(2, 3, 2) % 3 == 0,
    "mask and slice": (slice(None), np.array([True, False, True])),
    "no mask": np.zeros((2, 3), bool),
    "nothing": (),
    "true": True,
    "list in tuple": ([0, 0], slice(None), [1, 1]),
    "variable": Variable(np.array([1, 1])),
    "variables": (Variable(1), Variable(np.array([0, 0]))),
}


@pytest.mark.parametrize("name", KEYS)
def test_indexing(name):
    key = KEYS[name]
    plain = (
        tuple(getattr(k, "data", k) if isinstance(k, Variable) else k for k in key) if isinstance(key, tuple) else key
    )
    plain = plain.data if isinstance(plain, Variable) else plain
    check(lambda x: (x[key] if isinstance(x, Variable) else x[plain]) ** 2, some(2, 3, 2))


def test_numbers_have_shapes_too():
    for f in (
        lambda x: x.reshape(1)[0],
        lambda x: np.stack([x, x * x]),
        lambda x: np.repeat(x, 3),
        lambda x: np.tile(x, 3),
        lambda x: np.broadcast_to(x, (2, 2)),
        lambda x: x[None, ...],
        lambda x: np.cumsum(x),
        lambda x: np.where(x > 0, x * x, x),
        lambda x: np.expand_dims(x, 0) @ np.ones((1, 2)),
        lambda x: np.atleast_2d(x) if not isinstance(x, Variable) else x.reshape(1, 1),
    ):
        check(f, 0.7)
