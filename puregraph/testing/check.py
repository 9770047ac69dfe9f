"""Checks of the contract that every Module satisfies: for the test suite and for your own modules.

    from puregraph import checkModule
    checkModule(Linear(3, 4), [(5, 3)])

Each check is a function of a `Case` and raises a CheckError whose message is a sentence about the module.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile import Program
from puregraph.core import device
from puregraph.core.applied import asGrads
from puregraph.core.arguments import ModuleLike, Shapes, Size, takes
from puregraph.core.base.dtype import dtypeNamed, isFloating
from puregraph.core.base.widen import forwardRule, gradRule
from puregraph.core.dim import Dim
from puregraph.core.errors import DtypeError, PuregraphError, ShapeError
from puregraph.core.param import Param
from puregraph.core.rules import gradientRule
from puregraph.core.shape import bind, fits, valued
from puregraph.graph import Graph
from puregraph.graph.inference import hiddenTypes
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.pointwise import Pointwise
from puregraph.ops.kernel import useFast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape

DIFFERENCE_STEP = (
    1e-6  # step of central differences in float64: the error is about the square of the step plus 1e-16 by the step
)
DTYPE_TOLERANCE = {
    "bfloat16": 5e-2,
    "float16": 2e-2,
    "float32": 1e-4,
}  # error against float64, relative to the largest value


class CheckError(PuregraphError, AssertionError):
    """A module violates the contract of modules."""


def expect(condition: object, sentence: str) -> None:
    """Raise a CheckError with a sentence unless a condition holds."""
    if not condition:
        raise CheckError(sentence)


class Case:
    """A module, shapes of its inputs, and data made from them; every run starts from the same states."""

    def __init__(self, module: Module, shapes: list[Shape], seed: int = 0, train: bool = True):
        self.rng = np.random.default_rng(seed)
        self.module = copy.deepcopy(module).calcMode(np.float64)
        self.module.isTraining = train
        self.shapes = [tuple(s) for s in shapes]
        self.label = f"{type(module).__name__} of {', '.join(map(str, self.shapes))}"
        self.inputs = [frozen(np.asarray(x)) for x in self.module.sample(self.rng, *self.shapes)]
        self.shapes = [
            valued(s, x) if name in module.shapeInputs else s
            for s, x, name in zip(self.shapes, self.inputs, self.inputNames)
        ]
        with device.useDevice("cpu"):  # the reference device
            for p in self.module.params.values():  # distinct values: zeros would hide mistakes
                p.data = device.toHost(p.data) + 0.5 * self.rng.standard_normal(p.shape)
            for s in self.module.states.values():
                s.data = device.toHost(s.data)
        self.states = {name: s.data.copy() for name, s in self.module.states.items()}

    @property
    def absent(self) -> int:
        """The number of omitted optional inputs."""
        spec = self.module.inputSpec
        return 0 if spec.variadic else max(0, len(spec.names) - len(self.inputs))

    @property
    def arguments(self) -> list[Any]:
        return [
            *self.inputs,
            *[None] * self.absent,
            *(
                None if p is None else frozen(p.data) if isinstance(p, Param) else p.data
                for p in self.module.ruleParams()
            ),
        ]

    @property
    def inputNames(self) -> list[str]:
        """The name of each input, including omitted ones; a variable number of inputs share a name."""
        names = self.module.arguments
        return [names[min(i, len(names) - 1)] for i in range(len(self.inputs) + self.absent)]

    @property
    def names(self) -> list[str]:
        return self.inputNames + list(self.module.ruleNames)

    @property
    def floats(self) -> list[int]:
        """The arguments that have a gradient: float inputs, and parameters."""
        if self.module.isDiscrete:
            return []
        params = [None] * (len(self.inputs) + self.absent) + self.module.ruleParams()
        return [
            i
            for i, (a, p, name) in enumerate(zip(self.arguments, params, self.names, strict=True))
            if a is not None
            and isFloating(a.dtype)
            and (i < len(self.inputs) or isinstance(p, Param))
            and name not in self.module.indices
        ]

    def restore(self) -> None:
        for name, values in self.states.items():
            getattr(self.module, name).data = values.copy()

    def run(self, arguments: list[AnyArray] | None = None) -> tuple:
        """All outputs, visible and hidden, from the same states each time."""
        self.restore()
        arguments = self.arguments if arguments is None else arguments
        if arguments is not None:
            states = self.module.ruleParams()
            count = len(self.inputs) + self.absent
            tail = arguments[count:]
            arguments = arguments[:count] + [
                t if p is None or isinstance(p, Param) else p.data for t, p in zip(tail, states, strict=True)
            ]
        result = forwardRule(self.module, arguments, len(self.inputs) + self.absent)
        return result if type(result) is tuple else (result,)

    def visible(self, outputs: tuple) -> list[AnyArray]:
        return list(outputs[: len(self.module.outputNames)])

    def seeds(self, outputs: tuple) -> list[AnyArray]:
        """A gradient for every visible output, the same each time."""
        rng = np.random.default_rng(1)
        return [frozen(np.asarray(rng.standard_normal(np.shape(y)), y.dtype)) for y in self.visible(outputs)]

    def gradients(
        self, outputs: tuple, needs: tuple[bool, ...] | None = None, values: list[Any] | None = None
    ) -> tuple:
        """Call the gradient rule."""
        needs = needs or tuple(i in self.floats for i in range(len(self.arguments)))
        rule = gradientRule(self.module, needs)
        seeds = self.seeds(outputs)
        values = [*self.arguments, *outputs] if values is None else values
        grads = gradRule(rule, seeds if len(seeds) > 1 else seeds[0], values)
        return asGrads(grads, len(self.arguments), type(self.module).__name__)


@cache
def floatTypes() -> list[Any]:
    """The float dtypes to check; bfloat16 only if `ml_dtypes` is installed."""
    try:
        return [np.dtype("e"), dtypeNamed("bfloat16"), np.dtype("f"), np.dtype("d")]
    except DtypeError:
        return [np.dtype("e"), np.dtype("f"), np.dtype("d")]


def frozen(array: AnyArray) -> AnyArray:
    """The array, read-only, so that a rule that writes to its arguments fails at that line."""
    array = np.array(array)
    array.flags.writeable = False
    return array


def shapeRule(case: Case) -> None:
    """The shape rule predicts the shapes of visible and hidden outputs."""
    outputs = case.run()
    said = case.module.dataShapeFrom(*case.shapes)
    said = said if isinstance(said, list) else [said]
    got = [tuple(np.shape(y)) for y in case.visible(outputs)]
    expect(fits(got, said), f"{case.label}: dataShapeFrom says {said}, updateData gives {got}")
    hidden = [(tuple(np.shape(y)), np.dtype(getattr(y, "dtype", object))) for y in outputs[len(got) :]]
    kinds = case.module.hiddenTypeFrom(*[x.dtype for x in case.inputs], *[None] * case.absent)
    declared = list(zip(map(tuple, case.module.hiddenShapeFrom(*case.shapes)), kinds, strict=True))
    said = f"{case.label}: hiddenShapeFrom and hiddenTypeFrom say {declared}"
    expect(declared == hidden, f"{said}, updateData gives {hidden}")
    flops = case.module.flopsFrom(*case.shapes)
    expect(isinstance(flops, (int, np.integer)) and flops >= 0, f"{case.label}: flopsFrom gives {flops!r}, not a count")


def symbols(case: Case) -> None:
    """A symbolic dimension is propagated: bound to a number, it gives the same shapes as the number."""
    sizes = sorted({s[axis] for s in case.shapes for axis in range(len(s))})
    wanted = case.module.dataShapeFrom(*case.shapes)
    for size in sizes:
        for axis in range(max(map(len, case.shapes), default=0)):
            trial = [
                s if axis >= len(s) or s[axis] != size else (*s[:axis], Dim("N"), *s[axis + 1 :]) for s in case.shapes
            ]
            if trial == case.shapes:
                continue
            try:
                got = case.module.dataShapeFrom(*trial)
            except ShapeError:
                continue
            bound = [
                tuple(None if d is None else bind((d,), {"N": size})[0] for d in s)
                for s in (got if isinstance(got, list) else [got])
            ]
            expect(
                bound == (wanted if isinstance(wanted, list) else [wanted]),
                f"{case.label}: with N for {size} the shape rule says {got}, which is not {wanted}",
            )
            case.module.flopsFrom(*trial)


def wrongShapes(case: Case) -> None:
    """For other shapes, the shape rule agrees with execution, or raises a ShapeError with the expected shapes."""
    for i, shape in enumerate(case.shapes):
        others = [shape[:-1], (*shape, 2), *(shape[:a] + (d + 1,) + shape[a + 1 :] for a, d in enumerate(shape))]
        for other in others:
            shapes = [*case.shapes[:i], other, *case.shapes[i + 1 :]]
            try:
                said = case.module.dataShapeFrom(*shapes)
            except ShapeError as error:
                expect(
                    error.faults[0].wanted and error.faults[0].given,
                    f"{case.label}: the ShapeError for {shapes} names no wanted or given",
                )
                continue
            except Exception as error:
                raise CheckError(
                    f"{case.label}: for {shapes} the shape rule raises {type(error).__name__} ({error}), not ShapeError"
                ) from error
            trial = Case(case.module, shapes, train=case.module.isTraining)
            try:
                got = [tuple(np.shape(y)) for y in trial.visible(trial.run())]
            except Exception as error:
                raise CheckError(
                    f"{case.label}: the shape rule accepts {shapes}, but updateData raises {error}"
                ) from error
            said = said if isinstance(said, list) else [said]
            expect(fits(got, said), f"{case.label}: for {shapes} dataShapeFrom says {said}, updateData gives {got}")


def gradient(case: Case) -> None:
    """Along a random direction in each argument, the gradient rule agrees with central differences in float64."""
    if getattr(case.module, "passesStraight", False):
        return
    outputs = case.run()
    seeds = case.seeds(outputs)
    grads = case.gradients(outputs)

    def loss(arguments: list[AnyArray]) -> float:
        return sum(float(np.sum(g * y)) for g, y in zip(seeds, case.visible(case.run(arguments)), strict=True))

    arguments = case.arguments
    for i in case.floats:
        expect(grads[i] is not None, f"{case.label}: the gradient rule gives None for argument '{case.names[i]}'")
        got, kept = (grads[i].dtype, grads[i].shape), (arguments[i].dtype, arguments[i].shape)
        expect(got == kept, f"{case.label}: the gradient of '{case.names[i]}' is {got}, the argument {kept}")
        for _ in range(3):
            direction = case.rng.standard_normal(arguments[i].shape)
            moved = [
                arguments[:i] + [frozen(arguments[i] + s * DIFFERENCE_STEP * direction)] + arguments[i + 1 :]
                for s in (1, -1)
            ]
            numeric = (loss(moved[0]) - loss(moved[1])) / (2 * DIFFERENCE_STEP)
            analytic = float(np.sum(grads[i] * direction))
            size = max(abs(numeric), abs(analytic), float(np.linalg.norm(grads[i])), 1e-2)
            rounding = 1e-12 * max(1.0, abs(loss(arguments))) / DIFFERENCE_STEP
            expect(
                abs(numeric - analytic) <= 1e-6 * size + rounding,
                f"{case.label}: the gradient of '{case.names[i]}' along a random direction is {analytic:.9g}, "
                f"central differences say {numeric:.9g}",
            )


def repeats(case: Case) -> None:
    """The same inputs and states give the same outputs and gradients, and a copy of the module gives them too."""
    first, second = case.run(), case.run()
    expect(same(first, second), f"{case.label}: two runs on the same inputs differ")
    expect(same(case.gradients(first), case.gradients(first)), f"{case.label}: two runs of the gradient rule differ")
    clone = copy.copy(case)
    clone.module = copy.deepcopy(case.module)
    expect(same(first, clone.run()), f"{case.label}: a deep copy of the module gives other results")


class Shadow:
    """An array without data, which a gradient rule gets in this check for a value that `reads` does not list."""

    def __init__(self, array: AnyArray, label: str):
        self.shape, self.dtype, self.ndim, self.size = array.shape, array.dtype, array.ndim, array.size
        self.label = label

    def __getattr__(self, name: str) -> Any:
        raise CheckError(self.label)

    def refuse(self, *args: object, **kwargs: object) -> Any:
        raise CheckError(self.label)

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __len__ = __iter__ = __bool__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = (
        refuse
    )
    __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = refuse


def readsIsTrue(case: Case) -> None:
    """The gradient rule reads no data of values that `reads` does not list."""
    if case.module.reads is None:
        return
    outputs = case.run()
    names = case.names + list(outputNamesOf(case.module))
    known = {*names, *case.module.arguments}  # arguments may be omitted
    for name in case.module.reads:
        expect(name in known, f"{case.label}: reads names {name!r}, which is none of {', '.join(dict.fromkeys(names))}")
    values = [
        v
        if v is None or n in case.module.reads
        else Shadow(v, f"{case.label}: the gradient rule reads '{n}', which `reads` does not list")
        for n, v in zip(names, [*case.arguments, *outputs], strict=True)
    ]
    expect(
        same(case.gradients(outputs), case.gradients(outputs, values=values)),
        f"{case.label}: without what `reads` leaves out, gradients differ",
    )


def outputNamesOf(module: Module) -> tuple[str, ...]:
    """The names of the visible outputs, then of the hidden ones."""
    return (*module.outputNames, *module.hidden)


def needsIsTrue(case: Case) -> None:
    """A gradient that is requested alone equals the one computed with all others."""
    outputs = case.run()
    full = case.gradients(outputs)
    for i in case.floats:
        alone = case.gradients(outputs, tuple(j == i for j in range(len(case.arguments))))
        expect(alone[i] is not None, f"{case.label}: with needs for '{case.names[i]}' alone its gradient is None")
        expect(
            same((alone[i],), (full[i],)),
            f"{case.label}: the gradient of '{case.names[i]}' changes when the others are not needed",
        )


def dtypeRule(case: Case) -> None:
    """For every input dtype, the dtype rule predicts the result's dtype, or raises a DtypeError."""
    module, count = case.module, len(case.inputs)
    for kind in [*map(np.dtype, np.typecodes["AllInteger"] + "?"), *floatTypes()] if module.isTraining else ():
        trial = copy.copy(case)
        trial.module = copy.deepcopy(module)
        if isFloating(kind):
            trial.module.calcMode(kind)
        isIndex = [name in module.indices for name in case.names[:count]]
        isIndex = [index or x.dtype.kind != "f" for index, x in zip(isIndex, case.inputs)]
        trial.inputs = [x if index else frozen(asKind(x, kind)) for x, index in zip(case.inputs, isIndex)]
        trial.states = {n: v.astype(getattr(trial.module, n).dtype) for n, v in case.states.items()}
        inputTypes = [x.dtype for x in trial.inputs]
        try:
            predicted = trial.module.dataTypeFrom(*inputTypes, *[None] * case.absent)
        except DtypeError as error:
            expect(not isFloating(kind), f"{case.label}: refuses {kind}: {error}")
            continue
        with np.errstate(all="ignore"):
            outputs = trial.run()
        predicted = [
            *(predicted if isinstance(predicted, list) else [predicted]),
            *hiddenTypes(trial.module, [*inputTypes, *[None] * case.absent]),
        ]
        for name, said, y in zip((*module.outputNames, *module.hidden), predicted, outputs, strict=True):
            gave = getattr(y, "dtype", None)
            expect(
                said is None or said == gave,
                f"{case.label}: of {kind}, its dtype rule says {said} for '{name}', updateData gave {gave}",
            )


