"""Equal rewrites of random graphs: what is added or moved changes no value, and both graphs have to agree compiled.

A rewrite reroutes some readers of a value to nodes that give the same value once more: moved there and back, cut and
joined, cast to float64 and back, scaled by powers of two, computed by a second node. All but a weighted sum of a value
with itself, and ab + ac for a(b + c), are exact: where nothing is moved, eager results have to be equal to the last bit.
"""

import random
import re
import warnings

import numpy as np
from graphcompare import Comparison, Failure
from graphgrammar import RULES, make
from graphspec import SOURCES, NodeSpec, UnfitError, rebuilt

from puregraph import Cast, Concat, Graph, Input, Pointwise, Reshape, Slice, Split, Transpose
from puregraph.core.errors import GraphWarning

KINDS = (
    "transposed",
    "reshaped",
    "reversed",
    "cut",
    "widened",
    "zero",
    "scaled",
    "negated",
    "doubled",
    "weighted",
    "distributed",
    "nested",
    "enclosed",
)
INEXACT = {"weighted", "distributed"}
FACTORED = "a * (b + c)"  # of three values, which a distributed graph writes as ab + ac
MOVING = {"transposed", "reshaped", "reversed", "cut"}  # what is behind them may lie otherwise, and be summed otherwise
MOVED = {
    "moveAxes": lambda rng, x, wanted: make(Transpose, wanted),
    "setShape": lambda rng, x, wanted: make(Reshape, wanted),
    "reverse": lambda rng, x, wanted: make(Slice, (slice(None),) * wanted + (slice(None, None, -1),)),
    "cutAt": lambda rng, x, wanted: make(Split, wanted[0], wanted[1]),
    "joined": lambda rng, a, b, wanted: make(Concat, wanted),
    "castTo": lambda rng, x, wanted: make(Cast, wanted),
    "formula": lambda rng, x, wanted: make(Pointwise, formula=wanted),
    "formulaOf": lambda rng, a, b, wanted: make(Pointwise, formula=wanted),
    "factored": lambda rng, a, b, c: make(Pointwise, formula=FACTORED),
}
RULESHERE = {**RULES, **MOVED}


