"""Loss scaling: multiply gradients that are stored in float16 by a factor, so that small ones do not underflow.

    d cost = scale,    grad = (d cost / d param) / scale

The scale of an optimizer is stored on the GPU. An update whose gradients are not finite is skipped, and halves it;
2,000 updates in a row double it (`predication`). A step that only accumulates gradients reads the scale, and the
later update changes it. Without an optimizer it is a constant.

Source    Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740, section 3.2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.passes.fusedoptimizer import FusedFormula
from puregraph.compile.gpu.runtime.updatestatus import statusOf
from puregraph.compile.trace.updaterule import UpdateScalars
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.ir.value import Call, CallOrigin, Value, changed

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

FLOAT = np.dtype(np.float32)
STEADY = 1024.0  # the scale without an optimizer
ORIGIN = CallOrigin("scale", "", (), "backward")


def scaleLoss(schedule: Schedule) -> Schedule:
    """Make the gradient of the cost equal to the scale, and divide the resulting gradients by it."""
    if schedule.seed is not None:
        LossScaling(schedule).run()
    elif schedule.scales:
        LossScaling(schedule).scale()
    return schedule


class LossScaling:
    """Rewrites the calls of one schedule."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        update = next((c.function for c in schedule.calls if type(c.function) is UpdateScalars), None)
        self.optimizer, self.updates = update.optimizer if update else schedule.owner, update is not None
        self.instead: dict[int, Value] = {}

    def run(self) -> None:
        schedule = self.schedule
        seed: Any = schedule.seed
        scale = self.scale() if seed.dtype == FLOAT else self.constant(1.0, seed.dtype)
        self.instead[seed.number] = scale
        grads = list({v.number: v for v in (*schedule.gradients, *schedule.inputGrads) if v is not None}.values())
        roots = {v.root.number for v in grads}
        made = [i for i, call in enumerate(schedule.calls) for y in call.outs if y is not None and y.number in roots]
        end = max(made, default=-1) + 1
        calls = [self.now(call) for call in schedule.calls[:end]]
        if seed.dtype == FLOAT:
            calls += self.unscaled(grads, scale)
        schedule.calls = calls + [self.now(call) for call in schedule.calls[end:]]
        schedule.inputGrads = [None if v is None else self.value(v) for v in schedule.inputGrads]
        schedule.paramGrads = [(p, self.value(v)) for p, v in schedule.paramGrads]
        schedule.stores = [(target, self.value(v)) for target, v in schedule.stores]

    # Values -----------------------------------------------------------------------------------------------------------

    def new(self, like: Value | None, **named: Any) -> Value:
        """A new Value: a scalar, or one like another Value."""
        self.schedule.count += 1
        if like is None:
            return Value(self.schedule.count, (), FLOAT, (), **named)
        return Value(self.schedule.count, like.shape, like.dtype, like.strides, name=like.name)

    def value(self, v: Value) -> Value:
        return self.instead.get(v.number, v)

    def now(self, call: Call) -> Call:
        """The call on replaced Values, or the call itself if none is replaced."""
        if not any(v.number in self.instead for v in call.values()):
            return call
        arguments = changed(call.arguments, self.value)
        options = {k: changed(a, self.value) for k, a in call.options.items()}
        outs = [self.viewed(y, arguments[0]) for y in call.outs] if call.kind.isView else call.outs
        replacement = Call(call.function, arguments, options, outs, call.kind, call.origin, call.several)
        for y in outs if call.kind.isView else ():
            y.call = replacement
        return replacement

    def viewed(self, y: Value, of: Value) -> Value:
        """The view y of its base, as a view of another Value with the base's layout."""
        new = self.instead[y.number] = self.new(y)
        new.base, new.offset = of.root, y.offset
        return new

    def constant(self, number: float, dtype: Any = FLOAT) -> Value:
        """A constant scalar."""
        self.schedule.count += 1
        return Value(self.schedule.count, (), dtype, (), "constant", source=np.array(number, dtype))

    def scale(self) -> Value:
        """The scale: a field of the optimizer's update status."""
        if self.optimizer is None:
            return self.constant(STEADY)
        status = statusOf(self.optimizer)
        status.scales, field = True, status.fields["scale"]
        scaleValue = self.new(None, role="state", name="scale", source=field)
        self.schedule.held = [*self.schedule.held, (field, scaleValue)]
        self.schedule.scale = scaleValue if self.updates else None
        return scaleValue

    # Calls ------------------------------------------------------------------------------------------------------------

    def unscaled(self, grads: list[Value], scale: Value) -> list[Call]:
        """Divide gradients by the scale, in one call if all are without gaps."""
        by = self.new(None, name="unscale")
        calls = [self.formula("1 / scale", {"scale": scale}, by)]
        ys = [self.new(v) for v in grads]
        call = FusedFormula("unscale", Formula("x * by"), ["by"]).call(grads, ys, ORIGIN, by)
        if grads and call.function.launches(call) is not NotImplemented:
            calls.append(call)
        else:
            calls += [self.formula("x * by", {"x": v, "by": by}, y) for v, y in zip(grads, ys)]
        self.instead |= {v.number: y for v, y in zip(grads, ys)}
        return calls

    def formula(self, text: str, operands: dict[str, Value], y: Value) -> Call:
        """A call of a formula."""
        y.call = Call(
            numpyFrom([Formula(text)], tuple(operands)), tuple(operands.values()), {}, [y], "pointwise", ORIGIN, True
        )
        return y.call
