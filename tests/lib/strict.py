"""Strict: an array that behaves as CuPy's do where numpy's are more lenient, so that a rule which runs on it runs on a GPU.

It knows numpy's protocols, methods, operators and indexing. It refuses to become a numpy array, a number or a truth, and to
be mixed with numpy arrays: on a GPU each of these is an error or a silent copy to the host.
"""

import sys
from types import ModuleType

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from puregraph.core.tracer import Tracer, tracerOf
from puregraph.ops.kernel import registry

METHODS = frozenset(
    "all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot fill flatten max mean min nonzero prod "
    "ravel repeat reshape sort squeeze std sum swapaxes take trace transpose var view".split()
)
ATTRIBUTES = frozenset("dtype flags itemsize nbytes ndim shape size strides".split())
UNKNOWN = frozenset({"where", "initial"})  # options of numpy's reductions and ufuncs that CuPy's do not have


class Strict(NDArrayOperatorsMixin):
    """An array on a device that only numpy's protocols reach."""

    def __init__(self, values):
        self.values = np.asarray(values)

    @classmethod
    def of(cls, values):
        """An array of numpy as one on the device, with the same memory."""
        return cls(values)

    @classmethod
    def perform(cls, function, args, options):
        """A function of numpy on what such arrays hold, its results such arrays again."""
        unknown = sorted(UNKNOWN.intersection(name for name, value in options.items() if value is not np._NoValue))
        if unknown:
            raise TypeError(f"CuPy's {function.__name__} has no option {', '.join(unknown)}")
        options = {name: bare(value) for name, value in options.items()}
        if options.get("shape") == ():  # which CuPy takes for none
            del options["shape"]
        return wrapped(function(*bare(tuple(args)), **options), cls.of)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method != "__call__":
            raise TypeError(f"CuPy has no {ufunc.__name__}.{method}")
        if tracerOf(inputs) is not None:  # as CuPy's operators do for what has a higher priority
            return NotImplemented
        return self.perform(ufunc, inputs, options)

    def __array_function__(self, func, types, args, kwargs):
        if any(issubclass(kind, Tracer) for kind in types):
            return NotImplemented
        if func is np.asarray:  # an array of the host becomes one of the device
            return self.of(np.array(args[0]))
        return self.perform(func, args, kwargs)

    def __getattr__(self, name):
        if name in ATTRIBUTES:
            return getattr(self.values, name)
        if name not in METHODS:
            raise AttributeError(f"a device array has no {name!r}")
        return lambda *args, **options: self.perform(getattr(self.values, name), args, options)

    @property
    def T(self):
        return self.of(self.values.T)

    @property
    def base(self):
        return self.values.base

    def __getitem__(self, key):
        return self.of(self.values[bare(key)])

    def __setitem__(self, key, value):
        key, value = bare(key), bare(value)
        demandWhole(self.values, key, value)
        self.values[key] = value

    def __len__(self):
        return len(self.values)

    def refuse(self, *args, **options):
        raise TypeError("a device array does not become a numpy array, a number or a truth, and is no sequence")

    __array__ = __float__ = __int__ = __index__ = __bool__ = __iter__ = __contains__ = item = tolist = refuse

    def __repr__(self):
        return f"{type(self).__name__}({self.values!r})"

    def __deepcopy__(self, memo):
        return self.of(self.values.copy())


def demandWhole(values, key, value):
    """Refuse what is put where a condition holds, unless it has a value for every element: CuPy has no other."""
    if any(
        getattr(getattr(part, "dtype", None), "kind", "") == "b" for part in (key if type(key) is tuple else (key,))
    ):
        np.broadcast_to(value, values.shape)


def bare(value):
    """What Strict arrays hold; a numpy array among them is refused, as CuPy does."""
    if isinstance(value, Strict):
        return value.values
    if isinstance(value, np.ndarray):
        raise TypeError(f"a numpy array of shape {value.shape} is mixed with device arrays")
    return type(value)(map(bare, value)) if type(value) in (tuple, list) else value


def wrapped(value, of):
    """Arrays and numpy's numbers as arrays on the device: CuPy's sums are arrays, too."""
    if isinstance(value, (np.ndarray, np.generic)):
        return of(value)
    return type(value)(wrapped(part, of) for part in value) if type(value) in (tuple, list) else value


def makeCupy():
    """A module like cupy whose arrays are Strict, and which makes none but from numpy's."""
    cupy = ModuleType("cupy")
    cupy.ndarray = Strict
    cupy.asarray = lambda values: values if isinstance(values, Strict) else Strict(np.array(values))
    cupy.asnumpy = lambda array: array.values
    return cupy


def putCupy(monkeypatch, cupy):
    """Have a module pass for CuPy, also where the real one is: without the part that has special functions."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for name in ("cupyx", "cupyx.scipy.special"):
        monkeypatch.setitem(sys.modules, name, None)


def useStrict(monkeypatch):
    """Make Strict arrays count as device arrays, and every kernel go through its reference."""
    putCupy(monkeypatch, makeCupy())
    for found in registry.values():
        monkeypatch.delitem(found.implementations, "cuda", raising=False)
        monkeypatch.delitem(found.implementations, "device", raising=False)