class Rewrite:
    """A spec that is rewritten step by step.

    `base`     the spec that it was in the beginning, `origins` has for each line the one of `base` that it is
    `part`     the first and last of the lines that are a graph of their own, a module inside; None if there is none
    """

    def __init__(self, spec, rng):
        self.base, self.spec, self.rng, self.isNested, self.part = spec, spec, rng, False, None
        self.origins = list(range(len(spec.lines)))
        self.kinds = []

    def apply(self, kind):
        """One rewrite of a kind at a random value, if there is one that fits."""
        made = rebuilt(self.spec, RULESHERE)
        if kind == "nested":
            self.isNested = True
            self.kinds.append(kind)
            return
        if kind == "enclosed":
            self.enclose()
            return
        values = [value for value in floats(made) if self.readers(value)]
        if kind == "distributed":
            values = [value for value in values if self.spec.lines[value[0]].rule == "factored"]
        if not values:
            return
        value = self.rng.choice(values)
        shape = made.shapes[value[0]][value[1]]
        news = self.doubled(value, made) if kind == "doubled" else getattr(self, kind)(value, shape, value[0] + 1)
        if news:
            self.insert(value, news, isWhole=kind in INEXACT)  # else the value less itself would no longer be 0
            self.kinds.append(kind)

    def enclose(self):
        """Choose lines that follow one another as the part that is a module inside, if anything else reads them."""
        places = [i for i, line in enumerate(self.spec.lines) if line.rule not in SOURCES]
        if places:
            first, last = sorted(self.rng.choices(places, k=2))
            part = range(first, last + 1)
            if leaving(self.spec, part):
                self.part = part
                self.kinds.append("enclosed")

    def factor(self):
        """Have some readers of a value read its product with a sum, or a sum with it in a product, in `base` as well."""
        made = rebuilt(self.spec, RULESHERE)
        values = [value for value in floats(made) if self.readers(value)]
        if not values:
            return
        value = self.rng.choice(values)
        shape = made.shapes[value[0]][value[1]]
        others = [v for v in floats(made) if v[0] <= value[0] and fits(made.shapes[v[0]][v[1]], shape)]
        parents = [value, *self.rng.choices(others, k=2)]
        self.rng.shuffle(parents)
        self.insert(value, [NodeSpec("factored", 0, tuple(parents))])
        self.base, self.origins = self.spec, list(range(len(self.spec.lines)))

    def readers(self, value):
        """The places in which a value is read: (line, argument), and (-1, number) of an output."""
        found = [(i, k) for i, line in enumerate(self.spec.lines) for k, p in enumerate(line.parents) if p == value]
        return found + [(-1, k) for k, p in enumerate(self.spec.outputs) if p == value]

    def insert(self, value, news, isWhole=False):
        """Put lines behind that of a value, and have some of its readers, or all, read the last of them."""
        at, count = value[0], len(news)
        places = self.readers(value)
        chosen = set(self.rng.sample(places, len(places) if isWhole else self.rng.randint(1, len(places))))

        def moved(edge, place):
            if place in chosen:
                return at + count, value[1] if news[-1].rule == self.spec.lines[at].rule else 0
            return (edge[0] + count if edge[0] > at else edge[0], edge[1])

        lines = []
        for i, line in enumerate(self.spec.lines):
            parents = tuple(moved(p, (i, k)) for k, p in enumerate(line.parents))
            lines.append(line._replace(parents=parents, again=line.again + count if line.again > at else line.again))
            if i == at:
                lines += news
        outputs = tuple(moved(p, (-1, k)) for k, p in enumerate(self.spec.outputs))
        self.origins[at + 1 : at + 1] = [-1] * count
        self.spec = self.spec._replace(lines=tuple(lines), outputs=outputs)

    # Each gives the lines that a value goes through; the first of them is number `n`.

    def transposed(self, value, shape, n):
        axes = self.rng.sample(range(len(shape)), len(shape))
        back = tuple(map(int, np.argsort(axes)))
        return (
            [NodeSpec("moveAxes", 0, (value,), tuple(axes)), NodeSpec("moveAxes", 0, ((n, 0),), back)] if shape else []
        )

    def reshaped(self, value, shape, n):
        flat = (int(np.prod(shape)),)
        return [NodeSpec("setShape", 0, (value,), flat), NodeSpec("setShape", 0, ((n, 0),), shape)]

    def reversed(self, value, shape, n):
        if not shape:
            return []
        axis = self.rng.randrange(len(shape))
        return [NodeSpec("reverse", 0, (value,), axis), NodeSpec("reverse", 0, ((n, 0),), axis)]

    def cut(self, value, shape, n):
        axes = [i for i, size in enumerate(shape) if size > 1]
        if not axes:
            return []
        axis = self.rng.choice(axes)
        at = self.rng.randint(1, shape[axis] - 1)
        cut = NodeSpec("cutAt", 0, (value,), (axis, (at, shape[axis] - at)))
        return [cut, NodeSpec("joined", 0, ((n, 0), (n, 1)), axis)]

    def widened(self, value, shape, n):
        if self.spec.dtype != "float32":
            return []
        return [NodeSpec("castTo", 0, (value,), "float64"), NodeSpec("castTo", 0, ((n, 0),), "float32")]

    def zero(self, value, shape, n):
        return [NodeSpec("formula", 0, (value,), "x + 0")]

    def scaled(self, value, shape, n):
        return [NodeSpec("formula", 0, (value,), "2 * x"), NodeSpec("formula", 0, ((n, 0),), "0.5 * x")]

    def negated(self, value, shape, n):
        return [NodeSpec("formula", 0, (value,), "-x"), NodeSpec("formula", 0, ((n, 0),), "-x")]

    def weighted(self, value, shape, n):
        part = (
            NodeSpec("formula", 0, (value,), "x * sigmoid(x)"),
            NodeSpec("formula", 0, (value,), "x * (1 - sigmoid(x))"),
        )
        return [*part, NodeSpec("formulaOf", 0, ((n, 0), (n + 1, 0)), "a + b")]

    def distributed(self, value, shape, n):
        a, b, c = self.spec.lines[value[0]].parents
        part = NodeSpec("formulaOf", 0, (a, b), "a * b"), NodeSpec("formulaOf", 0, (a, c), "a * b")
        return [*part, NodeSpec("formulaOf", 0, ((n, 0), (n + 1, 0)), "a + b")]

    def doubled(self, value, made):
        line, module = self.spec.lines[value[0]], made.modules[value[0]]
        if line.rule in SOURCES or module.states:
            return []
        isSame = bool(module.params)
        return [line._replace(again=line.again if line.again >= 0 else value[0] if isSame else -1)]


