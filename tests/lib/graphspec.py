"""Specifications of graphs: short lists of lines that are rebuilt in any dtype, cut down, and printed as a script."""

import random
import re
import warnings
from typing import NamedTuple

import numpy as np

import puregraph
from puregraph import ArgMax, ArgMin, Embedder, Graph, Input, OneHot
from puregraph.core.errors import DtypeError, GraphWarning, PuregraphError
from puregraph.graph.module import Module

SOURCES = ("input", "indices")  # lines that are inputs of the graph: floats, and whole numbers


class UnfitError(Exception):
    """A line cannot stand where it does: its rule takes no such shapes."""


class NodeSpec(NamedTuple):
    """One node: an input of a shape, or the module that a rule makes of a seed and the shapes of its parents.

    `parents`  (line, output) of each
    `shape`    of an input, or the one that a rule is to bring its parent to
    `again`    the line whose module stands here once more, or -1
    """

    rule: str
    seed: int = 0
    parents: tuple = ()
    shape: tuple | None = None
    again: int = -1


class GraphSpec(NamedTuple):
    """A graph and what is done with it.

    `outputs`    (line, output) of each
    `given`      for each output whether its gradient is given; empty: forward only
    `optimizer`  the call that makes one, as a text; empty: no updates
    """

    lines: tuple
    outputs: tuple
    dtype: str = "float32"
    train: bool = True
    given: tuple = ()
    optimizer: str = ""
    seed: int = 0

    @property
    def sources(self):
        """The numbers of the lines that are inputs."""
        return [i for i, line in enumerate(self.lines) if line.rule in SOURCES]


class Rebuilding:
    """The modules and nodes of a spec, made line by line.

    `shapes`  of each line those of its outputs
    `edges`   of each line what a child takes of it, one for each output
    `types`   of each line the dtypes of its outputs, in a graph of float32
    `limits`  of each input of whole numbers what they stay below, `bounds` the same of integers that are computed
    """

    def __init__(self, rules):
        self.rules = rules
        self.lines, self.modules, self.edges, self.shapes, self.types = [], [], [], [], []
        self.limits, self.bounds = {}, {}

    def add(self, line):
        """One more line.

        Raises    UnfitError if it does not fit what is there
        """
        number = len(self.lines)
        if line.rule in SOURCES:
            module, shapes = Input(name=f"x{number}"), [line.shape]
            types = [np.dtype("float32" if line.rule == "input" else "int64")]
            edges = [(module.node(), 0)]
        else:
            given = [self.shapes[i][slot] for i, slot in line.parents]
            module = self.modules[line.again] if line.again >= 0 else self.made(line, given)
            shapes = self.shapesOf(module, given)
            limits = limitsOf(module, given)
            types = self.typesOf(module, [self.types[i][slot] for i, slot in line.parents], limits)
            for limit, (i, slot) in zip(limits, line.parents, strict=True):
                isSource = self.lines[i].rule == "indices"
                isFree = isSource or isinstance(module, OneHot)  # any integer will do
                if limit == 0 or limit is not None and not isFree and self.bounds.get((i, slot), limit + 1) > limit:
                    raise UnfitError("no whole numbers so small")
                if limit is not None and isSource:
                    self.limits[i] = min(limit, self.limits.get(i, limit))
            if isinstance(module, (ArgMax, ArgMin)):
                self.bounds[number, 0] = given[0][module.axis]
            node = module.node(*[self.edges[i][slot] for i, slot in line.parents], name=f"n{number}")
            edges = [(node, slot) for slot in range(len(shapes))]
        kept = self.lines, self.modules, self.edges, self.shapes, self.types
        for each, new in zip(kept, (line, module, edges, shapes, types), strict=True):
            each.append(new)

    def made(self, line, given):
        """The module that a line's rule makes."""
        try:
            options = {} if line.shape is None else {"wanted": line.shape}
            found = self.rules[line.rule](random.Random(line.seed), *given, **options)
            if found is not None:
                cls, args, kwargs = found
                return cls(*args, **kwargs)
        except (PuregraphError, ValueError, TypeError, IndexError) as error:
            raise UnfitError(str(error)) from error
        raise UnfitError(f"{line.rule} of {given}")

    def typesOf(self, module, given, limits):
        """The dtypes of the outputs; integers beside floats, which would be float64, are unfit."""
        kinds = {dtype.kind for dtype, limit in zip(given, limits, strict=True) if limit is None}
        if {"i", "f"} <= kinds:
            raise UnfitError("integers beside floats")
        try:
            found = module.dataTypeFrom(*given)
        except DtypeError as error:
            raise UnfitError(str(error)) from error
        found = found if isinstance(found, list) else [found]
        return [np.dtype("float32") if dtype is None else dtype for dtype in found]

    def shapesOf(self, module, given):
        """The shapes of the outputs."""
        try:
            found = module.dataShapeFrom(*given)
        except (PuregraphError, ValueError, TypeError, IndexError) as error:
            raise UnfitError(str(error)) from error
        return found if isinstance(found, list) else [found]