def asKind(x: AnyArray, kind: object) -> AnyArray:
    """A sample in another dtype; for dtypes other than floats, converted to integers from 0 to 7."""
    return x.astype(kind) if isFloating(kind) else (np.abs(np.nan_to_num(x)) * 2 % 8).astype(kind)


def dtypes(case: Case) -> None:
    """In float32, float16 and bfloat16 the results keep the dtype and approximate the float64 results."""
    for dtype in floatTypes()[:-1]:
        trial = copy.copy(case)
        trial.module = copy.deepcopy(case.module)
        trial.module.calcMode(dtype)
        trial.inputs = [frozen(x.astype(dtype)) if x.dtype.kind == "f" else x for x in case.inputs]
        trial.states = {n: v.astype(getattr(trial.module, n).dtype) for n, v in case.states.items()}
        outputs = trial.run()
        reference = inDouble(trial, case.states)
        made = reference.run()
        wanted = (*reference.visible(made), *(reference.gradients(made)[i] for i in case.floats))
        said = trial.module.dataTypeFrom(*[x.dtype for x in trial.inputs], *[None] * trial.absent)
        kinds = [*(said if isinstance(said, list) else [said]), *[dtype] * len(case.floats)]
        got = (*trial.visible(outputs), *(trial.gradients(outputs)[i] for i in case.floats))
        names = [*case.module.outputNames, *(f"gradient of {case.names[i]}" for i in case.floats)]
        for name, kind, a, b in zip(names, kinds, got, wanted, strict=True):
            if b.dtype.kind != "f":
                continue
            expect(a.dtype == (kind or dtype), f"{case.label}: in {dtype} the {name} comes out as {a.dtype}")
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
            error = float(np.max(np.abs(a.astype(np.float64) - b), initial=0.0)) / scale
            expect(
                error <= DTYPE_TOLERANCE[dtype.name],
                f"{case.label}: in {dtype} the {name} is off by {error:.2g} of its largest value",
            )