class OnceEach(Comparison):
    """A comparison that runs each pass without noise once: results are looked at several times."""

    def __init__(self, *args):
        super().__init__(*args)
        self.results = {}

    def eagerly(self, dtype, noise=None, isInside=False):
        if noise is not None:
            return super().eagerly(dtype, noise, isInside)
        if dtype not in self.results:
            self.results[dtype] = super().eagerly(dtype)
        return self.results[dtype]

    def compiled(self, dtype):
        if ("compiled", dtype) not in self.results:
            self.results["compiled", dtype] = super().compiled(dtype)
        return self.results["compiled", dtype]


class RewrittenComparison(OnceEach):
    """The rewritten graph of another comparison, with its parameters and data under the names that they have there."""

    def __init__(self, base, rewrite):
        self.base, self.spec, self.rules, self.rewrite = base, rewrite.spec, RULESHERE, rewrite
        self.data, self.seeds, self.optimizer, self.results = base.data, base.seeds, base.optimizer, {}
        self.names = {canonical(base.spec, path): path for path in base.params}
        self.params = {path: base.params[self.original(path)] for path in self.built().params}

    def built(self):
        """The graph; nested in one of a single node where that is the rewrite, or with a part that is a graph."""
        made = rebuilt(self.spec, self.rules)
        graph = made.graph if self.rewrite.part is None else withPart(self.spec, made, self.rewrite.part)
        if not self.rewrite.isNested:
            return graph
        inputs = [Input(name=node.name).node() for node in graph.inputs]
        node = graph.node(*inputs, name="inner")
        count = len(self.spec.outputs)
        return Graph(inputs, [(node, i) for i in range(count)] if count > 1 else [node], name="net")

    def original(self, path):
        """The path that a parameter has in the first graph."""
        return self.names[canonical(self.spec, outside(path), self.rewrite.origins)]

    def renamed(self, found, wanted):
        """Results under the names that they have in the first graph."""
        names = {canonical(self.base.spec, name): name for name in wanted}
        origins = self.rewrite.origins
        return {names[canonical(self.spec, outside(name), origins)]: x for name, x in found.items()}


def floats(made):
    """The values of a rebuilt spec that are floats."""
    return [(i, slot) for i, types in enumerate(made.types) for slot, dtype in enumerate(types) if dtype.kind == "f"]


def fits(shape, wanted):
    """Whether values of a shape can be added to those of another without changing its shape."""
    ends = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, ends, strict=True))


def outside(name):
    """A name without the graphs that a node is inside of."""
    return re.sub(r"\b(inner|part)\.", "", name)


def leaving(spec, part):
    """The values of some lines that others read, or that are outputs."""
    readers = [line for i, line in enumerate(spec.lines) if i not in part]
    read = {p for line in readers for p in line.parents} | set(spec.outputs)
    return sorted(value for value in read if value[0] in part and spec.lines[value[0]].rule not in SOURCES)


