"""Kind: the traits of a call that passes use without knowing its function."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """The traits of a kind of call.

    `isElementwise`   each element of a result is computed from one element of each argument, with broadcasting
    `isReduction`     a sum, maximum and the like along axes
    `isContraction`   a matrix product
    `isView`          the result is stored in the memory of the first argument; no code runs
    `isKernel`        a Kernel, with its own launches and native code
    `isNative`        run by native code or launches; its function has the calls that it replaces
    `isOpaque`        a whole rule that could not be traced
    `isStore`         writes to a parameter, a state or a gradient
    `isUpdate`        writes to the state that is its first argument; its result is that state's memory
    `isHost`          a Python call between two parts of a step; the step ends if it returns False
    `isExact`         no arithmetic: elements are copied, or are a constant
    `isCheap`         computed again rather than kept, if that saves memory
    `isRegistered`    lowered by the rule registered for its function

    A "group" is calls over one index space, a "launch" is prepared for a GPU by a pass: lowering accepts both.
    """

    name: str
    isElementwise: bool = False
    isReduction: bool = False
    isContraction: bool = False
    isView: bool = False
    isFill: bool = False
    isKernel: bool = False
    isNative: bool = False
    isOpaque: bool = False
    isStore: bool = False
    isUpdate: bool = False
    isHost: bool = False
    isExact: bool = False
    isCheap: bool = False
    isRegistered: bool = False

    @property
    def hasEffect(self) -> bool:
        """True if a call must always run, in order with other calls that have effects."""
        return self.isOpaque or self.isHost or self.isStore or self.isUpdate

    def __str__(self) -> str:
        return self.name


KINDS = {
    kind.name: kind
    for kind in (
        Kind("pointwise", isElementwise=True, isCheap=True),
        Kind("reduce", isReduction=True),
        Kind("product", isContraction=True),
        Kind("view", isView=True, isExact=True, isCheap=True),
        Kind("copy", isExact=True, isCheap=True, isRegistered=True),
        Kind("fill", isFill=True, isExact=True, isCheap=True, isRegistered=True),
        Kind("put", isExact=True, isRegistered=True),
        Kind("kernel", isKernel=True, isRegistered=True),
        Kind("update", isKernel=True, isUpdate=True, isRegistered=True),
        Kind("other", isRegistered=True),
        Kind("group"),
        Kind("launch"),
        Kind("native", isNative=True),
        Kind("rule", isOpaque=True),
        Kind("store", isStore=True),
        Kind("host", isHost=True),
    )
}
