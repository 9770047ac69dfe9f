"""Every function of numpy that has a gradient or a tangent, called with each value of each of its options, and in pairs."""

import inspect
import itertools
import operator

import numpy as np

from puregraph.autodiff.derivatives.declarations import jvpOf, vjpOf
from puregraph.ops.formula.ufunctexts import TEXTS
from puregraph.ops.operation import OPERATIONS, declared

RNG = np.random.default_rng(5)
A, B = RNG.permutation(12).reshape(3, 4) / 10 + 0.55, RNG.permutation(12).reshape(3, 4) / 9 + 0.3
C = RNG.permutation(24).reshape(2, 3, 4) / 20 - 0.57
S, T = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=(3, 3)) - 2 * np.eye(3)
V, W = np.array([0.7, -1.3, 2.1, 0.4]), np.array([1.1, 0.2, -0.6, 0.9])
MASK = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]])
ROW = np.array([True, True, False, True])

ARRAYS = {  # the positional arguments; arrays of floats among them move
    **dict.fromkeys((np.sum, np.mean, np.prod, np.var, np.std, np.max, np.min, np.cumsum, np.cumprod), [(A,), (C,)]),
    **dict.fromkeys((np.amax, np.amin, np.sinc), [(A,)]),
    **dict.fromkeys((np.add.reduce, np.multiply.reduce, np.maximum.reduce, np.minimum.reduce), [(A,), (C,)]),
    np.add.accumulate: [(A,)],
    np.average: [(A,), (A, None, B), (A, 0, np.abs(B[:, 0]))],
    **dict.fromkeys((np.sort, np.diff, np.ravel, np.copy, np.real, np.nan_to_num, np.squeeze), [(A,), (A[:1],)]),
    **dict.fromkeys((np.atleast_1d, np.atleast_2d, np.atleast_3d), [(A,), (V,)]),
    **dict.fromkeys((np.fliplr, np.flipud, np.flip, np.rot90, np.transpose, np.tril, np.triu, np.trace), [(A,), (S,)]),
    **dict.fromkeys((np.diagonal, np.fft.fftshift, np.fft.ifftshift), [(A,), (C,)]),
    np.diag: [(A,), (V,)],
    np.reshape: [(A, (4, 3)), (A, -1)],
    np.expand_dims: [(A, 0), (A, (0, 2))],
    np.broadcast_to: [(V, (2, 4))],
    np.broadcast_arrays: [(A, V)],
    np.moveaxis: [(C, 0, 2), (C, (0, 1), (2, 0))],
    np.rollaxis: [(C, 2)],
    np.swapaxes: [(C, 0, 2)],
    np.roll: [(A, 1), (A, (1, 2), (0, 1))],
    np.repeat: [(A, 2), (V, [1, 0, 2, 1])],
    np.tile: [(A, 2), (A, (2, 1, 2))],
    np.resize: [(A, (2, 3)), (A, (5, 4))],
    np.take: [(A, [0, 2, 2]), (A, 1), (A, np.array([[0, 1], [2, 0]]))],
    np.take_along_axis: [(A, np.array([[0, 1], [2, 0], [1, 1]]), 1), (A, np.array([0, 5]), None)],
    np.compress: [([True, False, True], A, 0), (ROW, A, 1), ([False, True, True], A)],
    np.delete: [(A, 1), (A, [0, 2]), (A, slice(0, 2))],
    operator.getitem: [(A, (slice(None), 1)), (A, (np.array([0, 0, 2]),)), (A, MASK), (A, (Ellipsis, None))],
    np.pad: [(A, 1), (A, ((0, 1), (2, 0))), (A, 1, "edge"), (A, 1, "reflect"), (A, 1, "linear_ramp"), (A, 1, "mean")],
    np.full_like: [(A, 2.5), (A, np.array(1.5)), (A, V)],
    np.where: [(MASK, A, B), (MASK, A, 0.5)],
    np.clip: [(A, 0.7, 1.2), (A, 0.7 * np.ones(4), 1.2), (A, None, 1.2), (A, 0.7, None)],
    **dict.fromkeys((np.concatenate, np.stack, np.vstack, np.hstack, np.dstack), [([A, B],), ((A, B),), (C,)]),
    np.column_stack: [([V, W],), ([A, B],)],
    **dict.fromkeys((np.split, np.array_split, np.vsplit), [(A, 3), (A, [1])]),
    **dict.fromkeys((np.hsplit,), [(A, 2), (A, [1, 2])]),
    np.dsplit: [(C, 2)],
    np.matmul: [(A, S[:, :1].T @ T), (S, T), (S, A), (A.T, S), (V, W), (C, V)],
    np.dot: [(S, T), (V, W), (A, V)],
    np.vdot: [(V, W), (S, T)],
    np.inner: [(A, B), (V, W)],
    np.outer: [(V, W)],
    np.tensordot: [(A, B), (A, B, ([0], [0])), (A, B, ([0, 1], [0, 1])), (S, T, 1)],
    np.kron: [(S, A), (V, W)],
    np.cross: [(S, T), (V[:3], W[:3])],
    np.convolve: [(V, W[:3]), (V, W, "same"), (V, W[:2], "valid")],
    np.einsum: [("ij,ij->i", A, B), ("ii->i", S), ("ij,jk", S, T), ("i,i->", V, V), ("...j,j", A, V)],
    np.linalg.inv: [(S,)],
    np.linalg.det: [(S,), (np.stack([S, T]),)],
    np.linalg.solve: [(S, T), (S, V[:3])],
    np.linalg.slogdet: [(S,)],
    **dict.fromkeys((np.linalg.svd, np.linalg.pinv), [(S,)]),
    **dict.fromkeys((np.matrix_transpose, np.linalg.matrix_transpose, np.linalg.diagonal, np.unstack), [(A,), (C,)]),
    np.extract: [(MASK, A)],
    np.linalg.norm: [(V,), (A,), (V, 2), (V, 1), (A, "fro"), (V, np.inf), (V, 3), (A, 2)],
    **dict.fromkeys((np.round, np.around), [(A + 0.013,)]),
    np.multiply.outer: [(V, W)],
    np.logaddexp.reduce: [(A,)],
    np.subtract.outer: [(V, W)],
}
UFUNCS = [f for f in TEXTS if isinstance(f, np.ufunc)]
for ufunc in dict.fromkeys(UFUNCS):
    low = {np.arccosh: 1.1}.get(ufunc, 0.0)
    inside = [A / 2 + low, B / 2.5 + 0.07 + low, A[:1] + 0.1]
    ARRAYS[ufunc] = [tuple(inside[: ufunc.nin]), *([(inside[0], 0.6 + low)] if ufunc.nin == 2 else [])]
    if ufunc.nin == 2:
        ARRAYS[ufunc].append((inside[0], -0.0) if ufunc is np.copysign else (0.45 + low, inside[1]))