def inDouble(case: Case, states: dict[str, Any]) -> Case:
    """The case in float64 with its data as rounded: rounding can make elements equal, or move them across a kink."""
    double = copy.copy(case)
    double.module = copy.deepcopy(case.module).calcMode(np.float64)
    double.inputs = [frozen(x.astype(np.float64)) if isFloating(x.dtype) else x for x in case.inputs]
    double.states = states
    return double


def extremes(case: Case) -> None:
    """A pointwise module is finite and correct at 0, +-1e-3, +-88 and +-1e4 in float32, forward and backward."""
    if not isinstance(case.module, Pointwise) or len(case.inputs) != 1 or case.module.isDiscrete:
        return
    points = np.array([0.0, 1e-3, -1e-3, 1.0, -1.0, 20.0, -20.0, 88.0, -88.0, 1e4, -1e4])
    results = []
    for dtype in (np.float64, np.float32):
        module = copy.deepcopy(case.module).calcMode(dtype)
        x = points.astype(dtype)
        if module.ruleValues():
            return
        y = module.updateData(x)
        (d,) = asGrads(gradientRule(module, (True,))(np.ones_like(x), x, y), 1, case.label)
        results.append((y, d))
    for a, b, what in zip(results[1], results[0], ("value", "derivative"), strict=True):
        with np.errstate(over="ignore"):  # overflow of float32 is not a fault
            limit = b.astype(np.float32)
        bad = [
            float(p)
            for p, u, v in zip(points, a, limit, strict=True)
            if np.isfinite(v) and not abs(u - v) <= 1e-5 * max(1e-3, abs(v))
        ]
        expect(not bad, f"{case.label}: its {what} in float32 is wrong at {bad}")
        expect(not np.isnan(b).any(), f"{case.label}: its {what} is NaN at {[float(p) for p in points[np.isnan(b)]]}")


