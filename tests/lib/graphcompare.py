"""Comparing what is compiled: three steps of a graph by a program, by the graph itself, and by the graph in float64.

What a result may be off by is measured on the graph itself: how far it moves when inputs, parameters and what every
rule gives, forward and backward, are perturbed in their last bits. An element that moves much (a tie, a kink, terms that cancel) says nothing, and is
left out: so a tolerance follows the condition of the graph, and is never widened.

Where the same graph in float64 shows that a number overflows, or nearly does, the order of operations decides whether a sum
or product is finite, infinite or NaN: there a result may be any of these, or right, but no other number.
"""

import warnings
from functools import cached_property, partial, wraps
from typing import NamedTuple

import numpy as np
from graphspec import UnfitError, rebuilt
from perturbed import PerturbedArray, perturbed, plain

import puregraph
from puregraph import Max, Min
from puregraph.compile import Program
from puregraph.core import initial
from puregraph.core.errors import PuregraphError

MOVES = (
    (0, 0, False),
    (2, 1, False),
    *[(4, 4, False)] * 10,
    *[(2, 1, True)] * 10,
)  # how many passes in which everything moves by so many last bits, inside of rules too, one try after the other
FLOOR = 8  # in units of the last place of an array's largest number
LEAST = 0.01  # what an array's largest number is taken for where all are smaller, next to data about 1
ABOVE = 8  # times what a pass moves by
BLIND = 3e-3  # of an array's largest number: what moves by more says nothing
NEAR = 1024  # a number overflows nearly if so many times as much does: sums of terms that are no smaller may


class Failure(NamedTuple):
    """What is wrong: an exception while compiling or running, or a difference."""

    kind: str
    text: str


class Limits(NamedTuple):
    """What decides which numbers need not be finite where others are.

    `wide`    results in float64
    `padded`  names of gradients which a graph computes with zeros times what is not finite, NaN; a program leaves padding out
    """

    wide: dict = {}
    padded: frozenset = frozenset()


