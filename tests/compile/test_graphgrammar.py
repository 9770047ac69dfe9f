"""2,000 graphs of a grammar in which anything stands beside anything: compiled, by themselves, and in float64 they agree.

Half of them have booleans and integers among their values.
"""

import itertools
import os
import random
import sys
import types
from functools import partial

import numpy as np
import pytest
from graphcompare import Comparison, Failure, compared, inside, noiseOf
from graphgrammar import LEFT, RULES, WEIGHTS, WIDE, GraphDraft, examples, make, randomSpec
from graphshrink import failureOf, lower, report, script, shrunk
from graphspec import SOURCES, GraphSpec, NodeSpec, UnfitError, rebuilt
from layersizes import BATCHES, CHANNELS, LARGECHANNELS, MAPS, UNEVEN
from natively import needsNative, unverified

from puregraph import Conv2D, DataError, Pointwise, SoftMax, modules
from puregraph.compile import verify
from puregraph.graph.module import Module
from puregraph.modules import costs
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.nests.nestscope import NestCode, Scope

PARTS, EACH, LAYERED = 2, 60, 24
COUNT = int(os.environ.get("PUREGRAPH_TEST_GRAPHS", "100000"))
START = int(os.environ.get("PUREGRAPH_TEST_FIRST", str(PARTS * EACH)))


def check(seeds, **kind):
    """Try the graphs of some seeds; each that fails is printed at once, and the first in the end with its smallest graph."""
    failed = []
    for seed in seeds:
        failure = failureOf(spec := randomSpec(seed, **kind), RULES)
        if failure is not None:
            print(f"seed {seed} fails: {failure.text}", file=sys.stderr, flush=True)
            failed.append((seed, spec, failure))
    if failed:
        seed, spec, failure = failed[0]
        pytest.fail(f"seeds {[s for s, _, _ in failed]} fail; {report(spec, RULES, failure, seed)}", pytrace=False)


@pytest.mark.costly
@needsNative
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_stands_beside_whatever_compiled_it_gives_what_the_graph_gives(part):
    check(range(part * EACH, (part + 1) * EACH), isDiscrete=part % 2 == 1)


@pytest.mark.costly
@needsNative
@pytest.mark.usefixtures("quickly")
def test_layers_of_published_sizes_beside_whatever_compiled_give_what_the_graph_gives():
    check(range(LAYERED), isWide=True)


@needsNative
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_100000_graphs_compiled_give_what_they_give():
    """PUREGRAPH_TEST_GRAPHS sets how many, PUREGRAPH_TEST_FIRST the first seed."""
    check(range(START, START + COUNT, 2))
    check(range(START + 1, START + COUNT, 2), isDiscrete=True)
    check(range(START, START + COUNT, 10), isWide=True)


def test_every_rule_is_drawn_and_few_graphs_cannot_run():
    specs = [randomSpec(seed, isDiscrete=seed % 2 == 1) for seed in range(1000)]
    layered = [randomSpec(seed, isWide=True) for seed in range(100)]
    found = {line.rule for spec in (*specs, *layered) for line in spec.lines}
    assert found == {*RULES, *SOURCES}
    assert {spec.dtype for spec in specs} == {"float32", "float64"}
    sizes = {size for spec in specs for i in spec.sources for size in spec.lines[i].shape}
    assert sizes >= {0, 1, 2, 3, 7, 13, 16, 17, 1025}
    again = [line.again for spec in specs for line in spec.lines]
    assert sum(i >= 0 for i in again) > 20, "hardly a module stands at two nodes"


def test_layers_are_drawn_with_the_sizes_of_published_networks():
    draft = GraphDraft(random.Random(1), WIDE)
    shapes = [draft.freshShape() for _ in range(3000)]
    assert {shape[0] for shape in shapes} == set(BATCHES)
    assert {shape[1] for shape in shapes} == {*CHANNELS, *LARGECHANNELS}
    assert {shape[2:] for shape in shapes if len(shape) == 4} == set(MAPS)
    layers = [m for seed in range(150) for m in rebuilt(randomSpec(seed, isWide=True), RULES).modules]
    layers = [m.W.shape[0] for m in layers if isinstance(m, Conv2D)]
    assert sum(maps in UNEVEN for maps in layers) > 0.2 * len(layers) > 10, "hardly a layer leaves half a tile over"


def test_every_module_and_cost_of_the_library_has_its_examples_in_the_grammar():
    exported = [getattr(package, name) for package in (modules, costs) for name in package.__all__]
    wanted = {c for c in exported if isinstance(c, type) and issubclass(c, Module)} - {*LEFT, modules.Cast}
    wanted = {c for c in wanted if any(not (m.isDiscrete or m.masks) for m, _ in c.examples())}
    assert {cls for cls, _, _, _ in examples()} == wanted
    assert WEIGHTS["example"] > 0