VALUES = {  # of options, by name
    "axis": [None, 0, 1, -1, (0,), (0, 1), (-1, 0), [0]],
    "keepdims": [True, False],
    "dtype": [np.float64, "f8"],
    "initial": [0.5, 3.0, 0.9],
    "where": [MASK, ROW, True, np.ones((3, 1), bool)],
    "ddof": [0, 1],
    "correction": [0, 1],
    "mean": [np.array(0.7), np.full((3, 1), 0.6)],
    "prepend": [5.0, np.full((3, 1), 2.0), A[:1], A[:, :2]],
    "append": [5.0, np.full((3, 1), 2.0), A[:1], A[:, :2]],
    "n": [0, 1, 2],
    "weights": [np.abs(B), np.array([1.0, 2.0, 0.5])],
    "returned": [True],
    "kind": ["stable"],
    "stable": [True],
    "order": ["C", "F", "A", "K"],
    "copy": [True, False],
    "subok": [False],
    "nan": [1.0],
    "posinf": [2.0],
    "neginf": [2.0],
    "k": [0, 1, -1],
    "offset": [0, 1, -1],
    "axis1": [1],
    "axis2": [0],
    "axes": [None, (1, 0), (0, 1), 0],
    "shift": [1, (1, 2)],
    "start": [0, 1],
    "mode": ["clip", "wrap", "raise", "same", "valid", "full", "edge", "wrap", "symmetric", "constant", "median"],
    "constant_values": [1.5, ((1.0, 2.0), (3.0, 4.0))],
    "end_values": [1.5],
    "stat_length": [1],
    "reflect_type": ["odd", "even"],
    "decimals": [0, 1],
    "casting": ["same_kind", "unsafe"],
    "optimize": [True],
    "ord": [None, 2, 1],
    "shape": [(3, 4), (2, 3, 4)],
    "min": [0.7],
    "max": [1.2],
    "axisa": [0],
    "axisb": [0],
    "axisc": [0],
    "new_order": ["C"],
    "device": ["cpu"],
    "strict": [True],
}
OF_UFUNCS = ("dtype", "casting", "order", "subok")  # "where" leaves undefined what it skips
OF_REDUCTIONS = ("axis", "dtype", "keepdims", "initial", "where")


def isMoving(x):
    """Whether an argument is an array of floats, or a list of those."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(map(isMoving, x))
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def namesOf(function):
    """The options of a function, by name."""
    if isinstance(function, np.ufunc):
        return OF_UFUNCS
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return OF_REDUCTIONS if function.__name__ in ("reduce", "accumulate") else ("dtype",)
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def calls(function):
    """Each call as (arguments, options) that numpy itself can make."""
    names = [name for name in namesOf(function) if name in VALUES]
    choices = [(name, value) for name in names for value in VALUES[name]]
    pairs = [(a, b) for a, b in itertools.combinations(choices, 2) if a[0] != b[0]]
    for arguments in ARRAYS[function]:
        pairs = [] if isinstance(function, np.ufunc) else pairs
        for chosen in ((), *((c,) for c in choices), *pairs):
            options = dict(chosen)
            try:
                with np.errstate(all="ignore"):
                    result = function(*arguments, **options)
                    again = function(*arguments, **options)
            except (TypeError, ValueError, IndexError, RuntimeWarning):
                continue
            if isSame(result, again):
                yield arguments, options


def isSame(a, b):
    """Whether results are the same floats."""
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(isSame, a, b))
    return np.array_equal(a, b, equal_nan=False)


def movingCall(function, arguments, options):
    """The call as a function of its moving arrays, each by itself, in lists too; and these. Options do not move."""
    xs = []

    def place(x):
        if not isMoving(x):
            return lambda given: x
        if isinstance(x, (list, tuple)):
            inner = [place(y) for y in x]
            return lambda given: type(x)([each(given) for each in inner])
        xs.append(x)
        return operator.itemgetter(len(xs) - 1)

    places = [place(x) for x in arguments]

    def call(*given):
        return function(*[p(given) for p in places], **options)

    return call, xs


HAVE = [f for f in [*OPERATIONS, *TEXTS] if f in TEXTS or vjpOf(f) or jvpOf(f)]
KNOWN = [f for f in dict.fromkeys(HAVE) if not declared(f, "constant") and f is not np.astype]
