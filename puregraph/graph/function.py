"""Function: a user's own differentiable operation, written as two static methods around a context."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.accumulate import differentiable, isArray, isValue, needPlain, shapeOf, zeroLike
from puregraph.core.base.align import readOnly
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.errors import AutoDiffException, GraphError, PuregraphError, plural
from puregraph.core.late import Late
from puregraph.core.tracer import tracerOf
from puregraph.graph.module import Inputs, Module
from puregraph.graph.node import Node


class Context:
    """The values that one use of a Function saves for its gradient; contexts are not shared between uses.

    `form` has the inputs as passed: by position or name, with Variables inside, or with holes for a graph's nodes.
    """

    flows = True  # may be passed from a forward graph to a separate backward graph

    def __init__(self, needs: tuple[bool, ...], form: tuple = ()):
        self.needs_input_grad, self.form = needs, form
        self.saved: tuple = ()
        self.outputs: tuple = ()
        self.dead: tuple = ()
        self.materializes = True

    def save_for_backward(self, *values: Any) -> None:
        """Keep values for `backward`."""
        self.saved = values

    @property
    def saved_variables(self) -> tuple:
        """The values saved by `save_for_backward`."""
        return self.saved

    @property
    def saved_tensors(self) -> tuple:
        """The same as `saved_variables`, under PyTorch's name."""
        return self.saved_variables

    def mark_dirty(self, *inputs: Any) -> None:
        """Raise an error, because other nodes read the inputs."""
        raise AutoDiffException(
            "mark_dirty: an input is not written into; write into a copy, np.copy(x), and return it"
        )

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Name outputs that have no gradient."""
        self.dead = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Choose if `backward` gets zeros (the default) or None for an output that nothing depends on."""
        self.materializes = value

    def complete(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of the outputs as `backward` takes them."""
        if not self.materializes:
            return list(grads)
        pairs = zip(grads, self.outputs, strict=True)
        return [zeroLike(y) if g is None and differentiable(y) else g for g, y in pairs]


class FunctionType(ABCMeta):
    """The metaclass of Functions. A tape node is an instance of Function, and of the Function that made it."""

    def __instancecheck__(cls, value: object) -> bool:
        if not hasattr(type(value), "next_functions"):
            return super().__instancecheck__(value)
        function = getattr(value, "function", None)
        return cls is Function or isinstance(function, type) and issubclass(function, cls)


class Function(metaclass=FunctionType):
    """An operation with its own gradient.

        class Cube(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_variables
                return 3 * x**2 * grad

        y = Cube.node(x)

    Or `forward(*inputs)` without a context, and `setup_context(ctx, inputs, output)` beside it. An input may be a list
    of values, or come by keyword (keywords follow the others in `inputs`). `backward` takes one gradient per output and
    returns one per input, None where there is none, a list for a list; `ctx.needs_input_grad` says which are wanted.
    An output that is no Variable and cannot have a gradient, such as an integer, has None for one.
    `outputNames` names the outputs where there are several. `dataShapeFrom(*shapes)`, a static method too, says the
    output's shape; without it `forward` is tried once on zeros of the inputs' shapes.

    The same class serves in a graph, `Cube.node(x)`, and on Variables, `Cube.apply(x)`. Written with operators and
    functions of numpy it can be differentiated again.

    Shapes    as `dataShapeFrom` says
    Source    torch.autograd.Function, whose names afnio shares
    """

    apply: Any = Late("puregraph.autodiff.tape.functionapply", "applied")
    outputNames: tuple[str, ...] = ("y",)

    def __init__(self, *args: Any, **kwargs: Any):
        name = type(self).__name__
        raise RuntimeError(
            f"{name} should not be instantiated: use {name}.apply(...) on Variables, {name}.node(...) in a graph"
        )

    @staticmethod
    def forward(*args: Any) -> Any:
        """Return the output, or a tuple of outputs, from the context and inputs; without the context if there is a
        `setup_context`."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *inputs)")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple, output: Any) -> None:
        """Fill the context from inputs and output; writing it takes the context out of `forward`."""
        raise NotImplementedError("a Function may write setup_context(ctx, inputs, output)")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """Compute the gradient of each input from the output gradients."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads)")

    @classmethod
    def call(cls, ctx: Context, inputs: tuple, keywords: dict[str, Any] | None = None) -> Any:
        """Run `forward` with the context, or without it and then `setup_context`."""
        keywords = keywords or {}
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *inputs, **keywords)
        output = cls.forward(*inputs, **keywords)
        cls.setup_context(ctx, (*inputs, *keywords.values()), output)
        return output

    @classmethod
    def gradients(cls, ctx: Context, grads: Sequence[Any], form: tuple, isLeaf: Callable[[Any], bool]) -> list[Any]:
        """Run `backward`: one gradient per leaf of the inputs; `form` has their positions.

        Raises    AutoDiffException if the number of gradients differs from the number of inputs
        """
        newGrads = cls.backward(ctx, *ctx.complete(grads))
        newGrads = newGrads if type(newGrads) is tuple else (newGrads,)
        if len(newGrads) == len(form) and all(map(isLeaf, form)):
            return list(newGrads)
        spare = [not leavesOf(part, isLeaf) for part in form]
        if len(newGrads) < len(form) and all(spare[len(newGrads) :]):
            newGrads += (None,) * (len(form) - len(newGrads)) if any(map(isKeyword, form[len(newGrads) :])) else ()
        if len(newGrads) != len(form):
            raise AutoDiffException(
                f"{cls.__name__}.backward returned {plural(len(newGrads), 'gradient')}, expected {len(form)}: "
                "one per input of forward, None where there is none"
            )
        return [g for part, new in zip(form, newGrads) for g in alongside(part, new, isLeaf, cls.__name__)]

    @classmethod
    def node(cls, *parents: Any, name: str | None = None, **keywords: Any) -> Node:
        """Make a Node of this operation in a graph; all inputs other than Nodes are constants.

        Raises    GraphError for a Variable, which belongs to one pass
        """
        if tracerOf((*parents, *keywords.values())) is not None:
            raise GraphError(
                f"{cls.__name__}.node: wanted nodes and constants, got a Variable; use {cls.__name__}.apply"
            )
        nodes: list[Any] = []
        form = (*(holes(p, nodes) for p in parents), *(Keyword(k, holes(p, nodes)) for k, p in keywords.items()))
        isPlain = all(part is HOLE for part in form)
        return FunctionCall(cls, None if isPlain else form, name=name).node(*nodes)


class Hole:
    """The position of a node's value among the inputs of a Function."""

    def __repr__(self) -> str:
        return "_"

    def __reduce__(self) -> str:
        return "HOLE"