class Comparison:
    """A spec with its data."""

    steps = 3

    def __init__(self, spec, rules):
        self.spec, self.rules = spec, rules
        found = rebuilt(spec, rules)
        rng = np.random.default_rng(spec.seed)
        self.params = {path: rng.normal(size=p.shape) * 0.5 + isScale(path) for path, p in found.graph.params.items()}
        shapes = [found.shapes[i][slot] for i, slot in spec.outputs]
        self.data = [
            [drawn(rng, line.shape, found.limits.get(i)) for i, line in enumerate(spec.lines) if i in spec.sources]
            for _ in range(self.steps)
        ]
        self.seeds = [
            [rng.standard_normal(s) if given else None for s, given in zip(shapes, spec.given, strict=False)]
            for _ in range(self.steps)
        ]
        self.optimizer = spec.optimizer

    def built(self):
        """The graph of the spec."""
        return rebuilt(self.spec, self.rules).graph

    def graph(self, dtype, noise=None, isInside=False):
        """The graph with its parameters, an optimizer or None, and data for its inputs of noise."""
        initial.seed(self.spec.seed)
        graph = self.built().calcMode(dtype)
        for path, p in graph.params.items():
            p.data = moved(self.params[path], noise).astype(dtype)
        _ = graph.trainMode() if self.spec.train else graph.evalMode()
        name, _, rest = self.optimizer.partition("(")
        if not graph.params:
            self.optimizer = name = ""
        optimizer = optimizerOf(name, rest).setupOn(graph) if name else None
        if noise is not None:
            for module in {step.module for step in graph.steps().items}:
                shake(module, noise, isInside)
        return graph, optimizer

    def given(self, step, dtype, noise=None):
        """The data and the gradients of the outputs of a step."""
        return [
            [x if x is None or x.dtype.kind != "f" else moved(x, noise).astype(dtype) for x in arrays]
            for arrays in (self.data[step], self.seeds[step])
        ]

    def eagerly(self, dtype, noise=None, isInside=False):
        """What the graph's own passes give."""
        graph, optimizer = self.graph(dtype, noise, isInside)
        found = {}
        for step in range(self.steps):
            data, seeds = self.given(step, dtype, noise)
            for p in graph.params.values():
                p.grad = None
            outputs, grads = listed(graph(data)), []
            if seeds:
                graph.backward(seeds if len(seeds) > 1 else seeds[0])
                grads = listed(graph.grad)
            if optimizer is not None:
                if all(p.grad is None for p in graph.params.values()):
                    self.optimizer, optimizer = "", None
                else:
                    found |= taken(graph, step, outputs, grads)
                    optimizer.update()
            found |= taken(graph, step, outputs, grads)
        return found | left(graph)

    def compiled(self, dtype):
        """The same by a program."""
        graph, optimizer = self.graph(dtype)
        found = {}
        data, seeds = self.given(0, dtype)
        options = {"grads": self.spec.given} if seeds else {}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            program = Program(
                graph, [x.shape for x in data], [x.dtype for x in data], optimizer=optimizer, poison=True, **options
            )
            for step in range(self.steps):
                data, seeds = self.given(step, dtype)
                for p in graph.params.values():
                    p.grad = None
                outputs = listed(program.run(*data, *(g for g in seeds if g is not None)))
                found |= taken(graph, step, outputs, listed(program.grad) if seeds else [])
            if program.executable is None:
                raise RuntimeError(f"not compiled: {program.why}")
        return found | left(graph)

    def failure(self):
        """What is wrong, or None.

        Raises    UnfitError if the graph itself cannot run
        """
        dtype = np.dtype(self.spec.dtype)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                eager = self.eagerly(dtype)
            except PuregraphError as error:
                raise UnfitError(str(error)) from error
            except Exception as error:
                return Failure(
                    f"eager {type(error).__name__}", f"the graph itself raises {type(error).__name__}: {error}"
                )
            try:
                found = {"difference": self.compiled(dtype)}
            except Exception as error:
                return Failure(type(error).__name__, f"{type(error).__name__}: {error}")
            found |= self.references(eager, dtype)
            others, limits = {precision: [] for precision in map(self.precision, found)}, Limits()
            for count, width, isInside in MOVES:
                for precision, passes in others.items():
                    passes += self.around(precision, count, width, isInside, first=len(passes))
                wrong = {
                    kind: differences(results, eager, others[p := self.precision(kind)], p, limits)
                    for kind, results in found.items()
                }
                if not any(wrong.values()):
                    return None
                limits = self.limits
        kind, text = next((kind, text) for kind, text in wrong.items() if text)
        return Failure(kind, "; ".join(text))

    def precision(self, kind):
        """The dtype in whose last bits results of a kind may be off."""
        return np.dtype(self.spec.dtype)

    def references(self, eager, dtype):
        """The same results by other means, by the kind of failure that a difference is."""
        return {"float64": self.eagerly(np.dtype("float64"))}

    @cached_property
    def limits(self):
        """What is known only of numbers that are not finite."""
        return Limits(self.wide(), self.padded())

    def wide(self):
        """The results in float64, which hold what overflows in float32."""
        return self.eagerly(np.dtype("float64"))

    def padded(self):
        """The names of the gradients of weights that a convolution multiplies by padding."""
        graph, _ = self.graph(np.dtype(self.spec.dtype))
        modules = {step.module for step in graph.steps().items if np.any(getattr(step.module, "pad", 0))}
        weights = {id(p) for module in modules for p in module.params.values() if p.data.ndim > 1}
        paths = [path for path, p in graph.params.items() if id(p) in weights]
        return {f"gradient of {path} in step {step}" for path in paths for step in range(self.steps)}

    def around(self, dtype, count, width, isInside=False, first=0):
        """Passes with all that goes in, and what each node gives and perhaps computes, moved by some of its last bits;
        those of other seeds, which are counted from `first`, move otherwise."""
        for seed in range(first, first + count):
            noise = partial(noiseOf, np.random.default_rng([seed, 7]), np.finfo(dtype).eps * width)
            yield self.eagerly(dtype, noise, isInside)


def noiseOf(rng, amount, x):
    """Factors about 1, one for each element."""
    return np.where(rng.random(x.shape) < 0.5, 1 - amount, 1 + amount)


def isScale(path):
    """Where parameters are about 1."""
    return float(path.rpartition(".")[2] == "scale")


def drawn(rng, shape, limit):
    """Data of an input."""
    return rng.standard_normal(shape) if limit is None else rng.integers(0, limit, shape)


def moved(x, noise):
    return x if noise is None else x * noise(x)


def shake(module, noise, isInside=False):
    """Have noise in what a module gives, for all who read it, its own gradient too; and in its gradients.

    A largest or smallest element is one of the input: it is not rounded, and its gradient looks for it.
    """
    names = ("updateGrad",) if isinstance(module, (Max, Min)) else ("updateData", "updateGrad", "derivative")
    for name in names:
        rule = getattr(module, name, None)
        if rule is not None:
            vars(module)[name] = shaken(inside(rule, noise) if isInside else rule, noise)


def shaken(rule, noise):
    """A rule with noise in its results."""
    return wraps(rule)(lambda *args, **kwargs: perturbed(rule(*args, **kwargs), noise))


def inside(rule, noise):
    """A rule with noise in all that it computes."""

    def wrapped(value):
        if isinstance(value, (list, tuple)):
            return type(value)(map(wrapped, value))
        return PerturbedArray(value, noise) if isFloats(value) else value

    return wraps(rule)(lambda *args, **kwargs: plain(rule(*wrapped(args), **kwargs)))