def twoNodes(case: Case) -> None:
    """A module at two nodes gets the sum of both gradients; each input gets its own gradient."""
    if not case.module.isTraining:  # no parameter has a gradient in evalMode
        return
    arity = len(case.inputs)
    ins = [[Input(name=f"{side}{i}").node() for i in range(arity)] for side in "ab"]
    first, second = (Node(case.module, list(nodes), name) for nodes, name in zip(ins, ("first", "second"), strict=True))
    net = Graph(ins[0] + ins[1], [first, second])
    case.restore()
    outputs = net([*case.inputs, *case.inputs])
    seeds = [np.ones_like(y) for y in (outputs if isinstance(outputs, list) else [outputs])]
    net.backward(seeds if len(seeds) > 1 else seeds[0])
    both = {n: p.grad for n, p in case.module.params.items()}
    case.restore()
    total: dict[str, Any] = {}
    for half in (0, 1):
        alone = Graph(ins[half], first if half == 0 else second)
        result = alone(case.inputs)
        alone.backward([np.ones_like(y) for y in result] if isinstance(result, list) else np.ones_like(result))
        for n, p in case.module.params.items():
            total[n] = total.get(n, 0) + p.grad
    for n, grad in both.items():
        expect(
            grad is not None and np.allclose(grad, total[n], rtol=1e-10, atol=1e-12),
            f"{case.label}: at two nodes the gradient of '{n}' is not the sum of both",
        )