HOLE = Hole()


class Keyword(NamedTuple):
    """An input that was given by name."""

    name: str
    value: Any


def isHole(value: Any) -> bool:
    """True for a placeholder of a node's value."""
    return value is HOLE


def isKeyword(part: Any) -> bool:
    """True for an input passed by name."""
    return type(part) is Keyword


def holes(value: Any, nodes: list[Any]) -> Any:
    """Return an input with a hole in place of every Node, which is appended to `nodes`."""
    if isinstance(value, Node) or type(value) is tuple and len(value) == 2 and isinstance(value[0], Node):
        nodes.append(value)
        return HOLE
    return within(value, lambda v: holes(v, nodes))


def leavesOf(value: Any, isLeaf: Callable[[Any], bool]) -> list[Any]:
    """The leaves inside an input, which may be a list, a tuple or a dict of them, in order."""
    if isLeaf(value):
        return [value]
    if type(value) is Keyword:
        return leavesOf(value.value, isLeaf)
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return [leaf for part in parts for leaf in leavesOf(part, isLeaf)]


def alongside(value: Any, grad: Any, isLeaf: Callable[[Any], bool], label: str) -> list[Any]:
    """The gradients of the leaves inside an input, from a gradient of the same structure."""
    if isLeaf(value):
        return [grad]
    if type(value) is Keyword:
        return alongside(value.value, grad, isLeaf, label)
    leaves = leavesOf(value, isLeaf)
    if grad is None or not leaves:
        return [None] * len(leaves)
    parts = list(value.values()) if type(value) is dict else value
    grads = list(grad.values()) if type(grad) is dict else grad
    if not isinstance(grads, (list, tuple)) or len(grads) != len(parts):
        raise AutoDiffException(
            f"{label}.backward: an input that is a {type(value).__name__} of {len(parts)} wants a list of as many "
            f"gradients, or None; got {type(grad).__name__}"
        )
    return [g for part, gradient in zip(parts, grads) for g in alongside(part, gradient, isLeaf, label)]


def filled(value: Any, values: Iterator[Any]) -> Any:
    """An input with values in its holes."""
    if value is HOLE:
        return next(values)
    return within(value, lambda v: filled(v, values))


def copied(value: Any) -> Any:
    """Return an input with copies of its lists and dicts, so that later changes of these have no effect."""
    return within(value, copied)


