"""What of a program is left to numpy, and why: the step, its node, and the pass that could have taken it."""

from puregraph.compile.lower.registry import isLowered
from puregraph.ops.ir.value import Value


def leftToNumpy(program):
    """The steps that numpy, or a rule itself, carries out, with the reason for each; a text if there is no program."""
    if program.executable is None:
        return program.why
    plan = program.plan
    calls = [c for c in plan.schedule.calls if c.kind.name not in ("native", "view", "host")]
    why = reason if program.backend.name != "numpy" else lambda call: "backend: 'numpy' lowers no calls"
    return [f"{c.name} {where(c)}: {why(c)}" for c in calls] + [copied(plan, *pair) for pair in plan.copies]


def where(call):
    """The node of a call, and what it reads."""
    values = ", ".join(described(v) for v in call.values())
    origin = call.origin
    return f"at {origin.path!r} ({origin.label}, {origin.phase}) of {values or 'nothing'}"


def described(v):
    """A value as dtype, shape and strides."""
    return f"{v.dtype}{list(v.shape)} strides {list(v.strides)}" if isinstance(v, Value) else repr(v)


def reason(call):
    """Which pass left a call as it is, and why."""
    kind = call.kind
    if kind.isOpaque:
        return f"trace: its rule could not be traced ({call.function.reason}), so it is called whole"
    if kind.isElementwise or kind.isReduction:
        return "fuse: no group took it, or lower gave the group back: its dtype, or how its elements are stored"
    if kind.isStore:
        return (
            "lower: native code copies no elements of this dtype, or no call reads the target, whose memory is unknown"
        )
    if kind.isContraction or isLowered(call.function):
        return "lower: what lowers it returned None for these dtypes, shapes and strides"
    return "lower: no lowering is registered for it (puregraph.compile.lower.registry.lowers)"


def copied(plan, target, value):
    """Why a result is copied to its target after the step."""
    last = [c.name for c in plan.schedule.calls if any(v.root.number == value.root.number for v in c.values())]
    return (
        f"copy to {type(target).__name__} of {described(value)}: plan: it is not computed in the memory of the target: the "
        f"old value is read later, the new one is a view, or it is stored in another target, too; read by {', '.join(last) or 'nothing'}"
    )
