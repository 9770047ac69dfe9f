"""Param and State: named arrays, which are only declared until their data is first read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.accumulate import needPlain, operatorsHint
from puregraph.core.arguments import isNumber, isType, isWhole
from puregraph.core.base.align import fitting, ownCopy, readOnly
from puregraph.core.base.attributes import Settable
from puregraph.core.base.dtype import isFloating, isNumeric, nativeType
from puregraph.core.base.fingerprint import fingerprint
from puregraph.core.base.lease import Lease, isLendable, lend
from puregraph.core.base.widen import noteDtype
from puregraph.core.errors import (
    ArgumentError,
    DtypeError,
    Fault,
    ShapeError,
    UnknownAttributeError,
    addLocation,
    need,
    show,
)
from puregraph.core.initial import SEED, Start, generator, start
from puregraph.core.machinememory import needMemory
from puregraph.core.shape import asShape, bind, isInstance
from puregraph.core.tracer import Tracer
from puregraph.core.versioning import ARRAYVERSIONS, COUNTER, Kept, LastUpdate, VersionedAttribute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

    from puregraph.core.device import Array


def wholes(shape: Any, kind: str) -> tuple[int, ...]:
    """Return a shape as a tuple of ints, after checking that all are at least 0."""
    good = isinstance(shape, (tuple, list)) and all(type(n) is int and n >= 0 or isWhole(n, 0) for n in shape)
    if not good:
        isArray = isinstance(shape, np.ndarray)
        given = f"an array of shape {show(shape.shape)}" if isArray else repr(shape)
        hint = "make it of the shape, and assign the array to its data" if isArray else ""
        raise ShapeError(Fault(f"whole numbers for the shape of a {kind}", given, hint))
    return tuple(map(int, shape))


def dtypeFrom(dtype: DTypeLike, kind: str) -> np.dtype:
    """Return a dtype of numbers, in the byte order of the machine.

    Raises    DtypeError for anything else; None is no dtype, though numpy takes it for float64
    """
    if dtype is np.float32:
        return FLOAT  # almost all parameters
    if not isType(dtype) or np.dtype(dtype).kind not in "fiubV":
        raise DtypeError(f"wanted the dtype of a {kind}, such as np.float32, got {dtype!r:.60}")
    noteDtype(np.dtype(dtype))
    return nativeType(dtype)


# a parameter's array when a pass read it: the array, its version, and its fingerprint if it was lent
Mark = tuple[Any, int, int | None]
FLOAT = np.dtype(np.float32)
KEPT_FINGERPRINTS = 4  # versions whose fingerprints are kept after the array was lent


class Stored(Settable, Kept):
    """Shape, dtype and initial values of an array that is made when `data` is first read.

    So a model of any size can be built and checked without memory. Two modules may share one.

    It has its own memory: an array assigned to `data` is copied, so the caller shares no memory with it. The array is
    always writeable, aligned and row-major. Reading `data` returns a `Lease` of that memory: writing to it or to a view
    of it changes the array. `version` changes after every update, and after `data` was handed out. While `hasLease` is
    true, the array may change without a new version. Compiled programs that repack weights check both. The library
    reads `array`, or `materialize()` if it may not exist yet, and calls `bumpVersion` after writing to it. Updates of
    states by eager rules do not change the version.
    """

    kind = "array"
    elsewhere = {
        **dict.fromkeys(("lr", "learnRate", "learning_rate", "lr_mult"), "set rate, a factor of the learning rate"),
        **dict.fromkeys(("requires_grad", "requiresGrad", "frozen", "is_trainable"), "set trainable"),
        **dict.fromkeys(("weight_decay", "weightDecay"), "set decay, whether weight decay applies"),
        **dict.fromkeys(("value", "values"), "set data"),
    }
    array: Any = VersionedAttribute()
    shape: tuple[int, ...]
    dtype: Any
    initial: Start
    key: tuple[int, int]
    version: int
    leases: list[Lease]
    marked: int  # the version that the last pass read
    lent: dict[int, int | None]  # by version that a pass had read, the fingerprint when the array was lent

    def __init__(self, shape: tuple[int, ...], initial: Any = "zeros", dtype: DTypeLike = np.float32):
        attributes = vars(self)  # bypasses __setattr__, as the object is new
        attributes.update(shape=wholes(shape, self.kind), dtype=dtypeFrom(dtype, self.kind), initial=start(initial))
        attributes.update(key=SEED.next(), array=None, version=0, leases=[], marked=-1, lent={})

    def mark(self) -> Mark:
        """Return the current state of the array, from which `isAsMarked` detects a later modification in place."""
        attributes = vars(self)  # bypasses __setattr__, for speed
        attributes["marked"] = version = self.version
        return self.array, version, fingerprint(self.array) if self.leases else None

    def isAsMarked(self, mark: Mark) -> bool:
        """True if the array that a pass read is unchanged, even if `data` is another array by now."""
        array, version, before = mark
        if self.array is not array or self.version == version and before is None:
            return True
        known = self.lent.get(version) if before is None else before
        return known is not None and known == fingerprint(array)

    def materialize(self) -> Any:
        """Return the array itself, for callers that do not keep it; it is on the device in use when it was made."""
        if self.array is None:
            try:
                self.array = device.toDevice(ownCopy(self.startingValues(), self.dtype))
            except (MemoryError, ValueError, OverflowError) as error:
                needMemory(f"a {self.kind}", self.shape, self.dtype)
                addLocation(error, f"for a {self.kind} of shape {show(self.shape)}")
                raise
        return self.array

    def values(self) -> Array:
        """Return the array; for sharded weights that are not gathered, a copy that is not stored here."""
        if self.array is None and getattr(self.initial, "isKeptElsewhere", False):
            return ownCopy(self.startingValues(), self.dtype)
        return self.materialize()

    def startingValues(self) -> Array:
        """Call `initial`, often a user's function, and check its result.

        Raises    ArgumentError unless it returns numbers of this shape
        """
        values = self.initial(generator(self.key), self.shape)
        if not hasattr(values, "dtype") or values.shape != self.shape or values.dtype.kind not in "fiubV":
            got = f"{values.dtype} of shape {show(values.shape)}" if hasattr(values, "dtype") else f"{values!r:.60}"
            raise ArgumentError(
                f"initial: wanted a function (rng, shape) that gives an array of numbers of shape {show(self.shape)}, "
                f"got {got}"
            )
        return values

    def bumpVersion(self) -> None:
        """Set a new version, because the array has changed or was replaced."""
        vars(self)["version"] = next(ARRAYVERSIONS)  # bypasses __setattr__, for speed

    @property
    def hasLease(self) -> bool:
        """True if anyone holds the array that `data` returned, or a view of it, and may write to it at any time."""
        return bool(self.leases)

    @property
    def data(self) -> Array:
        """The array, as a lease: the same object as long as any caller holds it. On a GPU the array itself."""
        array = self.materialize()
        if not isLendable(array):
            return array
        for lease in self.leases:
            lent = lease()
            if lent is not None and lease.of is array:
                return lent
        if self.marked == self.version:
            self.lent[self.version] = fingerprint(array)
            while len(self.lent) > KEPT_FINGERPRINTS:
                del self.lent[next(iter(self.lent))]
        lent = lend(array, self.leases)
        self.bumpVersion()
        return lent

    @data.setter
    def data(self, array: Array) -> None:
        self.check(array)
        if self.isOwn(array):  # as after param.data *= 2
            self.bumpVersion()
        else:
            self.adopt(ownCopy(array, self.dtype))

    def checkSuccessor(self, owner: object, name: str, value: object) -> None:
        """Refuse an array, a node or anything else instead of a parameter: the rules of a module read its data."""
        if isinstance(value, (np.ndarray, list, float, int)) or device.isDeviceArray(value):
            raise UnknownAttributeError(
                f"{type(owner).__name__}: {name} is a {self.kind} of shape {show(self.shape)}; its array is set by "
                f"{name}.data = ..."
            )
        if value is not None and not isinstance(value, (Stored, DerivedKind)):
            raise UnknownAttributeError(successorText(owner, name, self.kind, value))
        if value is not None and len(value.shape) != len(self.shape):
            raise ShapeError(Fault(f"{name} with as many axes as {show(self.shape)}", show(value.shape)))
        if isinstance(value, DerivedKind):
            DerivedKind.changes += 1

    def isOwn(self, array: Array) -> bool:
        """True if an array is the one that `data` returns now."""
        return array is self.array or any(x() is array and x.of is self.array for x in self.leases)

    def check(self, array: Array) -> None:
        """Raise    DtypeError, ShapeError unless these can be the values."""
        actual = ""
        if not hasattr(array, "astype") or not hasattr(array, "shape") or isinstance(array, Tracer):
            actual = f"{type(array).__name__}; np.asarray makes one"
        elif hint := operatorsHint(array):
            actual = hint
        elif array.dtype.kind in "cOSUMm" and array.dtype.kind != self.dtype.kind:
            actual = f"dtype {array.dtype}; convert it with .astype('{self.dtype}')"
        if actual:
            wanted = f"an array of {self.dtype} of shape {show(self.shape)} for the data of a {self.kind}"
            raise DtypeError(f"wanted {wanted}, got {actual}")
        if tuple(array.shape) != self.shape:
            raise ShapeError(Fault(f"{self.kind} data of shape {show(self.shape)}", show(tuple(array.shape))))

    def adopt(self, array: Array) -> None:
        """Take over an array that no caller keeps, without a copy if it is row-major, writeable and of this dtype."""
        noteDtype(self.dtype)
        self.array = fitting(array, self.dtype)
        self.bumpVersion()

    @property
    def made(self) -> bool:
        """True if the array exists; false if it is only declared."""
        return self.array is not None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def calcMode(self, dtype: DTypeLike) -> None:
        """Convert the values to another dtype."""
        self.dtype = dtypeFrom(dtype, self.kind)
        COUNTER.version = object()
        if self.array is not None and self.array.dtype != self.dtype:
            self.adopt(ownCopy(self.array, self.dtype))

    def __getstate__(self) -> dict:
        state = {**vars(self), "initial": None if self.made else self.initial}
        for name in ("leases", "version", "marked", "lent"):
            del state[name]
        return state

    def __setstate__(self, state: dict) -> None:
        """Restore a copied or unpickled object with its own memory."""
        vars(self).update(state, leases=[], version=0, marked=-1, lent={})
        if self.array is not None:
            self.adopt(ownCopy(self.array, self.dtype))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({show(self.shape)}, {self.dtype})"


class DerivedKind(Kept):
    """The base of computed values that replace a parameter, see `graph.derived`.

    `changes` counts how often one was set on a module or removed, because that changes how graphs are flattened.
    """

    changes = 0
    shape: tuple[int, ...]
    storedOf: Any
    baked: Any
    isWanted: Any

    def checkSuccessor(self, owner: Any, name: str, value: Any) -> None:
        """Accept a parameter, another one that is computed, or None."""
        if value is not None and not isinstance(value, (Stored, DerivedKind)):
            raise UnknownAttributeError(successorText(owner, name, "derived parameter", value))
        DerivedKind.changes += 1


def scaled(array: Any, factor: float) -> Any:
    """Return an array times a factor, in the array's dtype, which numpy would not keep for bfloat16."""
    return (array * factor).astype(array.dtype, copy=False)


