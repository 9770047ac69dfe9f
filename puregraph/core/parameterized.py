"""Parameterized: the base of objects with parameters, states and modes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import PuregraphError
from puregraph.core.param import DerivedKind, Param, State, Stored
from puregraph.core.versioning import COUNTER, Kept, Versioned

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from typing_extensions import Self

    from puregraph.core.protocols import AnyArray

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")  # of computations on a GPU; parameters stay float32


class StoredArrays(dict):
    """A read-only dict of Params or States by name or path, because an entry set here would have no effect.

    >>> from puregraph import Linear
    >>> Linear(2, 3).params
    {'W': Param((2, 3), float32), 'b': Param((3,), float32)}

    Raises    PuregraphError if an entry is set
    """

    def __setitem__(self, name: str, value: AnyArray) -> None:
        raise PuregraphError(
            f"setting {name!r} here has no effect: the arrays are named anew each time; "
            f"set .data of the one that is there, as in net.params[{name!r}].data = ..."
        )

    def update(self, *entries: Any, **named: object) -> None:
        """Raise the same error as setting an entry."""
        for name, value in dict(*entries, **named).items():
            self[name] = value

    def __ior__(self, entries: Any) -> Self:  # type: ignore[misc]
        self.update(entries)
        return self

    def __reduce__(self) -> tuple:  # a copy is a plain dict, which is writeable
        return dict, (dict(self),)


class Parameterized(Versioned):
    """An object with Params or States among its attributes; a Module adds rules."""

    isTraining = True
    isFrozen = False
    thawedMode = True  # the mode that a frozen module returns to when unfrozen
    precision = "float32"
    namesFloats = False  # True if the argument `dtype` is the dtype of the output

    @property
    def params(self) -> dict[str, Param]:
        """The trainable arrays by name."""
        return StoredArrays(self.storedOf(Param))

    @property
    def states(self) -> dict[str, State]:
        """The running statistics by name."""
        return StoredArrays(self.storedOf(State))

    def storedOf(self, kind: type[Stored]) -> Iterator[tuple[str, Any]]:
        """The Params or States by name; those of a derived parameter by its name and theirs, such as W.v."""
        for name, value in vars(self).items():
            if not isinstance(value, Kept):
                continue
            if isinstance(value, kind):
                yield name, value
            elif isinstance(value, DerivedKind):
                yield from ((f"{name}.{inner}", stored) for inner, stored in value.storedOf(kind))

    def derived(self) -> list[Any]:
        """The parameters that are computed from others."""
        return [value for value in vars(self).values() if isinstance(value, DerivedKind)]

    def bake(self) -> Any:
        """Replace each computed parameter by a plain one with its current array. Returns the module."""
        for name, value in list(vars(self).items()):
            if isinstance(value, DerivedKind):
                setattr(self, name, value.baked())
        return self

    @property
    def trainable(self) -> bool:
        """True if any parameter is trained; setting it sets all of them."""
        return any(param.trainable for param in self.params.values())

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for param in self.params.values():
            if isFloating(param.dtype):
                param.trainable = value

    def freeze(self) -> Self:
        """Keep it unchanged from now on, also while other modules are trained: no parameter or running statistic is
        updated, and dropout is off, as in evalMode. `unfreeze()` trains it again. `net.save` does not store this;
        `Trainer.resume` restores the frozen modules of the run.
        """
        if not self.isFrozen:
            self.thawedMode = self.isTraining
        self.isFrozen, self.isTraining, self.trainable = True, False, False
        return self

    def unfreeze(self) -> Self:
        """Train it again: at once in trainMode, also within a run; in evalMode from the next `trainMode()` on."""
        if self.isFrozen:
            self.isFrozen, self.isTraining = False, self.thawedMode
        self.trainable = True
        return self

    def numOfParams(self) -> int:
        """The number of trained elements."""
        return sum(p.size for p in self.params.values())

    def paramSize(self) -> int:
        """The bytes of the parameters."""
        return sum(p.nbytes for p in self.params.values())

    def wants(self, param: Param | State | DerivedKind | None) -> bool:
        """True if a parameter gets a gradient: in training mode, unless it is frozen."""
        if isinstance(param, DerivedKind):
            return self.isTraining and param.isWanted()
        return self.isTraining and isinstance(param, Param) and param.trainable

    def trainMode(self) -> Self:
        """Train from now on: statistics are updated, dropout drops, parameters get gradients."""
        self.setMode(True)
        return self

    def evalMode(self) -> Self:
        """Evaluate from now on: nothing in the module changes; inputs still get gradients."""
        self.setMode(False)
        return self

    def setMode(self, train: bool) -> None:
        """Set the mode; a frozen module stays in evalMode until it is unfrozen."""
        if self.isFrozen:
            self.thawedMode = train
        self.isTraining = train and not self.isFrozen
        for derived in self.derived():
            derived.setMode(train)

    def calcMode(self, mode: Any) -> Self:
        """Set the precision of computation by name, or convert parameters and states to a dtype.

        "bfloat16", "float16"  compiled steps on a GPU may store this module's results and their gradients in
                               16 bits, and multiply in 16 bits; parameters, their gradients, states, sums, costs
                               and checkpoints stay in float32
        "bfloat16"             compiled steps on a CPU with AVX512-BF16 may multiply in 16 bits
        "tf32"                 compiled steps may round float32 factors to ten fraction bits
        "float32"              full precision; all parameters become float32
        np.float16, np.float32, np.float64, "float64", ml_dtypes.bfloat16
                               parameters and floating states get this dtype, wherever they are used; in a graph also
                               modules that declare a dtype of floats, such as an Input, or a Cast that is not wider

        A precision is a permission: any other CPU, or a graph that is not compiled, still computes in float32. Calling
        this on a graph sets all its modules; set a single module afterwards to make an exception.

        Raises    PuregraphError for anything else
        """
        if type(mode) is str and mode in PRECISIONS:
            self.precision = mode
        if type(mode) is not str or mode not in PRECISIONS[1:]:
            dtype = dtypeOf(mode)
            for stored in (*self.params.values(), *self.states.values()):
                stored.calcMode(dtype)
        return self

    def followFloats(self, usual: np.dtype, dtype: np.dtype) -> None:
        """Change the argument `dtype` if it is `usual` in the graph, or if it is not wider and the new dtype is wider.

        A float wider than usual was requested on purpose, and stays.
        """
        own: Any = vars(self).get("dtype")
        if not self.namesFloats or own is None or not isFloating(own) or own == dtype:
            return
        if own == usual or dtype.itemsize > usual.itemsize >= own.itemsize:
            args, kwargs = vars(self)["initArgs"]
            named = inspect.signature(type(self)).bind(*args, **kwargs).arguments
            vars(self)["initArgs"] = ((), {**named, "dtype": dtype.name})
            vars(self)["dtype"] = dtype
            COUNTER.version = object()


def dtypeOf(mode: DTypeLike) -> np.dtype:
    """The dtype to convert parameters to.

    Raises    PuregraphError if it is not supported for parameters
    """
    try:
        isOther = mode is None or type(mode) is str and mode not in ("float32", "float64")
        dtype = None if isOther else np.dtype(mode)
    except TypeError:
        dtype = None
    if dtype is None or not isFloating(dtype) or dtype.itemsize > 8:
        names = ", ".join(map(repr, PRECISIONS))
        got = repr(mode) if dtype is None else dtype
        raise PuregraphError(
            f"calcMode: wanted how to calculate, one of {names}, or what to convert parameters to: np.float16, "
            f"np.float32, np.float64 or ml_dtypes.bfloat16; got {got}"
        )
    return dtype