def evaluation(case: Case) -> None:
    """In evalMode nothing in the module changes, parameters get no gradient and inputs still do."""
    case.module.evalMode()
    try:
        before = {n: s.data.copy() for n, s in case.module.states.items()}
        params = {n: p.data.copy() for n, p in case.module.params.items()}
        for p in case.module.params.values():
            p.grad = None
        ins = [Input(name=f"i{i}").node() for i in range(len(case.inputs))]
        net = Graph(ins, Node(case.module, list(ins)))
        outputs = net(list(case.inputs))
        net.backward([np.ones_like(y) for y in outputs] if isinstance(outputs, list) else np.ones_like(outputs))
        for n, s in case.module.states.items():
            isDrawn = n == getattr(case.module, "draws", None) and getattr(case.module, "drawsAlways", False)
            expect(isDrawn or np.array_equal(s.data, before[n]), f"{case.label}: evalMode changes the state '{n}'")
        for n, p in case.module.params.items():
            expect(
                np.array_equal(p.data, params[n]) and p.grad is None,
                f"{case.label}: in evalMode '{n}' is changed or gets a gradient",
            )
        grads = net.grad if isinstance(net.grad, list) else [net.grad]
        for i in case.floats:
            if i < len(case.inputs):
                expect(grads[i] is not None, f"{case.label}: in evalMode input '{case.names[i]}' gets no gradient")
    finally:
        case.module.trainMode()