def within(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the elements of an input that is a list, a tuple or a dict."""
    if type(value) is dict:
        return {key: change(v) for key, v in value.items()}
    return type(value)([change(v) for v in value]) if type(value) in (list, tuple) else value


def writeRefusal(error: ValueError, label: str, what: str) -> Exception:
    """Return an error of a Function, or one that explains that it wrote to an array that others read."""
    if "read-only" not in str(error):
        return error
    refusal = PuregraphError(f"{label} writes into {what}, which other nodes read: write into a copy, np.copy(x)")
    refusal.__cause__ = error
    return refusal


def outputsOf(function: type[Function], result: Any) -> tuple:
    """Return the outputs of `forward` in a graph as a tuple, checked.

    Raises    PuregraphError for a list or another object that is no value, and for another number than has names
    """
    outputs = result if isinstance(result, tuple) else (result,)
    label, names = function.__name__, function.outputNames
    for y in outputs:
        if not isValue(y):
            raise PuregraphError(resultText(label, y))
    if len(outputs) != len(names):
        raise PuregraphError(
            f"{label}.forward returned {plural(len(outputs), 'output')}, expected {len(names)} ({', '.join(names)}): "
            f"set outputNames in {label}, one name per output"
        )
    return outputs


def resultText(label: str, result: Any) -> str:
    """Return the message for a `forward` that returns an invalid value, such as a list of arrays."""
    kind = "None" if result is None else f"a {type(result).__name__}"
    return f"{label}.forward returned {kind}: return an array, or a tuple of arrays for several outputs"


def listText(label: str) -> str:
    """Return the message for a `backward` that returns a list in place of an array's gradient."""
    return f"{label}.backward returned a list: return an array, or a tuple with one gradient per input of forward"


class FunctionCall(Module):
    """y = f(x, ...): a Function as a Module. Its context is a hidden output, so nodes can share one Function.

    `form` has the positions of the node's inputs among those of the Function, if the Function has others, too.

    Shapes    as the Function's `dataShapeFrom` says
    Source    `Function`
    """

    hidden = ("context",)
    reads = ("context",)

    def __init__(self, function: type[Function], form: tuple | None = None, name: str | None = None):
        super().__init__(name)
        self.function, self.form = function, form

    @property
    def label(self) -> str:
        return self.function.__name__

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.function.outputNames

    @property
    def inputSpec(self) -> Inputs:
        return Inputs(("inputs",), (), True)

    def bound(self, values: Sequence[Any]) -> tuple[tuple, dict[str, Any]]:
        """The Function's inputs, by position and by keyword, from the node's inputs."""
        if self.form is None:
            return tuple(values), {}
        left = iter(values)
        parts = [
            part._replace(value=filled(part.value, left)) if isKeyword(part) else filled(part, left)
            for part in self.form
        ]
        return tuple(p for p in parts if not isKeyword(p)), {p.name: p.value for p in parts if isKeyword(p)}

    def dataShapeFrom(self, *shapes: Any) -> Any:
        rule = getattr(self.function, "dataShapeFrom", None)
        if rule is not None:
            return rule(*shapes)
        label = self.function.__name__
        if not all(isinstance(d, int) for s in shapes for d in s):
            raise PuregraphError(f"{label} has no shape rule for symbols: write a static method dataShapeFrom(*shapes)")
        arguments, keywords = self.bound([np.zeros(s, np.float32) for s in shapes])
        needs = (False,) * (len(arguments) + len(keywords))
        try:
            result = self.function.call(Context(needs), arguments, keywords)
        except Exception as error:
            if isAsynchronous(error):
                raise
            raise PuregraphError(
                f"{label} could not be tried on zeros to learn its shape ({error}): "
                "write a static method dataShapeFrom(*shapes)"
            ) from error
        outputs = [shapeOf(y) for y in outputsOf(self.function, result)]
        return outputs if len(outputs) > 1 else outputs[0]

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        """The dtypes by the function's rule; None without a rule."""
        rule = getattr(self.function, "dataTypeFrom", None)
        unknown = [None] * len(self.outputNames)
        return rule(*dtypes) if rule is not None else unknown if len(unknown) > 1 else None

    def hiddenShapeFrom(self, *shapes: Any) -> list:
        return [()]

    def hiddenTypeFrom(self, *dtypes: Any) -> list:
        return [np.dtype(object)]

    def updateData(self, *inputs: Any) -> tuple:
        views = list(map(readOnly, inputs))
        arguments, keywords = self.bound(views)
        form = self.form or (HOLE,) * len(inputs)
        context = Context((True,) * len(form), form)
        try:
            result = self.function.call(context, arguments, keywords)
        except ValueError as error:
            raise writeRefusal(error, f"{self.label}.forward", "an input")  # noqa: B904 - it has its cause
        originals = {id(view): x for view, x in zip(views, inputs)}  # an input that is returned unchanged
        context.outputs = tuple([originals.get(id(y), y) for y in outputsOf(self.function, result)])
        return (*context.outputs, context)

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        context = values[-1]
        form = self.form or (HOLE,) * len(needs)
        left = iter(needs)
        wanted = [list(islice(left, len(leavesOf(part, isHole)))) for part in form]
        context.needs_input_grad = tuple(map(any, wanted))
        grads = list(map(readOnly, grad if isinstance(grad, list) else [grad]))
        try:
            results = self.function.gradients(context, grads, form, isHole)
        except ValueError as error:
            raise writeRefusal(error, f"{self.label}.backward", "a gradient or a saved value")  # noqa: B904
        for g in results:
            needPlain(g, f"{self.label}.backward")
            if isinstance(g, list) and all(map(isArray, context.outputs)):
                raise AutoDiffException(listText(self.label))
        return tuple(results)

    def written(self, without: tuple[str, ...] = ()) -> str:
        return f"Call({self.function.__name__})"
