"""Every module and cost, example by example, keeps every promise of `puregraph.testing.check`, and a failure says which. New ones need
no line here: they are found in their folder."""

import pickle
import random
from itertools import chain, combinations

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import CLASSES, EXAMPLES, EXPORTED, MODES, examplesOf, label, toStrict
from strict import Strict, useStrict

from puregraph.core.applied import asGrads
from puregraph.core.dim import Dim
from puregraph.core.errors import ShapeError
from puregraph.core.param import State
from puregraph.core.rules import gradientRule
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.ops.kernel import kernel, useFast
from puregraph.testing.check import CHECKS, Case, compiled, extremes, onDevice, shapeRule


@pytest.mark.parametrize("found", EXPORTED, ids=label)
def test_a_class_is_exported(found):
    package = EXPORTED[found]
    assert getattr(package, found.__name__, None) is found and found.__name__ in package.__all__, (
        f"{package.__name__} does not export {found.__name__}: add its line to __init__.py"
    )


@pytest.mark.parametrize("found", CLASSES, ids=label)
def test_a_class_has_examples(found):
    given = examplesOf(found)
    assert given, f"{found.__name__}.examples yields nothing: nothing is tested"
    for module, shapes in given:
        assert isinstance(module, found) and isinstance(shapes, list), (
            f"{found.__name__}.examples yields {module!r}, {shapes!r}: wanted a {found.__name__} and a list of shapes"
        )


def test_without_examples_a_sentence_says_what_to_write():
    class Bare(Module):
        pass

    with pytest.raises(NotImplementedError, match="Bare has no examples: write a classmethod that yields"):
        examplesOf(Bare)


def assertKept(check, found, index, mode):
    module, shapes = examplesOf(found)[index]
    check(Case(module, shapes, train=MODES[mode]))


@everyExample(EXAMPLES, check=[check for check in CHECKS if check is not onDevice], mode=MODES)
def test_an_example_keeps_each_promise(found, index, check, mode):
    if check is not extremes or issubclass(found, Pointwise):  # of others there is nothing to look at
        assertKept(check, found, index, mode)


@pytest.mark.gpu
@everyExample(EXAMPLES, mode=MODES)
def test_an_example_gives_on_a_gpu_what_it_gives_on_the_cpu(found, index, mode):
    assertKept(onDevice, found, index, mode)


def smallShapes(shapes):
    """The shapes with up to three axes empty, and with other sizes from 0 to 3: of one axis, or wherever a size stands."""
    axes = [(i, axis) for i, shape in enumerate(shapes) for axis in range(len(shape))]
    changes = [dict.fromkeys(c, 0) for c in chain(*(combinations(axes, count) for count in (1, 2, 3)))]
    rng = random.Random(0)
    for _ in range(40):
        size = {d: rng.randrange(4) for d in chain(*shapes)}
        changes.append({(i, a): size[shapes[i][a]] for i, a in axes if rng.random() < rng.choice((0.5, 1.1))})
    return {tuple(tuple(c.get((i, a), d) for a, d in enumerate(s)) for i, s in enumerate(shapes)) for c in changes}


@everyExample(EXAMPLES)
def test_at_small_sizes_an_example_is_refused_or_gives_the_shapes_that_it_says(found, index):
    module, shapes = examplesOf(found)[index]
    for others in sorted(smallShapes(shapes)):
        try:
            module.dataShapeFrom(*others)
            case = Case(module, others)
            said = module.dataShapeFrom(*case.shapes)  # with the elements of inputs that shapes follow from
        except ShapeError:
            continue
        sizes = [d for d in chain(*(said if type(said) is list else [said])) if d is not None]  # which depends on data
        assert all(type(d) is int and d >= 0 for d in sizes), (others, said)
        shapeRule(case)
        if 0 in chain(*others):
            compiled(case)


@pytest.mark.parametrize("found", CLASSES, ids=label)
def test_some_example_takes_a_symbol(found):
    for module, shapes in examplesOf(found):
        if not shapes or module.shapeInputs == module.arguments:
            return  # there is no axis to name, or the sizes themselves are what comes in
        for size in {size for shape in shapes for size in shape}:
            try:
                module.dataShapeFrom(*(tuple(Dim("N") if d == size else d for d in shape) for shape in shapes))
                return
            except ShapeError:
                pass
    pytest.fail(f"no example of {found.__name__} takes a symbol in any axis")


@everyExample(EXAMPLES)
def test_an_example_pickles(found, index):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes)
    outputs = case.run()
    case.module = pickle.loads(pickle.dumps(case.module))
    for a, b in zip(case.visible(case.run()), case.visible(outputs)):
        assert np.array_equal(a, b)
    assert repr(case.module) == repr(module)


# On arrays that are not numpy's -------------------------------------------------------------------------------------


def results(case, move):
    """All outputs and gradients of a case, from arguments that `move` has taken elsewhere."""
    case.restore()
    for stored in case.module.ruleParams():
        if isinstance(stored, State):
            stored.data = move(stored.data.copy())
    params = case.module.ruleParams()
    arguments = [*map(move, case.inputs), *(move(a) for a in case.arguments[len(case.inputs) :])]
    result = case.module.updateData(*arguments)
    outputs = result if type(result) is tuple else (result,)
    rng = np.random.default_rng(1)
    seeds = [move(rng.standard_normal(tuple(y.shape))) for y in case.visible(outputs)]
    rule = gradientRule(case.module, tuple(i in case.floats for i in range(len(arguments))))
    grads = asGrads(rule(seeds if len(seeds) > 1 else seeds[0], *arguments, *outputs), len(arguments), case.label)
    states = [p.data for p in params if isinstance(p, State)]
    return [*case.visible(outputs), *(grads[i] for i in case.floats), *states]


@everyExample(EXAMPLES, mode=MODES)
def test_rules_run_on_device_arrays(found, index, mode, monkeypatch):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    with useFast(False), monkeypatch.context() as patched:
        wanted = results(case, lambda array: array)
        useStrict(patched)
        got = results(case, toStrict)
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert isinstance(a, Strict), f"result {number} of {case.label} comes back as {type(a).__name__}"
        assert a.dtype == b.dtype and np.array_equal(a.values, b, equal_nan=True), (
            f"result {number} of {case.label} differs"
        )


@pytest.mark.parametrize(
    "rule",
    [
        np.asarray,
        float,
        bool,
        list,
        lambda x: [v + 1 for v in x],
        lambda x: x + np.ones(3),
        lambda x: np.ones(3) * x,
        lambda x: np.add.reduce(x),
        lambda x: x.sum(where=x > 0),
        lambda x: np.concatenate([x, np.ones(3)]),
        lambda x: x[np.array([0, 1])],
        lambda x: np.ones(3) @ x,
        lambda x: 1.0 if x.sum() > 0 else 0.0,
    ],
)
def test_a_strict_array_refuses_what_a_device_array_does(rule):
    with pytest.raises(TypeError):
        rule(Strict(np.ones(3)))


def test_a_strict_array_goes_through_numpy_and_kernels(monkeypatch):
    @kernel
    def twice(x):
        return np.asarray(x) * 2

    useStrict(monkeypatch)
    x = Strict(np.arange(6.0).reshape(2, 3))
    y = np.where(x > 2, np.concatenate([x[1:], x[:1]]), -x).max(axis=0) + twice(x).max()
    assert isinstance(y, Strict) and y.values.tolist() == [10, 11, 12]