def successorText(owner: object, name: str, kind: str, value: object) -> str:
    """The message for a value that was set in place of a parameter."""
    return (
        f"{type(owner).__name__}: {name} is a {kind}, which nodes and functions cannot compute, got "
        f"{type(value).__name__}; write the operation with inputs instead (MatMul, Add, Einsum), or share another "
        f"module's: a.{name} = b.{name}"
    )


class GradOfPass:
    """The gradient of a parameter; setting it sets `gradVersion`, by which an optimizer detects a new gradient.

    It is read from where all attributes are, at no further cost, for there is no `__get__`.
    """

    def __set__(self, owner: Any, value: Any) -> None:
        if value is not None:
            needPlain(value, "the gradient of a parameter")
            owner.checkGrad(value)
        attributes = vars(owner)
        attributes["grad"] = value
        attributes["gradVersion"] = next(ARRAYVERSIONS)


class Trainable(VersionedAttribute):
    """True if a parameter is trained; integers have no gradient."""

    def __set__(self, owner: Stored, value: object) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentError(f"wanted trainable as True or False, got {value!r:.60}")
        if value and not isFloating(owner.dtype):
            raise DtypeError(f"a parameter of {owner.dtype} has no gradient and cannot be trained; make it a float")
        super().__set__(owner, value)