def withPart(spec, made, part):
    """The graph of a spec in which some lines are a graph of their own, which is the module of one node."""
    lines = [(i, line) for i, line in enumerate(spec.lines) if line.rule not in SOURCES]
    outputs = leaving(spec, part)
    members = {i for i, _ in outputs}
    for i, line in reversed(lines):
        members |= (
            {p for p, _ in line.parents if p in part and spec.lines[p].rule not in SOURCES} if i in members else set()
        )
    entering = sorted({p for i in members for p in spec.lines[i].parents if p[0] not in members})
    inputs = {value: Input(name=f"v{k}").node() for k, value in enumerate(entering)}
    inner, edges = dict(inputs), {(i, k): edge for i, all in enumerate(made.edges) for k, edge in enumerate(all)}

    def add(i, line, edges):
        node = made.modules[i].node(*[edges[p] for p in line.parents], name=f"n{i}")
        edges.update({(i, slot): (node, slot) for slot in range(len(made.shapes[i]))})

    for i, line in lines:
        if i in members:
            add(i, line, inner)
    node = Graph(list(inputs.values()), [inner[v] for v in outputs]).node(*[edges[v] for v in entering], name="part")
    edges.update({value: (node, k) for k, value in enumerate(outputs)})
    for i, line in lines:
        if i >= part.stop:
            add(i, line, edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # of lines that lead to no output
        return Graph([made.edges[i][0][0] for i in spec.sources], [edges[v] for v in spec.outputs], name="net")


def canonical(spec, name, origins=None):
    """A name in which nodes stand as the first line that has their module, of the graph that was rewritten."""

    def first(match):
        line = spec.lines[i := int(match[1])]
        i = line.again if line.again >= 0 else i
        return f"n{i if origins is None else origins[i]}"

    return re.sub(r"\bn(\d+)\b", first, name)


def orderOf(kind):
    """When a rewrite comes: inexact ones before any doubles a value, a part that is a graph in the end."""
    return 0 if kind in INEXACT else 2 if kind == "enclosed" else 1


def rewritten(seed, spec, most=3):
    """A spec after some rewrites that follow from a seed."""
    rng = random.Random(seed)
    result = Rewrite(spec, rng)
    kinds = rng.sample(KINDS, min(len(KINDS), rng.randint(1, most)))
    if "distributed" in kinds:
        result.factor()
    for kind in sorted(kinds, key=orderOf):
        result.apply(kind)
    return result


class BesideRewritten(OnceEach):
    """The spec that a rewrite began with, compared with what it became, by itself and compiled."""

    def __init__(self, rewrite):
        super().__init__(rewrite.base, RULESHERE)
        self.other = RewrittenComparison(self, rewrite)

    def references(self, eager, dtype):
        self.other.optimizer = self.optimizer
        both = {"rewritten": self.other.compiled, "rewritten, eager": self.other.eagerly}
        return {kind: self.other.renamed(run(dtype), eager) for kind, run in both.items()}

    def failure(self):
        """What is wrong, or None; eager outputs are equal to the last bit where every rewrite is exact and moves nothing
        in memory. Compiled ones need not be: what is fused, and so the order of a sum, follows the graph."""
        found, kinds = super().failure(), set(self.other.rewrite.kinds)
        if found is not None or kinds & (INEXACT | MOVING):
            return found
        dtype = np.dtype(self.spec.dtype)
        with np.errstate(all="ignore"):
            wanted = self.eagerly(dtype)
            got = self.other.renamed(self.other.eagerly(dtype), wanted)
        names = [name for name in wanted if re.match(r"output \d+ of step 0", name)]
        wrong = [name for name in names if not np.array_equal(wanted[name], got[name], equal_nan=True)]
        return Failure("last bits", f"eager {wrong[0]} is not equal to the last bit") if wrong else None


def rewriteFailure(seed, spec):
    """A difference between a graph and its rewrite; None if they agree, or the graph cannot run."""
    try:
        return BesideRewritten(rewritten(seed, spec)).failure()
    except UnfitError:
        return None