@pytest.mark.costly
def test_nearly_every_graph_of_the_grammar_runs_and_nearly_every_number_is_compared():
    ran, all_, sure = 0, 0, 0
    for seed in range(60):
        try:
            comparison = Comparison(randomSpec(seed), RULES)
            with np.errstate(all="ignore"):
                first, *others = comparison.eagerly(np.dtype("float32")), *comparison.around(np.dtype("float32"), 2, 1)
        except (UnfitError, DataError):  # a region of a sample that is not there
            continue
        ran += 1
        for name, x in first.items():
            if x is not None and x.dtype.kind == "f" and x.size:
                spread = np.max([np.abs(o[name] - x) for o in others], axis=0)
                all_, sure = all_ + x.size, sure + np.sum(spread <= 3e-3 * np.abs(x).max())
    assert ran >= 58
    assert sure >= 0.95 * all_


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_terms_that_cancel_inside_of_a_formula_say_how_far_off_its_gradient_may_be(shape):
    """sigmoid(x) is rounded to 2**-24 at most, of which its derivative takes the difference to 1."""
    module, x = Pointwise(formula="2 * sigmoid(x)"), np.float32(8.168) * np.ones(shape, np.float32)
    rest = 1 / (1 + np.exp(x.astype(float)))
    exact = 2 * rest * (1 - rest)
    spread = 0
    for seed in range(20):
        noise = partial(noiseOf, np.random.default_rng(seed), 2.0**-23)
        (found,) = inside(module.derivative, noise)(x / x, x, module.updateData(x), needs=(True,))
        spread = np.maximum(spread, np.abs(found - exact))
    assert np.all(spread > exact * 2.0**-24 / rest) and np.all(spread < exact * 2.0**-20 / rest)


def test_a_sketch_is_the_same_graph_each_time():
    for seed in range(40):
        spec = randomSpec(seed)
        assert spec == randomSpec(seed)
        one, other = (rebuilt(spec, RULES) for _ in range(2))
        assert one.shapes == other.shapes
        assert [m.written() for m in one.modules] == [m.written() for m in other.modules]


@pytest.fixture
def wrongSoftMax(monkeypatch):
    """Have compiled results be wrong wherever a graph has a SoftMax."""
    right = Comparison.compiled

    def compiled(self, dtype):
        graph, *_ = self.graph(dtype)
        isWrong = any(isinstance(s.module, SoftMax) for s in graph.steps().items)
        return {k: x + 0.1 if isWrong and x is not None else x for k, x in right(self, dtype).items()}

    monkeypatch.setattr(Comparison, "compiled", compiled)


def test_a_failure_is_cut_down_to_its_smallest_graph_and_printed_as_a_script(wrongSoftMax, quickly):
    hasSoftMax = (s for s in map(randomSpec, itertools.count()) if any(line.rule == "softmax" for line in s.lines))
    large = (s for s in hasSoftMax if len(s.lines) > 5 and s.dtype == "float64")
    large = (s for s in large if all(line.rule != "example" for line in s.lines))  # which has its shapes fixed
    spec, failure = next((s, f) for s in large if (f := failureOf(s, RULES)) is not None)
    small, failure = shrunk(spec, RULES, failure)
    assert [line.rule for line in small.lines] == ["input", "softmax"]
    assert set(small.lines[0].shape) <= {0, 1}
    assert not small.optimizer and len(small.outputs) == 1
    assert failure.text
    text = script(small, RULES)
    assert "SoftMax(" in text and len(text.splitlines()) < 25


def withoutOne(monkeypatch):
    """Have sums miss the first element that is left over behind whole vectors."""
    joined = Scope.joined

    def planted(self, fold, total, start=None):
        if start is not None:
            self.mask = self.mask & (self.writer.code.iota(self.lanes) != 0)
        return joined(self, fold, total, start)

    monkeypatch.setattr(Scope, "joined", planted)


def inHalves(monkeypatch):
    """Have sums rounded as float16 would round them."""
    joined = Scope.joined

    def planted(self, *args):
        total, code = joined(self, *args), self.writer.code
        return code.bitcast(code.bitcast(total, "i32") & -8192, "f32") if total.kind == "f32" else total

    monkeypatch.setattr(Scope, "joined", planted)


def ofNeighbours(monkeypatch):
    """Have one operand's last row read as the row before it."""
    offset = NestCode.offset

    def planted(self, operand, indices):
        if operand == f"l_{min(self.nest.loads, default='')}" and len(self.nest.space) > 1 and 0 in indices:
            row, rows = indices[0], self.extents[0]
            indices = {**indices, 0: self.code.select((row == rows - 1) & (rows > 1), row - 1, row)}
        return offset(self, operand, indices)

    monkeypatch.setattr(NestCode, "offset", planted)


@needsNative
@pytest.mark.parametrize("plant", [withoutOne, inHalves, ofNeighbours])
def test_a_fault_of_a_kernel_is_found_by_a_few_graphs(quickly, monkeypatch, tmp_path, plant):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "LOADED", {})
    plant(monkeypatch)
    failures = (failure for seed in range(8) if (failure := failureOf(randomSpec(seed), RULES)) is not None)
    kinds = [failure.kind for failure in itertools.islice(failures, 2)]
    assert kinds == ["VerifyError" if verify.isOn() else "difference"] * 2