def compiled(case: Case) -> None:
    """The program that numpy carries out matches the graph to the last bit: outputs, gradients and states, twice."""
    ins = [Input(name=f"i{i}").node() for i in range(len(case.inputs))]
    net = Graph(ins, Node(case.module, list(ins)))
    case.restore()
    shapes, dtypes = [x.shape for x in case.inputs], [x.dtype for x in case.inputs]
    with useFast(False):  # native code would round in another order
        program = Program(net, shapes, dtypes, grads=(True,) * len(case.module.outputNames), poison=True)
        seeds = case.seeds(case.run())
        for _ in range(2):
            case.restore()
            net(list(case.inputs))
            net.backward(seeds if len(seeds) > 1 else seeds[0])
            wanted = stateOf(case, listed(net.data), listed(net.grad))
            case.restore()
            outputs = listed(program.run(*case.inputs, *seeds))
            actual = stateOf(case, outputs, listed(program.grad))
            for (what, a), (_, b) in zip(wanted, actual, strict=True):
                isSame = a is b if a is None or b is None else alike(a, b)
                expect(isSame, f"{case.label}: compiled, {what} is another")


def stateOf(case: Case, outputs: list[AnyArray], grads: list[AnyArray]) -> list[tuple[str, Any]]:
    """The results of a pass, with names."""
    named = [(f"output {i}", y) for i, y in enumerate(outputs)]
    named += [(f"the gradient of input {i}", g) for i, g in enumerate(grads[: len(case.inputs)])]
    named += [(f"the gradient of '{name}'", p.grad) for name, p in case.module.params.items()]
    return named + [(f"'{name}'", s.data.copy()) for name, s in case.module.states.items()]