def isFloats(value):
    """Whether a value is an array of floats, or a number of numpy, which a rule gets where there are no axes."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f"


def optimizerOf(name, rest):
    """The optimizer of a call that is written like `SGD(0.05, decay=0.1)`."""
    args, kwargs = [], {}
    for part in rest.rstrip(")").split(","):
        key, equals, value = part.strip().rpartition("=")
        if equals:
            kwargs[key] = float(value)
        else:
            args.append(float(value))
    return getattr(puregraph, name)(*args, **kwargs)


def listed(value):
    return value if isinstance(value, list) else [value]


def taken(graph, step, outputs, grads):
    """The results of a step."""
    found = {f"output {i} of step {step}": y for i, y in enumerate(outputs)}
    found |= {f"gradient of input {i} in step {step}": g for i, g in enumerate(grads)}
    found |= {f"gradient of {path} in step {step}": p.grad for path, p in graph.params.items()}
    return {name: None if x is None else np.array(x) for name, x in found.items()}


def left(graph):
    """What the steps leave: parameters and states."""
    arrays = {**graph.params, **graph.states}
    return {f"{path} afterwards": np.array(a.data) for path, a in arrays.items()}


def differences(found, eager, others, dtype, limits):
    """A sentence on each result that is not what it is to be."""
    isHeld = not any(
        y is not None and y.dtype.kind == "f" and y.dtype.itemsize > dtype.itemsize for y in found.values()
    )  # float64 holds more: what is finite there alone says nothing
    wrong = []
    for name, x in eager.items():
        y = found.get(name)
        if x is None or y is None:
            if x is not None or y is not None and np.any(y):
                wrong.append(f"{name} is {'none' if y is None else 'there'}")
        elif (x.shape, x.dtype.kind) != (y.shape, y.dtype.kind):
            wrong.append(f"{name} is {y.dtype}{list(y.shape)} in place of {x.dtype}{list(x.shape)}")
        elif x.dtype.kind != "f":
            isSure = np.all([o[name] == x for o in others], axis=0)  # what the last bits of floats do not decide
            if np.any((x != y) & isSure):
                wrong.append(f"{name} is another")
        elif x.size:
            isHeld &= not (name in limits.padded and not np.isfinite(x).all())  # nor of what follows from it
            wide = limits.wide.get(name)
            wide = x if wide is None or wide.shape != x.shape else wide
            wrong += compared(name, y, x, [o[name] for o in others], dtype, isHeld, wide)
    return wrong


def compared(name, found, eager, others, dtype, isHeld, wide):
    """The same for one array of floats."""
    x, y, wide = eager.astype(float), found.astype(float), wide.astype(float)
    around = np.stack([x, *(o.astype(float) for o in others)])
    isSure = np.isfinite(x) & np.isfinite(around).all(axis=0)
    isBad = ~np.isfinite(x) & (np.isnan(around) == np.isnan(x)).all(axis=0) & ~np.isfinite(around).any(axis=0)
    isBad &= ~np.isfinite(y) | isHeld
    wrong = isBad & ((np.isnan(x) != np.isnan(y)) | np.isfinite(y))
    wrong &= ~mayOverflow(y, wide, np.isfinite(x), eager.dtype)
    if not isSure.any():
        return [f"{name} is not finite in another way"] if wrong.any() else []
    top = np.abs(around).max(axis=0, initial=0, where=isSure)
    scale = largest = max(top.max(), LEAST)
    spread = np.where(isSure, np.abs(np.where(isSure, around - x, 0)).max(axis=0), np.inf)
    while (isBlind := isSure & (spread > BLIND * scale)).any():  # nor does it say how large the others may be
        isSure &= ~isBlind
        scale = max(top.max(initial=0, where=isSure), LEAST)
    typical = np.sqrt(np.mean(spread[isSure] ** 2)) if isSure.any() else 0
    limit = ABOVE * (spread + typical) + FLOOR * np.finfo(dtype).eps * largest
    wrong |= isSure & ~(np.abs(y - x) <= limit) & ~mayOverflow(y, wide, np.isfinite(x), eager.dtype)
    if not wrong.any():
        return []
    place = tuple(map(int, np.argwhere(wrong)[0]))
    return [f"{name} at {list(place)}: wanted {x[place]:.7g}, got {y[place]:.7g}, may be off by {limit[place]:.2g}"]


def mayOverflow(y, wide, isFinite, dtype):
    """Where the order of operations decides whether a number of a dtype is finite: of those that float64 holds and a graph
    does not, or by a hair. What is finite all the same has to be the number."""
    isNear = np.isfinite(wide) & (~isFinite | (np.abs(wide) > np.finfo(dtype).max / NEAR))
    scale = np.abs(wide).max(initial=LEAST, where=np.isfinite(wide))
    return isNear & (~np.isfinite(y) | ~isFinite & (np.abs(y - wide) <= BLIND * scale))
