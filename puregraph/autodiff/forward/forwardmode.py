"""Forward mode: directional derivatives and Hessian-vector products, from the existing rules.

    y, dy = jvp(net, x, v)               the derivative of the outputs along v
    y, gx, _ = vjp(net, x, u)            its transpose: the gradient of <u, y>
    y, hx, _ = hvp(net, x, v)            the Hessian of a single number, times v: forward over reverse

A Graph or Module is not changed: running statistics, random counters, the nodes' data and the parameters' `grad` stay.
Masks are those of the next call: `jvp(net, ...)` and then `net(...)` use the same ones.

`jvp` differentiates the forward rule, `hvp` the gradient rule. If a gradient deliberately differs from the derivative
(a straight-through `Function`, a rule named on a node), `jvp` returns the true derivative, `vjp` the custom gradient,
and `hvp` the derivative of the custom gradient.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.autodiff.forward.dual import Dual
from puregraph.autodiff.functionalcall import Pure
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.gradmode import enable_grad
from puregraph.autodiff.tape.variable import Variable, bare
from puregraph.core.accumulate import isArray, needPlain, seedLike
from puregraph.core.errors import AutoDiffException, need, plural
from puregraph.graph.module import Module, checkGrads, isFloat

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Derivatives(NamedTuple):
    """The function's value, and the derivatives with respect to inputs and to parameters by path.

    >>> result = vjp(lambda x: x * x, np.array([1.0, 2.0]), np.ones(2))
    >>> type(result).__name__, result.inputs
    ('Derivatives', array([2., 4.]))
    """

    value: Any
    inputs: Any
    params: dict[str, Any]


def jvp(
    function: Callable[..., Any], primals: Any, tangents: Any = None, params: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """Outputs, and their derivative along a direction: dy = J v, in one pass forward.

    `function` is a Graph, a Module, or a function of arrays; `primals` an array, or a list or tuple of them, and
    `tangents` a direction for each, None for no change. `params` gives parameters by path a direction of their own. An
    output of whole numbers has the tangent None.

    Shapes    tangents as primals, params as the parameters -> dy as y
    Source    Griewank, Walther 2008, Evaluating Derivatives, section 3.1
    Raises    ShapeError for a tangent of another shape; GraphError for an unknown path; AutoDiffException where
              something is used whose tangent is not known
    """
    xs, vs = beside(primals, tangents)
    with deeper() as level:
        if not isinstance(function, Module):
            if params:
                raise AutoDiffException(f"jvp: a function has no parameters of its own, got {', '.join(params)}")
            result = function(*dualsOf(xs, vs, level))
            return split(result, level)
        pure = Pure(function, xs)
        stored = pure.stored(direction(pure, params or {}, level))
        result = pure.outputs(pure.run(dualsOf(xs, vs, level), stored))
        return split(result[0] if len(result) == 1 else result, level)


def vjp(function: Callable[..., Any], inputs: Any, cotangents: Any = None, params: Any = ()) -> Derivatives:
    """The outputs, and the gradients of <u, y>: of the inputs, and of parameters by path; `params=True` means all.

    `function` is a Graph, a Module, or a function of arrays, which runs on Variables.
    `cotangents` is u, one per output; it is optional if the output is one number. Unlike `backward`, `vjp` also
    differentiates parameters in evalMode, and changes no state.

    Shapes    cotangents as the outputs -> gradients as inputs and parameters
    Source    Griewank, Walther 2008, Evaluating Derivatives, section 3.2
    Raises    ShapeError for a cotangent whose shape differs from its output's
    """
    xs = listOf(inputs)
    if not isinstance(function, Module):
        return taped(function, xs, inputs, cotangents)
    pure = Pure(function, xs)
    chosen = pure.named(pure.params if params is True else params)
    values = pure.run(xs)
    outputs = pure.outputs(values)
    inputGrads, grads = pure.pull(checkGrads(cotangents, outputs, pure.title), values, True, chosen.values())
    return Derivatives(
        oneOf(outputs, None),
        oneOf([orZeros(g, x) for g, x in zip(inputGrads, xs)], inputs),
        {path: orZeros(grads.get(id(p)), p.data) for path, p in chosen.items()},
    )


def hvp(
    function: Callable[..., Any], inputs: Any, vectors: Any = None, params: dict[str, Any] | None = None
) -> Derivatives:
    """Compute a scalar function's value and its Hessian-vector product: H v = d/dt grad f(x + t v).

    `function` is a Graph, a Module, or a function of arrays, which is differentiated twice on a tape.
    `vectors` has a direction for each input (None: constant), `params` maps parameter paths to directions. Pass one of
    them or both. The gradient runs on Duals, so it costs about two forward and two backward passes at any size.

    Shapes    vectors as inputs, params as the parameters -> products of the same shapes
    Source    Pearlmutter 1994, Fast Exact Multiplication by the Hessian, Neural Computation 6(1)
    Raises    AutoDiffException if the output is not one number, or a rule has no tangent
    """
    xs, vs = beside(inputs, vectors)
    if not isinstance(function, Module):
        return tapedTwice(function, xs, vs, inputs)
    pure = Pure(function, xs)
    chosen = pure.named(params or ())
    if vectors is None and not chosen:
        raise AutoDiffException("hvp: wanted a direction: vectors for the inputs, or params={path: vector}")
    with deeper() as level:
        stored = pure.stored(direction(pure, params or {}, level))
        values = pure.run(dualsOf(xs, vs, level), stored)
        outputs = pure.outputs(values)
        if len(outputs) != 1 or outputs[0].shape != ():
            shapes = ", ".join(str(y.shape) for y in outputs)
            raise AutoDiffException(f"hvp: wanted one number from {pure.title}, got {shapes}; put a cost at its end")
        seed = seedLike(valueOf(outputs[0], level))
        inputGrads, grads = pure.pull([seed], values, vectors is not None, chosen.values())
        products = None
        if vectors is not None:
            products = oneOf([orZeros(tangentOf(g, level), x) for g, x in zip(inputGrads, xs)], inputs)
        return Derivatives(
            valueOf(outputs[0], level),
            products,
            {path: orZeros(tangentOf(grads.get(id(p)), level), p.data) for path, p in chosen.items()},
        )


def jacobian(function: Callable[..., Any], x: AnyArray) -> Any:
    """dy/dx as one array, a column for each element of x; for small ones.

    Shapes    x (*a), y (*b) -> (*b, *a); for several outputs a list
    Source    Griewank, Walther 2008, Evaluating Derivatives, section 3.1
    """
    columns = [jvp(function, x, v)[1] for v in basis(x)]
    if columns and isinstance(columns[0], (list, tuple)):
        return [stacked(list(parts), x) for parts in zip(*columns)]
    return stacked(columns, x)


def hessian(function: Callable[..., Any], x: AnyArray) -> AnyArray:
    """d2f/dx2 of one number as one array, a column for each element of x; for small ones.

    Shapes    x (*a) -> (*a, *a)
    Source    Pearlmutter 1994, Fast Exact Multiplication by the Hessian, Neural Computation 6(1)
    """
    return stacked([hvp(function, x, v).inputs for v in basis(x)], x)


def basis(x: AnyArray) -> list[Any]:
    """The unit vectors in the shape of x."""
    vectors = []
    for i in range(x.size):
        v = np.zeros_like(x, shape=(x.size,))
        v[i] = 1
        vectors.append(v.reshape(x.shape))
    return vectors


def stacked(columns: list[AnyArray], x: AnyArray) -> AnyArray:
    """Return columns as one array: the axes of a column, followed by those of x."""
    if not columns:
        raise AutoDiffException("wanted an array with at least one element, got none")
    whole = np.stack(columns, axis=-1)
    return whole.reshape(whole.shape[:-1] + x.shape)


# ---- directions ---------------------------------------------------------------------------------------------


class _Depth(threading.local):
    """The nesting depth of differentiations in this thread."""

    level = 0


DEPTH = _Depth()


@contextmanager
def deeper() -> Any:
    """Enter one more nested differentiation, with its own level of Duals."""
    DEPTH.level += 1
    try:
        yield DEPTH.level
    finally:
        DEPTH.level -= 1


def listOf(inputs: Any) -> list[AnyArray | None]:
    """Inputs as a list of arrays; a number becomes an array without axes."""
    several = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return [np.asarray(x) if isinstance(x, (int, float)) else x for x in several]


def oneOf(results: list[Any], inputs: Any) -> Any:
    """Results in the form of the inputs: a list, or a single value."""
    return results if isinstance(inputs, (list, tuple)) or len(results) != 1 else results[0]


def beside(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
    """Return lists of values and of their tangents, after checking them."""
    xs = listOf(primals)
    vs = [None] * len(xs) if tangents is None else listOf(tangents)
    if len(vs) != len(xs):
        raise AutoDiffException(f"wanted a tangent for each of {plural(len(xs), 'input')}, got {len(vs)}")
    for i, (x, v) in enumerate(zip(xs, vs)):
        checkTangent(x, v, f"input {i}")
    return xs, vs


def checkTangent(x: Any, v: Any, name: str) -> None:
    """Check that a tangent has the shape of its value, which holds floats; both must be plain arrays."""
    needPlain(x, name)
    needPlain(v, f"the tangent of {name}")
    if v is None:
        return
    if not isArray(x) or not isFloat(x):
        raise AutoDiffException(f"{name} holds no floats, so that it cannot move: give None for its tangent")
    need(np.shape(v) == x.shape, f"a tangent of shape {x.shape} for {name}", np.shape(v))


def dualsOf(xs: Sequence[AnyArray], vs: Sequence[AnyArray | None], level: int) -> list[AnyArray]:
    """Pair values with their tangents as Duals; values without floats are returned unchanged."""
    return [moving(x, v, level) for x, v in zip(xs, vs)]


def moving(x: Any, v: Any, level: int) -> Any:
    """A value with its direction, as a Dual if it holds floats."""
    if not isArray(x) or x.dtype.kind != "f":
        return x
    return Dual(x, None if v is None else v.astype(x.dtype, copy=False), level)


def direction(pure: Pure, params: dict[str, Any], level: int) -> Callable[[Any, Any], Any]:
    """A function that makes Duals of parameters and states; only the named parameters have a tangent."""
    named = pure.named(params)
    vectors = {}
    for path, p in named.items():
        checkTangent(p.data, params[path], f"parameter {path!r}")
        vectors[id(p)] = params[path]
    return lambda stored, array: moving(array, vectors.get(id(stored)), level)


def split(result: Any, level: int) -> tuple[Any, Any]:
    """Split results into values and tangents."""
    if isinstance(result, (tuple, list)):
        parts = [split(y, level) for y in result]
        return type(result)([y for y, _ in parts]), type(result)([t for _, t in parts])
    y = valueOf(result, level)
    return y, orZeros(tangentOf(result, level), y) if isArray(y) and isFloat(y) else None


def valueOf(x: AnyArray, level: int) -> AnyArray:
    """Return the value of a Dual of this level; any other value unchanged."""
    return x.value if isinstance(x, Dual) and x.level == level else x


def tangentOf(x: AnyArray | None, level: int) -> AnyArray | None:
    """The tangent of a Dual of this level; nothing else has one."""
    return x.tangent if isinstance(x, Dual) and x.level == level else None


def orZeros(gradient: AnyArray | None, like: AnyArray | None) -> AnyArray | None:
    """The gradient, or zeros if it is None; None for values without floats."""
    if gradient is None and isArray(like) and isFloat(like):
        return np.zeros_like(like)
    return gradient


# ---- functions of arrays, on a tape -------------------------------------------------------------------------


def leaves(function: Callable[..., Any], xs: list[Any]) -> tuple[list[Variable], list[Variable], Any]:
    """A function's inputs as Variables, those that require a gradient, and the function's result."""
    vs = [Variable(x, requires_grad=isArray(x) and isFloat(x)) for x in xs]
    with enable_grad():
        result = function(*vs)
    return vs, [v for v in vs if v.requires_grad], result


def sideBySide(vs: list[Variable], gradients: Sequence[AnyArray | None]) -> list[AnyArray | None]:
    """One gradient per input: zeros where no output depends on it, None where it has none."""
    left = iter(gradients)
    return [orZeros(bare(next(left)), v.data) if v.requires_grad else None for v in vs]


def taped(function: Callable[..., Any], xs: list[Any], inputs: Any, cotangents: Any) -> Derivatives:
    """Compute `vjp` of a function of arrays."""
    vs, wanted, result = leaves(function, xs)
    grads = None if cotangents is None else listOf(cotangents)
    several = list(result) if isinstance(result, (list, tuple)) else [result]
    rows = [(y, None if grads is None else grads[i]) for i, y in enumerate(several) if y.requires_grad]
    gradients: Sequence[Any] = [None] * len(wanted)
    if rows:
        gradients = grad([y for y, _ in rows], wanted, grads and [g for _, g in rows], allow_unused=True)
    return Derivatives(bare(result), oneOf(sideBySide(vs, gradients), inputs), {})


def tapedTwice(
    function: Callable[..., Any], xs: list[AnyArray], directions: list[AnyArray | None], inputs: Any
) -> Derivatives:
    """Compute `hvp` of a function of arrays: the gradient of <v, gradient>."""
    vs, wanted, y = leaves(function, xs)
    if not isinstance(y, Variable) or y.shape != ():
        raise AutoDiffException(f"hvp: wanted one number from the function, got shape {np.shape(bare(y))}")
    first = grad(y, wanted, create_graph=True, allow_unused=True) if y.requires_grad else [None] * len(wanted)
    moving = [v for x, v in zip(vs, directions) if x.requires_grad]
    rows = [(g, v) for g, v in zip(first, moving) if v is not None and getattr(g, "requires_grad", False)]
    gradients: Sequence[Any] = [None] * len(wanted)
    if rows:
        gradients = grad([g for g, _ in rows], wanted, [v for _, v in rows], allow_unused=True)
    return Derivatives(bare(y), oneOf(sideBySide(vs, gradients), inputs), {})
