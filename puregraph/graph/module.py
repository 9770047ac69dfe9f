"""Module: parameters and rules. It holds no activations, so one Module may stand at many Nodes."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from functools import cache
from inspect import getattr_static
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.accumulate import isArray, needPlain, seedLike, shapeOf
from puregraph.core.applied import Applied
from puregraph.core.arguments import Flag, Number, checked, takes
from puregraph.core.base.dtype import inferredType, isFloating, isNumeric
from puregraph.core.base.keywords import KeepsInitArgs
from puregraph.core.errors import DtypeError, GraphError, PuregraphError, UnknownAttributeError, need, plural
from puregraph.core.linkednode import checkName, nodeInstead
from puregraph.core.param import DerivedKind, Param, State, Stored, successorText
from puregraph.core.parameterized import Parameterized
from puregraph.core.shape import asShape, asValue, fits, product, valueOf
from puregraph.core.tracer import tracerOf
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from typing_extensions import Self

    from puregraph.core.dim import Size
    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import Rule

Shape = tuple[Any, ...]
PARAMETER = (
    Stored,
    DerivedKind,
    type(None),
)  # valid values of a parameter attribute: None is an omitted one
OFPARAMS = "it belongs to parameters: set it on each of net.params.values(), or learnRate on the optimizer"
OFARRAYS = "an array of parameters is set by its name, such as fc.{}.data"


class Inputs(NamedTuple):
    """The inputs of a module: their names in order, the optional ones, and True if there may be any number."""

    names: tuple[str, ...]
    optional: tuple[str, ...] = ()
    variadic: bool = False

    def order(self, named: dict[str, Any], what: str, owner: str) -> list[Any]:
        """Values by input name, in the order of the inputs.

        Raises    GraphError for a missing or unknown name
        """
        if set(named) != set(self.names):
            wanted, names = ", ".join(self.names), ", ".join(map(str, named)) or "none"
            raise GraphError(f"{owner}: wanted a dict with {what} for each input ({wanted}), got {names}")
        return [named[name] for name in self.names]

    def fill(self, data: Any, owner: Node) -> list[Any]:
        """One value per input, from a single value, or a list for several inputs."""
        several = self.variadic or len(self.names) != 1
        values = list(data) if several and isinstance(data, (list, tuple)) else [data]
        required = len(self.names) - len(self.optional)
        if self.variadic or required <= len(values) <= len(self.names):
            return values + [None] * (0 if self.variadic else len(self.names) - len(values))
        raise GraphError(
            f"{owner}: wanted {plural(len(self.names), 'input')} ({', '.join(self.names)}), got {len(values)}"
        )


class Signature(NamedTuple):
    """The signature of `updateData`."""

    names: tuple[str, ...]
    optional: tuple[str, ...]
    variadic: str | None
    takesOut: bool


@cache
def signature(rule: Rule) -> Signature:
    """Return the signature of an `updateData`, which is read once."""
    positional, optional, variadic = [], [], None
    parameters = list(inspect.signature(rule).parameters.values())[1:]
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            variadic = p.name
        elif p.name != "out" and p.kind is p.POSITIONAL_OR_KEYWORD:
            positional.append(p.name)
            if p.default is not p.empty:
                optional.append(p.name)
    return Signature(tuple(positional), tuple(optional), variadic, any(p.name == "out" for p in parameters))


class LastCall:
    """The last call of a module on arrays. It is not a Node, which would make a reference cycle with the module."""

    __slots__ = ("data", "grad", "values")

    def __init__(self, values: Applied | None, data: AnyArray):
        self.values, self.data, self.grad = values, data, None


class KeepsLastCall:
    """A module that stores its last call on arrays; copies and files do not contain it."""

    lastCall: LastCall | None = None
    operator: str | None = None  # the ONNX operator that was read as this module alone

    @property
    def data(self) -> Any:
        """The output of the last call on arrays."""
        return self.lastCall.data if self.lastCall else None

    @property
    def grad(self) -> Any:
        """The gradient of the inputs from the last `backward`."""
        return self.lastCall.grad if self.lastCall else None

    def reset(self) -> None:
        """Forget the values of the last call."""
        self.lastCall = None

    def __getstate__(self) -> dict:
        return {**vars(self), "lastCall": None}


class Module(KeepsLastCall, KeepsInitArgs, Parameterized):
    """Parameters and rules, all pure functions of their arguments.

    A subclass writes `dataShapeFrom`, `updateData` and, unless its gradient comes from elsewhere, `updateGrad`.

    `reads`     names of the arguments and outputs whose data the gradient rule reads; None: all of them. Shapes and
                dtypes may always be read.
    `hidden`    names of hidden outputs, which `updateData` returns after the visible ones (a mask, pooling indices)
    `indices`, `masks`  names of the inputs that hold integers (labels, token ids), or booleans: they have no gradient
    `needsFloats`   if all other inputs must be floats, as with float parameters; `needsOneFloat`: of one dtype
    `keepsDtype`    if the output has the inputs' (promoted) dtype
    `isDiscrete`    if the outputs are integers or booleans, or depend only on such values: they pass no gradient
    `shapeInputs`   names of the integer inputs whose elements determine the output's shape
    `sharesSize`    if all sizes that depend on the data are equal
    `followsValues` if `valueFrom` computes elements without data: by `updateData` from the inputs' known elements
    `fractions` names of the inputs that hold numbers from 0 to 1, as is checked before a step, compiled or not
    `zeroBeyond` the name of the input with the time step (axis 1) from which the first output is 0
    `gives`     the kind of output, for a following cost: "probabilities", "no negatives", "features last" (along the
                last axis), "as taken" (same as the input); a cost `takes` "logits" or "scores"
    `edgeSlots` the outputs that an edge without slots carries; None: all
    `addedCost` the output, after the first, that is added to the cost of a network; 0 if there is none
    `views`     if the output is the first input, or a view of it, and so takes no memory
    `gradAliases`   if an input of the output's shape gets the output gradient itself
    `exchanges`     if a rule exchanges arrays with other processes; compiled steps call it directly. It is a forward
                rule with one output of the first input's dtype, or a gradient like the output gradient
    `flopsPerElement`   arithmetic operations of a forward pass per element of the first input; None: `flopsFrom`
    `isTraining`    the mode: `trainMode()` and `evalMode()` set it
    `precision` of compiled steps: `calcMode()` sets it; it is not saved in checkpoints
    """

    reads: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    needsFloats = needsOneFloat = False
    keepsDtype = False
    isDiscrete = False
    shapeInputs: tuple[str, ...] = ()
    sharesSize = False
    followsValues = False
    fractions: tuple[str, ...] = ()
    gives = ""
    zeroBeyond = ""
    edgeSlots: tuple[int, ...] | None = None
    addedCost = 0
    views = False
    gradAliases = False
    exchanges = False
    flopsPerElement: int | None = None
    updateGrad: Any = None
    options = ("trainable", "precision")
    elsewhere = {
        **dict.fromkeys(("lr", "rate", "learnRate", "learning_rate", "decay"), OFPARAMS),
        **dict.fromkeys(("requires_grad", "requiresGrad", "frozen", "is_trainable"), "set trainable"),
        **dict.fromkeys(("train", "training", "is_training", "eval"), "call trainMode() or evalMode()"),
        **dict.fromkeys(("weight", "weights", "kernel"), OFARRAYS.format("W")),
        **dict.fromkeys(("bias", "biases"), OFARRAYS.format("b")),
    }
    name: str | None = None  # the default if a constructor does not call `super().__init__(name)`
    isGraph = False  # True for a graph, which is flattened into steps
    unversioned = frozenset(("lastCall", "data", "grad"))

    def __init_subclass__(cls, **options: object) -> None:
        """Wrap constructors to check annotated arguments, and shape rules to receive symbols as Dims, not as texts."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        if "valueFrom" in vars(cls):
            cls.followsValues = True
        if "hiddenShapeFrom" in vars(cls):
            cls.hiddenShapeFrom = shapesAlone(cls.hiddenShapeFrom)  # type: ignore[method-assign]
        if "dataShapeFrom" in vars(cls):
            cls.dataShapeFrom = withDims(cls.dataShapeFrom)  # type: ignore[method-assign]

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        if args and not cls.isGraph and cls.__module__.startswith("puregraph.") and isinstance(args[0], (Node, list)):
            refuseNodes(cls, args)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, name: str | None = None):
        checkName(name)
        vars(self).update(name=name, lastCall=None)  # bypasses __setattr__, as the object is new

    # Rules ------------------------------------------------------------------------------------------------------------

    def dataShapeFrom(self, *shapes: Any, **options: Any) -> Any:
        """Infer the shape of the output (a list for several) from the input shapes.

        A size that depends on the data is None; `valueOf(shape)` has the elements that are known without data.

        Raises    ShapeError if they do not fit
        """
        raise NotImplementedError(missingRule(self, "shape rule", "dataShapeFrom(self, *shapes)"))

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        """Infer the dtype of the output (a list for several) from the input dtypes.

        By default the promoted dtype of floating inputs and parameters. None stands for an unknown dtype or an omitted
        input.

        Raises    DtypeError for an input that the rule refuses
        """
        return inferredType(self, dtypes)

    def valueFrom(self, *shapes: Any) -> AnyArray | None:
        """The elements of the output (a list where there are several) ahead of data, as an array; None: not known."""
        values = [None if s is None else valueOf(s) for s in shapes]
        if not self.followsValues or any(v is None and s is not None for v, s in zip(values, shapes)):
            return None
        return asValue(unpacked(self.updateData(*values)))

    def hiddenShapeFrom(self, *shapes: Any, **options: Any) -> list[Shape]:
        """The shape of each hidden output, by default that of the first input."""
        return [shapes[0] for _ in self.hidden]

    def hiddenTypeFrom(self, *dtypes: Any) -> list[Any]:
        """The dtype of each hidden output, by default the float of the visible ones; None if unknown."""
        visible = self.dataTypeFrom(*dtypes)
        floats = [d for d in (visible if isinstance(visible, list) else [visible]) if d is not None and isFloating(d)]
        return [floats[0] if floats else None] * len(self.hidden)

    def updateData(self, *arguments: Any, **options: Any) -> Any:
        """The output from the inputs and parameters; several, or hidden ones, as a tuple."""
        raise NotImplementedError(missingRule(self, "forward rule", "updateData(self, *arguments)"))

    def gradShapeFrom(self, gradShape: Any, *shapes: Shape) -> Any:
        """The shape of each input's gradient, which is the input's own, after checking the gradient that comes in.

        Raises    ShapeError if `gradShape` is not the shape of the output
        """
        wanted = self.dataShapeFrom(*shapes)
        need(fits(gradShape, wanted), f"a gradient of shape {wanted}", gradShape)
        return shapes[0] if len(shapes) == 1 else list(shapes)

    def flopsFrom(self, *shapes: Any, **options: Any) -> Size:
        """Arithmetic operations of one forward pass: by `flopsPerElement`, else one for each element of the output."""
        if self.flopsPerElement is not None:
            return self.flopsPerElement * product(shapes[0])
        out = self.dataShapeFrom(*shapes)
        return sum(product(s) for s in (out if isinstance(out, list) else [out]) if None not in s)

    # Inputs, outputs, parameters --------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The kind of module, for messages and default names."""
        return type(self).__name__

    @property
    def outputNames(self) -> tuple[str, ...]:
        """The names of the visible outputs."""
        return ("y",)

    @property
    def inputSpec(self) -> Inputs:
        """The arguments of `updateData` that are not parameters."""
        names, optional, variadic, _ = signature(type(self).updateData)
        attributes = vars(self)
        free = tuple([n for n in names if not isinstance(attributes.get(n, ""), PARAMETER)])
        if variadic is not None:
            return Inputs((*free, variadic), (), True)
        return Inputs(free, tuple([n for n in optional if n in free]) if optional else ())

    def checkAbsent(self, name: str, value: object) -> None:
        """Refuse anything but a parameter or state in place of an omitted one."""
        isLeftOut = name in vars(self) and name in signature(type(self).updateData).names
        if isLeftOut and not isinstance(value, PARAMETER):
            raise UnknownAttributeError(successorText(self, name, "parameter that was left out", value))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self.inputSpec.names

    @property
    def ruleNames(self) -> tuple[str, ...]:
        """The names of the parameters and states, in the order in which `updateData` takes them."""
        attributes = vars(self)
        return tuple(
            [n for n in signature(type(self).updateData).names if isinstance(attributes.get(n, ""), PARAMETER)]
        )

    def stateSizesFrom(self, *shapes: Any) -> dict[str, Any]:
        """The sizes of the symbols in the shapes of states, from the shapes of the inputs.

        A module whose states have symbols, such as State(("N", 8)), implements it: {"N": shapes[0][0]}.
        """
        raise NotImplementedError(f"{type(self).__name__} needs stateSizesFrom(*shapes) for the sizes of its states")

    @property
    def followers(self) -> list[State]:
        """The states whose shapes have symbols."""
        return [s for _, s in self.storedOf(State) if s.declared is not None]

    def followSizes(self, *shapes: Any) -> None:
        """Set the sizes of states with symbols by the shapes of the inputs.

        Raises    ShapeError if a state has other sizes from an earlier run
        """
        for state in self.followers:
            state.follow(self.stateSizesFrom(*shapes))

    def ruleParams(self) -> list[Param | State | None]:
        """The parameters and states that the rules take; None for one that was left out."""
        return [getattr(self, name) for name in self.ruleNames]

    def ruleValues(self) -> list[AnyArray | None]:
        return [None if p is None else p.materialize() for p in self.ruleParams()]

    def needs(self, inputs: list[Any], updGrad: bool = True, updParamGrads: bool = True) -> tuple[bool, ...]:
        """Per input and parameter: true if it gets a gradient."""
        if self.isDiscrete:
            return (False,) * (len(inputs) + len(self.ruleNames))
        names, indices = self.inputSpec.names, self.indices
        free = [
            updGrad and x is not None and names[min(i, len(names) - 1)] not in indices and isFloat(x)
            for i, x in enumerate(inputs)
        ]
        return (*free, *[updParamGrads and self.wants(p) for p in self.ruleParams()])

    # Use --------------------------------------------------------------------------------------------------------------

    def node(self, *parents: Any, name: str | None = None, rule: str | None = None, **keywords: Any) -> Node:
        """A Node that uses this module; parents are Nodes, `(node, slots)` or lists of those, keywords name inputs."""
        return Node(self, list(parents) or None, name, rule, keywords)

    def __call__(self, *data: Any, **keywords: Any) -> Any:
        """Run on arrays, or make a Node when called on Nodes."""
        if any(map(holdsNode, (*data, *keywords.values()))):
            return self.node(*data, **keywords)
        if keywords:
            raise GraphError(
                f"{type(self).__name__}: arrays are given by position; {', '.join(keywords)} by name goes with Nodes"
            )
        tracer = tracerOf(data)
        if tracer is not None:
            return tracer.handle(self, data, {})
        attributes = vars(self)  # bypasses __setattr__, for speed
        attributes["lastCall"] = None
        node = Node(self)
        node.updateData(list(data) if len(data) != 1 else data[0])
        attributes["lastCall"] = LastCall(node.values, node.made)
        return node.made

    @takes(updParamGrads=Flag, updGrad=Flag, scale=Number, momentum=Number)
    def backward(
        self,
        grad: Any | None = None,
        updParamGrads: bool = True,
        updGrad: bool = True,
        scale: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Back-propagate the last call: the gradient of the inputs is then in `grad`, of a parameter in its own.

        A parameter's gradient becomes scale * new + momentum * old. Without `grad`, the output must be one number.
        """
        if self.lastCall is None:
            raise PuregraphError(f"{type(self).__name__}: backward needs a call first")
        outputs = self.lastCall.data if isinstance(self.lastCall.data, list) else [self.lastCall.data]
        grad = checkGrads(grad, outputs, type(self).__name__)
        node = Node(self)
        node.values = self.lastCall.values
        node.pullBack(grad if len(outputs) > 1 else grad[0], updParamGrads, updGrad, scale, momentum)
        self.lastCall.grad = node.grad

    # Testing ----------------------------------------------------------------------------------------------------------

    @classmethod
    def examples(cls) -> Iterator[tuple[Module, list[Shape]]]:
        """Small constructions with input shapes, covering every option: what the generic harness runs."""
        raise NotImplementedError(
            f"{cls.__name__} has no examples: write a classmethod that yields (module, [input shapes]) for each option"
        )

    def sample(self, rng: np.random.Generator, *shapes: Shape) -> list[np.ndarray]:
        """Inputs to test with: standard normals, and zeros and ones for `indices`."""
        names = self.inputSpec.names
        return [
            rng.integers(0, 2, s) if names[min(i, len(names) - 1)] in self.indices else rng.standard_normal(s)
            for i, s in enumerate(shapes)
        ]


def missingRule(module: Module, kind: str, written: str) -> str:
    """The error text for a missing rule; hints at other frameworks' names for it."""
    foreign = next((name for name in ("forward", "call") if inspect.isfunction(getattr_static(module, name, None))), "")
    arguments = ", ".join(("self", "x", *module.params))
    hint = (
        f"; its {foreign} is updateData here, which gets arrays, inputs first: updateData({arguments})"
        if foreign
        else ""
    )
    return f"{type(module).__name__} has no {kind}: write {written}{hint}"


def unpacked(result: Any) -> Any:
    """A rule's result, with several outputs as a list."""
    return list(result) if type(result) is tuple else result


def withDims(rule: Rule) -> Rule:
    """Wrap a shape rule to accept symbols as plain texts."""

    @functools.wraps(rule)
    def shapeRule(self: Module, *shapes: Any, **options: Any) -> Any:
        return rule(self, *[asShape(s) if hasText(s) else s for s in shapes], **options)

    return shapeRule


def shapesAlone(rule: Rule) -> Rule:
    """Wrap a rule of hidden shapes to accept its old form, pairs of shape and dtype, with a warning."""

    @functools.wraps(rule)
    def hiddenShapes(self: Module, *shapes: Any, **options: Any) -> Any:
        results = rule(self, *shapes, **options)
        if any(isinstance(s, tuple) and len(s) == 2 and isinstance(s[0], tuple) for s in results):
            text = f"{type(self).__name__}.hiddenShapeFrom gives shapes alone now: give the dtypes in hiddenTypeFrom"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return [shape for shape, _ in results]
        return results

    return hiddenShapes


def hasText(shape: Any) -> bool:
    """True if a shape holds a symbol as plain text."""
    return isinstance(shape, tuple) and str in map(type, shape)


def isFloat(x: Any) -> bool:
    """True if a value can have a gradient; always true for bare shapes."""
    return not hasattr(x, "dtype") or isFloating(x.dtype)


def holdsNode(value: object) -> bool:
    """True for a Node, or a list or tuple with one inside.

    Raises    GraphError for a Module, which is no value
    """
    if isinstance(value, Module):
        raise GraphError(f"wanted Nodes or arrays, got the module {value!r:.60}{nodeInstead(value)}")
    return isinstance(value, Node) or isinstance(value, (list, tuple)) and any(map(holdsNode, value))


def refuseNodes(cls: type, args: tuple) -> None:
    """Refuse Nodes among constructor arguments, before these are checked.

    Raises    GraphError with an example of the correct call
    """
    nodes = list(takewhile(holdsNode, args))
    if nodes:
        rest = args[len(nodes) :]
        made = f"{cls.__name__}({', '.join(map(repr, rest))})"
        raise GraphError(
            f"{cls.__name__}: a node is no argument to make a module with, got {nodes[0]!r:.80}; "
            f"make the module, then call it: {made}({', '.join(map(str, nodes)):.60})"
        )


def checkGrads(grad: Any, outputs: list[Any], label: str) -> list[Any]:
    """Check one gradient per output, of its shape and dtype; for a single number it is optional and defaults to 1."""
    if grad is None and len(outputs) == 1 and shapeOf(outputs[0]) == ():
        return [seedLike(outputs[0])]
    grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
    if grad is None or len(grads) != len(outputs):
        count = "a gradient" if len(outputs) == 1 else f"a list of {len(outputs)} gradients"
        hint = "; after cost.backward(), cost.grad has one for each input of the cost: give cost.grad[0]"
        raise GraphError(f"{label}: backward wanted {count}, got {'none' if grad is None else len(grads)}{hint}")
    for g, y in zip(grads, outputs, strict=True):
        if type(g) is not np.ndarray or g.dtype.kind not in "fiub":
            needPlain(g, f"{label}: backward")
            if isArray(g) and isArray(y) and not isNumeric(g.dtype):
                raise DtypeError(f"{label}: backward wanted a gradient of {y.dtype}, got {g.dtype}")
        if g is not None and shapeOf(g) != shapeOf(y):
            need(False, f"a gradient of shape {shapeOf(y)}", shapeOf(g))
    return grads


def shapesOf(values: Any) -> list[Shape]:
    """Return the shapes of a single value, or a list for several."""
    many = isinstance(values, list) and all(isinstance(v, (tuple, list)) for v in values)
    return [asShape(v) for v in values] if many else [asShape(values)]