class RateFactor(VersionedAttribute):
    """A factor of the learning rate."""

    def __set__(self, owner: Stored, value: object) -> None:
        if not isNumber(value):
            raise ArgumentError(f"wanted rate as a finite number, a factor of the learning rate, got {value!r:.60}")
        super().__set__(owner, value)


class Param(Stored):
    """A trainable array; one of integers or booleans, such as quantised weights, is not trained and keeps its dtype.

    `grad` holds the gradient of the last backward pass. `trainable`, `rate` (a factor of the learning rate) and
    `decay` (whether weight decay applies) are this parameter's own settings.
    """

    kind = "parameter"
    options = ("trainable", "rate", "decay", "data", "grad")
    trainable: Any = Trainable()
    rate: Any = RateFactor()
    decay: Any = VersionedAttribute()
    grad: Any = GradOfPass()
    gradVersion = 0
    applied = -1  # the version of the gradient that an optimizer applied last
    lost = 0  # the number of gradients that were overwritten before an optimizer applied them

    def __init__(self, shape: tuple[int, ...], initial: Any = "zeros", dtype: DTypeLike = np.float32):
        super().__init__(shape, initial, dtype)
        vars(self).update(
            grad=None, gradVersion=next(ARRAYVERSIONS), trainable=isFloating(self.dtype), rate=1.0, decay=True
        )

    def checkGrad(self, value: Array) -> None:
        """Raise    DtypeError, ShapeError unless this can be the gradient."""
        if not hasattr(value, "dtype") or not isNumeric(value.dtype):
            kind = getattr(value, "dtype", type(value).__name__)
            raise DtypeError(f"wanted an array of numbers of shape {show(self.shape)} for a gradient, got {kind}")
        if tuple(value.shape) != self.shape:
            raise ShapeError(Fault(f"a gradient of shape {show(self.shape)}", show(tuple(value.shape))))

    def calcMode(self, dtype: DTypeLike) -> None:
        if isFloating(self.dtype):
            super().calcMode(dtype)
            self.grad = None

    def store(self, new: Array | None, scale: float = 1.0, momentum: float = 0.0, alias: bool = False) -> None:
        """Set grad = scale * new + momentum * grad, in its own array: `new` is copied with `alias`, or if it is a view.

        A `new` of None, from a pass that does not reach this parameter, counts as zero.
        """
        attributes = vars(self)  # bypasses __setattr__, for speed
        isFresh = attributes["gradVersion"] > LastUpdate.version if "gradVersion" in attributes else False
        if momentum == 0.0 and attributes["grad"] is not None and isFresh and attributes["gradVersion"] != self.applied:
            attributes["lost"] = self.lost + 1
        if new is None:
            if momentum != 1.0 and self.grad is not None:
                self.grad = scaled(self.grad, momentum) if momentum else None
            return
        if scale != 1.0:
            new = scaled(new, scale)
        elif alias or new.base is not None:
            new = new.copy()
        attributes["grad"] = new if momentum == 0.0 or self.grad is None else scaled(self.grad, momentum) + new
        attributes["gradVersion"] = next(ARRAYVERSIONS)


