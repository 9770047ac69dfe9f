"""GEMM epilogues of training: values that cuBLASLt computes together with a product, from its registers.

    y, t = gelu(a b + bias), a b + bias     GELU_AUX: one call for the product, its bias, and GELU
    dt = (dy b') gelu'(t)                   DGELU: the gradient of GELU with the product before it
    dW, db = x' g, sum of the rows of g     BGRAD: the gradient of a bias with that of its weights

Without these epilogues each is another pass over t, dt or g. GELU is the tanh approximation, as in cuBLASLt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.lower.librarycalls import ACTIVATIONS, flat
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import formulasOf
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.product.cuda.librarygemm import product

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

GELU = Formula(ACTIVATIONS["gelu"]).put(t="t")
GELUGRAD = GELU.gradient(("t",), "grad")["t"]


class FusedProduct:
    """The function of a call that replaces a product and other calls; `options` as in `librarygemm.product`.

    Its arguments are the factors, then the operands in `names`. Its results are the product, then those in `made`.
    """

    __name__ = "matmul"

    def __init__(self, calls: list[Call], names: tuple[str, ...] = (), made: tuple[str, ...] = (), **options: Any):
        self.calls, self.names, self.made, self.options = calls, names, made, options

    def launches(self, call: Call) -> Any:
        """The library call; NotImplemented if cuBLASLt has no plan."""
        a, b, *others = call.arguments
        y, *results = call.outs
        extras = dict(zip((*self.names, *self.made), (*others, *results)))
        if "bias" in extras:
            extras["bias"] = flat(extras["bias"])
        return product(y, a, b, **extras, **self.options, tf32=call.origin.isTf32)


def fuseEpilogues(schedule: Schedule) -> Schedule:
    """Replace each product that has such an epilogue, and the calls of the epilogue, by one call."""
    return EpilogueFusion(schedule).run()


class EpilogueFusion:
    """Rewrites the calls of one schedule.

    `readers`  by number of a Value with memory, the calls that read it or a view of it
    `kept`     the numbers of Values that are read after the step
    `order`    the position of a call, by id
    `births`   the position of the call that computes a Value, by number
    `gone`     the ids of calls that have been replaced
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.kept = {v.root.number for v in schedule.kept()}
        self.order = {id(call): i for i, call in enumerate(schedule.calls)}
        self.births = {y.number: i for i, call in enumerate(schedule.calls) for y in call.outs if y is not None}
        self.gone: set[int] = set()
        self.readers: dict[int, list[Call]] = {}
        for call in schedule.calls:
            for v in () if call.kind.isView else {v.root.number: v for v in call.values()}.values():
                self.readers.setdefault(v.root.number, []).append(call)

    def run(self) -> Schedule:
        """Rewrite all calls."""
        calls = []
        for call in self.schedule.calls:
            if id(call) not in self.gone:
                isProduct = call.function is np.matmul and not call.options and min(v.ndim for v in call.values()) > 1
                calls.append(self.fused(call) if isProduct else call)
        self.schedule.calls = calls
        return self.schedule

    def fused(self, call: Call) -> Call:
        """A product with its epilogue, if it has one."""
        replacement = self.withGelu(call) or self.withGeluGrad(call) or self.withBiasGrad(call)
        if replacement is None or replacement.function.launches(replacement) is NotImplemented:
            return call
        self.gone |= {id(replaced) for replaced in replacement.function.calls}
        for y in replacement.outs:
            y.call = replacement
        return replacement

    def onlyReader(self, y: Value) -> Call | None:
        """The only call that reads a Value; None if there are several, or it is kept."""
        users = self.readers.get(y.root.number, [])
        return users[0] if len(users) == 1 and y.root.number not in self.kept else None

    def withGelu(self, call: Call) -> Call | None:
        """A product, its bias and their GELU as one call, if the backward pass reads the input of the GELU."""
        t, calls, operands = call.outs[0], [call], []
        add = self.onlyReader(t)
        bias = None if add is None else self.biasOf(add, call)
        if add is not None and bias is not None:
            calls, operands, t = [call, add], [bias], add.outs[0]
        gelu = next((c for c in self.readers.get(t.number, ()) if formulaOf(c, {t.number: "t"}) == GELU), None)
        if gelu is None or t.number in self.kept or self.onlyReader(t) is not None:
            return None
        (y,) = gelu.outs
        if not y.dtype == t.dtype == call.outs[0].dtype or y.strides != t.strides:
            return None
        function = FusedProduct([*calls, gelu], ("bias",) * len(operands), ("kept",), activation="gelu")
        return inPlaceOf(call, function, operands, [y, t])

    def withGeluGrad(self, call: Call) -> Call | None:
        """A product that is the gradient of a GELU's output, and the gradient of its input, as one call."""
        (dy,) = call.outs
        back = self.onlyReader(dy)
        others = [] if back is None else [v for v in back.values() if v is not dy]
        if back is None or len(others) != 1:
            return None
        (t,), dt = others, back.outs[0]
        if formulaOf(back, {t.number: "t", dy.number: "grad"}) != GELUGRAD:
            return None
        if not dt.dtype == t.dtype == dy.dtype or t.base is not None or not dt.strides == t.strides == dy.strides:
            return None
        return inPlaceOf(call, FusedProduct([call, back], ("kept",), back="gelu"), [t], [dt])

    def withBiasGrad(self, call: Call) -> Call | None:
        """The gradient of weights and that of the bias, a sum of rows of the same factor, as one call."""
        (dW,), g = call.outs, call.arguments[1]
        for total in self.readers.get(g.root.number, ()):
            isSum = total.function is np.sum and total.arguments[0] is g and not total.options.get("keepdims")
            if isSum and g.ndim == 2 and total.options.get("axis") in (0, (0,)) and total.outs[0].dtype == dW.dtype:
                if self.order[id(total)] > self.order[id(call)]:
                    function = FusedProduct([call, total], (), ("total",), of="b")
                    return inPlaceOf(call, function, [], [dW, total.outs[0]])
        return None

    def biasOf(self, add: Call, call: Call) -> Value | None:
        """The bias added to each row of a product, if it is computed before the product; otherwise None."""
        (t,) = call.outs
        others = [v for v in add.values() if v is not t]
        if add.function is not np.add or len(others) != 1 or others[0].dtype != t.dtype:
            return None
        (bias,) = others
        isEarlier = self.births.get(bias.root.number, -1) < self.order[id(call)]
        isRow = bias.ndim > 0 and bias.size == bias.shape[-1] == t.shape[-1] and add.outs[0].shape == t.shape
        return bias if isEarlier and isRow and flat(bias) is not None else None


def inPlaceOf(call: Call, function: FusedProduct, operands: list[Value], outs: list[Value]) -> Call:
    """The call that replaces a product; it reads the factors and other operands."""
    return Call(function, (*call.arguments, *operands), {}, outs, "launch", function.calls[-1].origin, True)


def formulaOf(call: Call, names: dict[Any, str]) -> Formula | None:
    """The formula of a call, with Values named by number; None if it reads other Values or has several results."""
    if not hasattr(call.function, "terms") or len(call.outs) != 1:
        return None
    (formula,) = formulasOf(call.function)
    operands = dict(zip(call.function.names, call.arguments))
    numbers = {name: getattr(operands[name], "number", None) for name in formula.names}
    if not all(number in names for number in numbers.values()):
        return None
    return formula.put(**{name: names[number] for name, number in numbers.items()})