@needsNative
@pytest.mark.parametrize("seed", [977, 11952, 12679, 12824, 16351, 19997, 29175, 30130, 36376, 37883, 51612, 85621])
def test_what_rounding_inside_of_nodes_moves_is_no_difference(quickly, seed):
    assert failureOf(randomSpec(seed), RULES) is None


@needsNative
def test_what_overflows_in_float32_alone_is_no_difference(quickly):
    assert failureOf(randomSpec(25989), RULES) is None


def sentences(eager, compiled, *moved, wide=None):
    """The differences between two arrays of float32, beside passes with noise."""
    x, y, *others = (np.array(values, np.float32) for values in (eager, compiled, *moved))
    with np.errstate(invalid="ignore"):
        return compared("output", y, x, others, np.dtype("float32"), True, x if wide is None else np.array(wide))


def test_a_number_that_is_noise_does_not_say_how_large_the_others_may_be():
    assert not sentences([9000, 1], [-400, 1600], [70, 20])
    assert not sentences([9000, 1, 1], [-400, 1, 1], [70, 1, 1])
    assert sentences([9000, 1, 1], [-400, 1, 1.01], [70, 1, 1])


@pytest.mark.parametrize("found", [np.inf, -np.inf, np.nan, 1e9])
@pytest.mark.parametrize("eager", [np.inf, np.nan])
def test_what_overflows_is_infinite_or_nan_or_the_number(eager, found):
    assert not sentences([eager, 1], [found, 1], [eager, 1], wide=[1e9 if found == 1e9 else 1e40, 1])


def test_what_cannot_overflow_is_compared_whether_or_not_it_is_finite():
    inf, nan = np.inf, np.nan
    assert not sentences([3.3e38, 1], [inf, 1], [3.3e38, 1])
    assert sentences([1e30, 1], [inf, 1], [1e30, 1])
    assert sentences([inf, 1], [0, 1], [inf, 1], wide=[1e40, 1])
    assert sentences([inf, 1], [nan, 1], [inf, 1], wide=[inf, 1])
    assert sentences([nan, 1], [0, 1], [nan, 1], wide=[nan, 1])


@pytest.fixture
def squareRoots():
    """A comparison of square roots of a convolution that reads padding alone, negative ones among them."""
    rules = {
        "convolution": lambda rng, x: make(Conv2D, 16, 16, (1, 3), stride=3, pad=1),
        "root": lambda rng, x: make(Pointwise, formula="sqrt(x)"),
    }
    lines = (
        NodeSpec("input", shape=(4, 16, 1, 1)),
        NodeSpec("convolution", 0, ((0, 0),)),
        NodeSpec("root", 0, ((1, 0),)),
    )
    return Comparison(GraphSpec(lines, ((2, 0),), given=(True,), optimizer="SGD(0.05)"), rules)


@unverified
@needsNative
def test_padding_times_nan_is_nan_or_left_out(quickly, squareRoots):
    with np.errstate(all="ignore"):
        eager = squareRoots.eagerly(np.dtype("float32"))
    assert np.isnan(eager["gradient of n1.W in step 0"]).any()
    assert squareRoots.failure() is None


@unverified
@needsNative
def test_nan_that_a_program_loses_is_found_beside_padding(quickly, squareRoots, monkeypatch):
    right = Comparison.compiled
    monkeypatch.setattr(
        Comparison, "compiled", lambda self, dtype: {k: np.nan_to_num(x) for k, x in right(self, dtype).items()}
    )
    assert "output 0 of step 0" in squareRoots.failure().text


def test_the_seeds_that_fail_are_printed_before_anything_is_cut_down(monkeypatch, capsys):
    monkeypatch.setattr(sys.modules[__name__], "failureOf", lambda spec, rules: Failure("difference", "7 is not 8"))
    monkeypatch.setattr(sys.modules[__name__], "report", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check([3, 5])
    assert capsys.readouterr().err.splitlines() == ["seed 3 fails: 7 is not 8", "seed 5 fails: 7 is not 8"]


def test_no_input_is_cut_down_to_a_size_below_0():
    empty = [spec for spec in map(randomSpec, range(400)) if any(0 in spec.lines[i].shape for i in spec.sources)]
    assert len(empty) > 2
    for spec in empty:
        for other in lower(spec):
            assert all(size >= 0 for i in other.sources for size in other.lines[i].shape)


def test_the_script_of_a_sketch_runs(quickly, capsys):
    for seed in range(12):
        code = compile(script(randomSpec(seed), RULES), f"<seed {seed}>", "exec")
        with np.errstate(all="ignore"):
            exec(code, vars(types.ModuleType("script")))
        shown = capsys.readouterr().out
        assert "eager" in shown and "compiled" in shown