class State(Stored):
    """A running statistic, a counter or a random key: saved and loaded, never trained.

    Floating states stay in float32 or better, and whole numbers as they are, whatever a graph computes in.

    Sizes may be symbols, as in State(("N", 8)): the first run sets them, by `Module.stateSizesFrom` of its input
    shapes. Until then, and after `reset()`, they are 0. A run of other sizes is a ShapeError.

    >>> norm = BatchNorm(4)
    >>> {name: state.shape for name, state in norm.states.items()}
    {'mean': (4,), 'var': (4,), 'count': ()}
    """

    kind = "state"
    options = ("data",)
    declared: Any = None  # the shape with its symbols, None if it has none

    elsewhere = dict.fromkeys(("trainable", "rate", "decay", "grad"), "a State is never trained")

    def __init__(self, shape: Sequence[Any], initial: Any = "zeros", dtype: DTypeLike = np.float32):
        isOpen = isinstance(shape, (tuple, list)) and any(isinstance(n, str) for n in shape)
        sizes = tuple([0 if isinstance(n, str) else n for n in shape]) if isOpen else shape
        super().__init__(sizes, initial, dtype)  # type: ignore[arg-type]
        vars(self)["declared"] = asShape(shape) if isOpen else None

    def follow(self, sizes: Mapping[str, Any]) -> None:
        """Set the sizes of the symbols; the values are then the starting ones.

        Raises    ShapeError if they have other sizes already
        """
        shape = bind(self.declared or self.shape, sizes, complete=True)
        if shape == self.shape:
            return
        hint = "call reset() of this state, as in net.states[path].reset(), before data of other sizes"
        need(self.shape == self.unbound, f"a state of shape {show(self.shape)}, as in the runs before", shape, hint)
        vars(self)["shape"] = shape
        self.array = None
        self.bumpVersion()

    def reset(self) -> None:
        """Forget the values and the sizes of the symbols: the next run sets them anew.

        Raises    ArgumentError if no size is a symbol
        """
        if self.declared is None:
            raise ArgumentError(f"{self!r} has no symbols in its shape to reset; set its values by .data[...] = ...")
        vars(self)["shape"] = self.unbound
        self.array = None
        self.bumpVersion()

    @property
    def unbound(self) -> tuple[int, ...]:
        """The shape before the first run."""
        return tuple([n if isinstance(n, int) else 0 for n in self.declared or self.shape])

    def takes(self, shape: Sequence[int]) -> bool:
        """True if an array of this shape can be the values, in which symbols stand for any size."""
        return isInstance(tuple(shape), self.declared or self.shape)

    def __getstate__(self) -> dict:
        return super().__getstate__() | ({} if self.declared is None else {"initial": self.initial})

    def calcMode(self, dtype: DTypeLike) -> None:
        if isFloating(self.dtype):
            super().calcMode(np.promote_types(dtype, np.float32))


class FixedState(State):
    """An array that no rule changes, so that values computed from it are known statically.

    Its `data` cannot be written to, so that there is another version after every change.
    """

    kind = "constant"

    @property
    def isAhead(self) -> bool:
        """True if compiled steps and shape rules depend on the elements: integers, booleans, and single floats."""
        return self.dtype.kind in "iub" or self.dtype.kind == "f" and self.shape == ()

    @property
    def data(self) -> Array:
        """The array, read-only where it is on the host; assign another one."""
        return readOnly(self.materialize())

    @data.setter
    def data(self, array: Array) -> None:
        self.check(array)
        self.adopt(ownCopy(array, self.dtype))

    def calcMode(self, dtype: DTypeLike) -> None:
        if self.dtype.kind == "f":
            Stored.calcMode(self, dtype)
