"""Starting values of parameters, each with its source, and the seed that makes them reproducible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from puregraph.core.arguments import Size, isNumber, takes
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import ArgumentError

Start = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class SeedCounter:
    """The source of all random numbers of puregraph: one entropy, and a count of the streams handed out."""

    def __init__(self) -> None:
        self.mutex = Mutex()
        self.reset(None)

    def reset(self, entropy: int | None) -> None:
        self.entropy: Any = np.random.SeedSequence(entropy).entropy
        self.count = 0

    def next(self) -> tuple[int, int]:
        """The key of the next stream: streams of different keys are independent."""
        with self.mutex.lock:
            self.count += 1
            return self.entropy, self.count

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Restore the stream count afterwards, so that objects made inside do not shift later streams."""
        count = self.count
        try:
            yield
        finally:
            self.count = count


SEED = SeedCounter()


@takes(number=Size | None)
def seed(number: int | None) -> None:
    """Make later constructions reproducible: the k-th parameter made after `seed(n)` always has the same values."""
    SEED.reset(number)


def generator(key: tuple[int, int]) -> np.random.Generator:
    """The random generator of one stream."""
    entropy, stream = key
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(stream,)))


class Filled:
    """Every element is `value`."""

    def __init__(self, value: float):
        self.value = value

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value)


class Given:
    """The elements of an array."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return self.array


class Normal:
    """N(0, std^2)."""

    def __init__(self, std: float):
        self.std = std

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.normal(0.0, self.std, shape)


class Uniform:
    """U(-bound, bound)."""

    def __init__(self, bound: float):
        self.bound = bound

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.uniform(-self.bound, self.bound, shape)


class OrthogonalStart:
    """A matrix with orthonormal rows or columns, times `gain`; leading axes are flattened.

    Source    Saxe, McClelland, Ganguli 2014, arXiv:1312.6120
    """

    def __init__(self, gain: float = 1.0):
        self.gain = gain

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diag(r))
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


def start(value: Any) -> Start:
    """Convert a name, a number or a function to a function (generator, shape) -> starting values."""
    if callable(value) and not isinstance(value, type):
        return value
    if isinstance(value, str) and value == "zeros":
        return Filled(0.0)
    if isinstance(value, str) and value == "ones":
        return Filled(1.0)
    if isNumber(value):
        return Filled(float(value))
    raise ArgumentError(f"initial: wanted 'zeros', 'ones', a number or a function (rng, shape) -> array, got {value!r}")


SCHEMES: dict[str, Callable[[float, float], Start]] = {  # from the fan f and wscale
    "none": lambda f, w: Filled(0.0),
    "xavier": lambda f, w: Normal(math.sqrt(1.0 / f)),  # LeCun et al. 1998, Efficient BackProp, eq. 16
    "xavier_normal": lambda f, w: Normal(math.sqrt(1.0 / f)),
    "xavier_uniform": lambda f, w: Uniform(math.sqrt(3.0 / f)),  # Glorot, Bengio 2010, with one fan
    "he": lambda f, w: Normal(math.sqrt(2.0 / f)),  # He et al. 2015, arXiv:1502.01852, eq. 10
    "gaussian": lambda f, w: Normal(w),
    "uniform": lambda f, w: Uniform(w),
    "orthogonal": lambda f, w: OrthogonalStart(w),
}


def weights(initscheme: Any, fanin: int, fanout: int, wscale: float = 1.0) -> Start:
    """The starting values of a weight by the name of its scheme, or by (name, "in" | "out" | "avg") to choose the fan.

    `None` is "xavier_uniform" with the fan of the inputs. A function (rng, shape) -> array is taken as it is.
    """
    if callable(initscheme) and not isinstance(initscheme, type):
        return initscheme
    scheme = "xavier_uniform" if initscheme is None else initscheme
    name, fan = scheme if isinstance(scheme, (tuple, list)) and len(scheme) == 2 else (scheme, "in")
    fans = {"in": fanin, "out": fanout, "avg": (fanin + fanout) / 2}
    if not (isinstance(name, str) and isinstance(fan, str) and name in SCHEMES and fan in fans):
        raise ArgumentError(
            f"initscheme: wanted one of {', '.join(SCHEMES)}, alone or as (scheme, 'in' | 'out' | 'avg'), "
            f"got {initscheme!r}"
        )
    return SCHEMES[name](max(fans[fan], 1), wscale)