def listed(value: Any) -> list[AnyArray]:
    """A value, or several, as a list."""
    return value if isinstance(value, list) else [value]


def alike(a: AnyArray, b: AnyArray) -> bool:
    """True if two arrays are equal to the last bit."""
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def onDevice(case: Case) -> None:
    """On a GPU, values and gradients match the CPU's."""
    if device.name() != "cuda":
        return
    reference = case.run()
    wanted = (*case.visible(reference), *(case.gradients(reference)[i] for i in case.floats))
    module = copy.deepcopy(case.module)
    for stored in (*module.params.values(), *module.states.values()):
        stored.data = device.toDevice(stored.data)
    case.restore()
    arguments = [None if a is None else device.toDevice(np.array(a)) for a in case.arguments]
    result = module.updateData(*arguments)
    outputs = result if type(result) is tuple else (result,)
    seeds = [device.toDevice(np.array(s)) for s in case.seeds(reference)]
    rule = gradientRule(module, tuple(i in case.floats for i in range(len(arguments))))
    grads = asGrads(rule(seeds if len(seeds) > 1 else seeds[0], *arguments, *outputs), len(arguments), case.label)
    got = (*outputs[: len(module.outputNames)], *(grads[i] for i in case.floats))
    for a, b in zip(got, wanted, strict=True):
        expect(device.isDeviceArray(a), f"{case.label}: a result leaves the GPU")
        expect(
            np.allclose(device.toHost(a), b, rtol=1e-9, atol=1e-10),
            f"{case.label}: the GPU gives other values than the CPU",
        )


def same(a: Any, b: Any) -> bool:
    """True if arrays are equal; contexts of Functions only have to exist."""
    return all(
        type(u) is type(v) and (not hasattr(u, "dtype") or np.array_equal(u, v, equal_nan=True))
        for u, v in zip(a, b, strict=True)
    )


CHECKS: list[Callable[[Case], None]] = [
    shapeRule,
    symbols,
    wrongShapes,
    gradient,
    repeats,
    readsIsTrue,
    needsIsTrue,
    dtypes,
    dtypeRule,
    extremes,
    twoNodes,
    evaluation,
    compiled,
    onDevice,
]


@takes(module=ModuleLike, shapes=Shapes, seed=Size)
def checkModule(module: Module, shapes: list[Any], seed: int = 0) -> None:
    """Run every check on a module with inputs of the given shapes.

    Raises    CheckError, a sentence about the first promise that is broken
    """
    for check, train in itertools.product(CHECKS, (True, False)):
        with device.useDevice(device.name() if check is onDevice else "cpu"):
            check(Case(module, shapes, seed, train))


@takes(graph=ModuleLike, shapes=Shapes, seed=Size)
def checkGraph(graph: Graph, shapes: Sequence[object], seed: int = 0) -> list[tuple[str, str]]:
    """Check every node of a graph at its shapes: a list of (path, problem), empty if there is none."""
    problems = []
    for row in graph.inferShapes(list(shapes)):
        if row.fault is not None:
            problems.append((row.step.path, str(row.fault)))
        elif row.shapes is not None:
            try:
                checkModule(row.step.module, [s for s in row.inshapes if s is not None], seed)
            except CheckError as error:
                problems.append((row.step.path, str(error)))
    return problems