def limitsOf(module, shapes):
    """For each input None, or what the whole numbers that it takes have to stay below."""
    names = module.arguments
    return [
        limitOf(module, shapes) if names[min(i, len(names) - 1)] in module.indices else None for i in range(len(shapes))
    ]


def limitOf(module, shapes):
    """What the indices of a module stay below: classes, words, places, time steps."""
    if isinstance(module, Embedder):
        return module.W.shape[0]
    if isinstance(module, OneHot):
        return module.classes + 1
    if hasattr(module, "axis"):  # None: the axis itself is an input
        return len(shapes[0]) if module.axis is None else shapes[0][module.axis]
    return shapes[0][1] if len(shapes[0]) > 1 else 2


def rebuilt(spec, rules):
    """All lines of a spec, and its graph.

    Raises    UnfitError if the lines do not fit each other
    """
    found = Rebuilding(rules)
    for line in spec.lines:
        found.add(line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            inputs = [found.edges[i][0][0] for i in spec.sources]
            found.graph = Graph(inputs, [found.edges[i][slot] for i, slot in spec.outputs], name="net")
    except PuregraphError as error:
        raise UnfitError(str(error)) from error
    return found


def pruned(spec):
    """The same spec without the lines that lead to no output."""
    needed = {i for i, _ in spec.outputs}
    for i in reversed(range(len(spec.lines))):
        if i in needed:
            line = spec.lines[i]
            needed |= {p for p, _ in line.parents} | ({line.again} if line.again >= 0 else set())
    number = {old: new for new, old in enumerate(sorted(needed))}
    lines = [
        line._replace(parents=tuple((number[p], slot) for p, slot in line.parents), again=number.get(line.again, -1))
        for i, line in enumerate(spec.lines)
        if i in needed
    ]
    return spec._replace(lines=tuple(lines), outputs=tuple((number[i], slot) for i, slot in spec.outputs))


# As a script ----------------------------------------------------------------------------------------------------------


def written(value):
    """A constructor's argument as it is written in a script."""
    if isinstance(value, Module):
        args, kwargs = value.initArgs
        return f"{type(value).__name__}({', '.join([*map(written, args), *(f'{k}={written(v)}' for k, v in kwargs.items())])})"
    if type(value) in (list, tuple):
        inner = ", ".join(map(written, value)) + ("," if type(value) is tuple and len(value) == 1 else "")
        return f"[{inner}]" if type(value) is list else f"({inner})"
    return repr(value)


def textOf(spec, rules):
    """The lines that make a spec's graph, for a script in which all of puregraph is imported."""
    found = rebuilt(spec, rules)
    text = []
    for i, (line, module) in enumerate(zip(spec.lines, found.modules, strict=True)):
        if line.rule in SOURCES:
            text.append(f"x{i} = Input(name='x{i}').node()  # {line.shape}")
            continue
        parents = ", ".join(
            nameOf(spec, p) if len(found.shapes[p]) == 1 else f"({nameOf(spec, p)}, {slot})" for p, slot in line.parents
        )
        call = f"n{line.again}.module" if line.again >= 0 else written(module)
        text.append(f"n{i} = {call}.node({parents}, name='n{i}')")
    outputs = ", ".join(f"({nameOf(spec, i)}, {slot})" for i, slot in spec.outputs)
    inputs = ", ".join(f"x{i}" for i in spec.sources)
    text.append(f"net = Graph([{inputs}], [{outputs}], name='net')")
    used = sorted({w for w in re.findall(r"\b[A-Z]\w+", "\n".join(text)) if hasattr(puregraph, w)})
    return [f"from puregraph import {', '.join(used)}", *text]


def nameOf(spec, i):
    """What the node of a line is called in a script."""
    return f"{'x' if spec.lines[i].rule in SOURCES else 'n'}{i}"
