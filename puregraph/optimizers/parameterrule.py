"""ParameterRule: how one parameter and its state are updated, by formulas of elements or a function of arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import isNumber
from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.base.keywords import GIVESPARAMS, holdsParams
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.graph.rulecalls import formulaCall
from puregraph.ops.formula import Formula
from puregraph.optimizers.initrecorder import InitRecorder
from puregraph.optimizers.schedules import factorAt
from puregraph.optimizers.slot import Slot
from puregraph.optimizers.updateformulas import Texts, formulasOf, namesOf, scalarsAt, together

if TYPE_CHECKING:
    from puregraph.core.device import Array
    from puregraph.optimizers.averages import Average

Number = float | Callable[[int], float]
Constants = tuple[tuple[str, Any], ...]


class ParameterRule(InitRecorder):
    """The update of one parameter by the rule of a class; its settings are the attributes of `Optimizer`.

    Raises    TypeError for a class whose rule has no formula for param
    """

    rule: Any = {}
    scalars: Mapping[str, str | Callable[..., float]] = {}

    def __init__(
        self,
        learnRate: float,
        schedule: Callable[[int], float] | None,
        decay: Number,
        clipNorm: float | None,
        clipValue: float | None,
        maximise: bool = False,
        decoupled: bool = False,
        spare: str | None = None,
        average: Average | None = None,
    ):
        if not callable(self.rule) and "param" not in self.rule:
            raise TypeError(
                f"{type(self).__name__} has no update: write rule = {{..., 'param': 'a formula'}} in its class"
            )
        self.limits: dict[str, float] = {}  # below which options stay, by name
        self.learnRate = self.within("learnRate", learnRate)
        self.schedule = schedule
        self.decay = self.option("decay", decay)
        self.clipNorm = None if clipNorm is None else self.within("clipNorm", clipNorm)
        self.clipValue = None if clipValue is None else self.within("clipValue", clipValue)
        if clipNorm is not None and clipValue is not None:
            raise ArgumentError(f"{type(self).__name__}: wanted clipNorm or clipValue, got both")
        if average is not None and not callable(self.rule) and "average" in self.rule:
            raise ArgumentError(f"{type(self).__name__}: it keeps an average of its own; leave average out")
        self.maximise, self.decoupled, self.spare, self.average = maximise, decoupled, spare, average
        self.spared: frozenset[str] = frozenset()  # the paths of parameters that `spare` exempts from decay

    # Settings -------------------------------------------------------------------------------------------------

    def within(self, name: str, value: Any, limit: float = math.inf) -> Any:
        """Return a setting. Raises ArgumentError unless it is from 0 to below `limit`."""
        if not (isNumber(value) and 0 <= value < limit):
            bounds = "of at least 0" if limit == math.inf else f"from 0 to below {limit}"
            hint = f"; {GIVESPARAMS}" * holdsParams(value)
            raise ArgumentError(f"{type(self).__name__}: wanted {name} {bounds}, got {value!r:.200}{hint}")
        return value

    def option(self, name: str, value: Number, limit: float = math.inf) -> Any:
        """Return a setting from 0 to below `limit`, or a schedule of it: a function of the number of updates so far.

        Raises    ArgumentError for any other value
        """
        self.limits[name] = limit
        return value if callable(value) and not isinstance(value, type) else self.within(name, value, limit)

    def optionAt(self, name: str, value: Number, step: int) -> float:
        """Return an option after `step` updates, if its value is this number or schedule.

        Raises    ArgumentError if the schedule gives anything but a number within the limits of the option
        """
        return factorAt(value, step, name, self.limits.get(name, math.inf)) if callable(value) else value

    def rateAt(self, step: int) -> float:
        """Return the learning rate after `step` updates."""
        return self.learnRate * (1.0 if self.schedule is None else factorAt(self.schedule, step))

    def attributes(self) -> Constants:
        """Return the attributes that the rule names, with their values now: numbers, and schedules of numbers.

        Raises    ArgumentError for a name that is neither state nor an attribute
        """
        names, values = namesOf(self.texts), vars(self)
        if callable(self.texts[0]):
            names = tuple([name for name in names if name in values])
        try:
            return tuple([(name, getattr(self, name)) for name in names])
        except AttributeError:
            cls = type(self).__name__
            name = next(name for name in names if not hasattr(self, name))
            raise ArgumentError(
                f"{cls}: its rule names '{name}', which is neither state nor an attribute; assign it in the rule, as "
                f"in '{name}': 'a formula', or set self.{name} in __init__"
            ) from None

    def constants(self) -> Constants:
        """Return the attributes that the rule names and that are not schedules: a compiled step has them as numbers.

        Raises    ArgumentError for a name that is neither state nor an attribute
        """
        return tuple([(name, value) for name, value in self.attributes() if not callable(value)])

    def scheduled(self) -> dict[str, Callable[[int], float]]:
        """Return the attributes that the rule names and that are schedules."""
        return {name: value for name, value in self.attributes() if callable(value)}

    @property
    def optionSchedules(self) -> list[Callable[[int], float]]:
        """The settings that are schedules."""
        values = {**self.scheduled(), **{name: getattr(self, name) for name in self.limits}}
        return [value for value in values.values() if callable(value)]

    @CachedProperty
    def texts(self) -> tuple[Any, Texts]:
        """The rule and its scalars as hashable tuples of names and formulas; a rule that is a function as itself."""
        rule: Any = self.rule
        scalars = dict(self.scalars)
        rule = rule if callable(rule) else tuple(rule.items())
        if self.average is not None:
            rule, scalars = self.average.around(rule), {**scalars, **self.average.scalars}
        return rule, tuple(scalars.items())

    @property
    def countsSteps(self) -> bool:
        """True if the update depends on how many updates a parameter has had."""
        return "step" in namesOf(self.texts, every=True)

    @property
    def isElementwise(self) -> bool:
        """True if each element depends only on its own gradient and state, so that parts can be updated separately."""
        return not callable(self.rule)

    def decays(self, slot: Slot) -> bool:
        """True if a parameter has weight decay."""
        return bool(self.decay and slot.param.decay and slot.path not in self.spared)

    def noteSpared(self, slots: list[Slot]) -> None:
        """Record the parameters that `spare` exempts from weight decay: those of fewer than two axes."""
        few = [slot.path for slot in slots if len(slot.param.shape) < 2]
        self.spared = frozenset(few if self.spare is not None else ())

    # State ----------------------------------------------------------------------------------------------------

    def start(self, param: Array) -> dict[str, Array]:
        """Return the state arrays of a parameter before its first update, by name: zeros of its shape.

        A class whose rule is a function overrides this to return its state, of any shape; one with formulas, if its
        state does not begin at 0. `param` is the array of the parameter, in the dtype of the state.
        """
        return {} if callable(self.rule) else {name: np.zeros_like(param) for name in self.rule if name != "param"}

    def stateNames(self, slot: Slot) -> tuple[str, ...]:
        """Return the names of the state arrays of a parameter."""
        rule = self.texts[0]
        return (
            tuple(self.startAll(slot.blank()))
            if callable(rule)
            else tuple(dict.fromkeys([n for n, _ in rule if n != "param"]))
        )

    def startAll(self, param: Array) -> dict[str, Array]:
        """Return all state arrays of a parameter before its first update, including its average."""
        return self.start(param) if self.average is None else {**self.start(param), **self.average.start(param)}

    def storedNames(self, slot: Slot) -> tuple[str, ...]:
        """Return the names that a checkpoint stores for a parameter: its state arrays, and "step" if needed."""
        return (*self.stateNames(slot), *(["step"] if self.countsSteps else []))

    def prepare(self, slot: Slot) -> None:
        """Make the state arrays of a parameter if it has none yet.

        Raises    PuregraphError if the state is sharded over several processes
        """
        if slot.part is not None:
            raise PuregraphError(
                f"{type(self).__name__}: '{slot.path}' has its state in parts, each in another process, after training "
                "with shard; load what trainer.save wrote, which has all of it"
            )
        if not slot.arrays and not slot.step:
            slot.arrays.update(slot.begun(self))  # in place: slots for parts of a parameter share this dict

    # The update -----------------------------------------------------------------------------------------------

    def formulas(self, decays: bool) -> dict[str, Formula]:
        """Return the formulas of each state and of `param` after a step, in terms of the values before it.

        They name these arrays, `grad`, and the scalars of `numbers`. With `decays`, weight decay is included.
        """
        grad = "-grad" if self.maximise else "grad"
        if self.clipNorm is not None:
            grad = f"shrink * {grad}"
        elif self.clipValue is not None:
            grad = f"clip({grad}, -clipValue, clipValue)"
        decay = ("decoupled" if self.decoupled else "coupled") if decays else ""
        constants = tuple([(name, value) for name, value in self.attributes() if not callable(value)])
        return formulasOf(self.texts, constants, grad, decay)

    def numbers(self, slot: Slot, rate: float, shrink: float = 1.0, fewer: int = 0) -> dict[str, float]:
        """Return the scalars of a parameter's next update by name, as if it had had `fewer` fewer updates."""
        step, attributes = float(slot.step + 1 - fewer), self.attributes()
        decay = self.decay if slot.param.decay and slot.path not in self.spared else 0.0
        numbers = {"rate": rate * slot.param.rate, "shrink": shrink, "clipValue": self.clipValue or 0.0, "step": step}
        scheduled = [name for name, value in (*attributes, ("decay", decay)) if callable(value)]
        if scheduled:
            values, updates = {**dict(attributes), "decay": decay}, self.updates - fewer
            numbers |= {name: self.optionAt(name, values[name], updates) for name in scheduled}
            attributes = tuple([(name, numbers.get(name, value)) for name, value in attributes])
        numbers.setdefault("decay", decay)
        scalars = self.texts[1]
        if not scalars:
            return numbers
        return {**numbers, **scalarsAt(scalars, (*attributes, ("rate", numbers["rate"])), step)}

    @property
    def updates(self) -> int:
        """The number of updates before this one, for schedules of options."""
        return 0

    def numbersRead(self, decays: bool) -> set[str]:
        """Return the names of the scalars that an update by a function reads."""
        read = {"shrink"} if self.clipNorm is not None else {"clipValue"} if self.clipValue is not None else set()
        scalars = [name for name, _ in self.texts[1]]
        names = {"rate", "decay", "step", *scalars, *self.scheduled()} & set(namesOf(self.texts, every=True))
        return read | names | ({"decay", "rate"} if decays else set())

    def computed(self, values: Mapping[str, Any], decays: bool) -> Mapping[str, Any]:
        """Run a rule that is a function on arrays and numbers by name. Returns the new param and states by name.

        Raises    ArgumentError for an argument of the rule that is neither state nor an attribute
        """
        rule, grad, param = self.texts[0], values["grad"], values["param"]
        if self.maximise:
            grad = -grad
        if self.clipNorm is not None:
            grad = values["shrink"] * grad
        elif self.clipValue is not None:
            grad = np.clip(grad, -values["clipValue"], values["clipValue"])
        if decays and "decay" not in namesOf(self.texts, every=True):
            if self.decoupled:
                param = param - values["rate"] * values["decay"] * param
            else:
                grad = grad + values["decay"] * param
        known = {**dict(self.constants()), **values, "grad": grad, "param": param}
        arguments = inspect.signature(rule).parameters
        for name, argument in arguments.items():
            if name not in known and argument.default is argument.empty:
                raise ArgumentError(
                    f"{type(self).__name__}: its rule has an argument '{name}', which is neither state nor an "
                    f"attribute; have start(param) return it, or set self.{name} in __init__"
                )
        results = rule(**{name: known[name] for name in arguments if name in known})
        if "param" not in results:
            raise ArgumentError(f"{type(self).__name__}: wanted a dict with 'param' from its rule, got {list(results)}")
        return results

    def workDtype(self, arrays: Mapping[str, Any]) -> np.dtype:
        """Return the dtype in which an update is computed: float32, or float64 if an array has it."""
        return np.result_type(np.float32, *[array.dtype for array in arrays.values()])

    def advance(self, slot: Slot, rate: float, shrink: float = 1.0) -> None:
        """Update one parameter and its state, in place."""
        param = slot.param
        self.prepare(slot)
        arrays = {"param": param.materialize(), "grad": param.grad, **slot.arrays}
        numbers = self.numbers(slot, rate, shrink)
        slot.noteApplied(param.gradVersion)
        decays = self.decays(slot)
        if callable(self.rule):
            write = self.functionWriter(arrays, numbers, decays)
        else:
            formulas = self.formulas(decays)
            names, function = together(tuple(formulas.values()))
            values = {**arrays, **numbers}
            write = partial(
                formulaCall, function, [values[name] for name in names], [arrays[name] for name in formulas]
            )
        try:
            write()
        finally:
            param.bumpVersion()
        slot.step += 1

    def functionWriter(self, arrays: dict[str, Array], numbers: dict[str, float], decays: bool) -> Callable[[], Any]:
        """Run the rule as a function, and return the call that writes its results to the arrays."""
        dtype = self.workDtype(arrays)
        values: dict[str, Any] = {name: dtype.type(numbers[name]) for name in self.numbersRead(decays)}
        values |= {name: array.astype(dtype, copy=False) for name, array in arrays.items()}
        results = {name: array.copy() for name, array in self.computed(values, decays).items()}  # some may be views
        return partial(writeAll, [arrays[name] for name in results], list(results.values()))


def writeAll(arrays: list[Any], results: list[Any]) -> None:
    """Write each result to its array."""
    for array, result in zip(arrays, results):
        array[...] = result


def statesPerWeight(optimizer: Any) -> float:
    """Return the number of elements of state for each weight of a large matrix, for an optimizer or its class."""
    isClass, matrix = isinstance(optimizer, type), np.zeros((256, 256), np.float32)
    if isClass and not callable(optimizer.rule):
        return len(optimizer.rule) - 1
    states = (optimizer() if isClass else optimizer).startAll(matrix)
    return sum(array.size for array in states.values()) / matrix.size
