"""Variables of formulas may have any name that Python reads: words of C++ and CUDA, and names in our own texts."""

import builtins
import keyword

import numpy as np
import pytest
from launches import needsEmulator, runAll

from puregraph.compile.program import Program
from puregraph.core.errors import FormulaError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.nests.optimizerstep import launches as updates
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.formula import Formula
from puregraph.ops.formula.cwords import CPP, CUDA, asVariable
from puregraph.ops.formula.loopnest import LoopNest, Operand, isAxis
from puregraph.ops.formula.optable import CONSTANTS, TABLE

OURS = """
out self name formula names order inputs grad y _y _grad __y axis0 axis1 x0 x1 y0 y1 l_x0 s_y0 n_0 k_x0 a_x0 b_y0 d_y0 t1
t2 v1 i j k n u v row at group lane length rows rest block task scratch args kernel store load Pack Half Bfloat Number
Sum Max quotient isAligned memory_ param rate step decay skip table pack chunk even threads sums g a b c p q0 f0 h0 i0
float4 int2 double3 uchar4 __global__ __shared__ __syncthreads __expf rint normcdfinv float_ float__ v__x __x vv__x T_
"""
ALL = [*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *CPP.split(), *CUDA.split(), *OURS.split()]
TAKEN = {*keyword.kwlist, *TABLE, *CONSTANTS}  # what a text says otherwise, or what the language of formulas has
NAMES = [name for name in dict.fromkeys(ALL) if name not in TAKEN and name.isidentifier()]
EACH = 12
TUPLES = [tuple(NAMES[i : i + EACH]) for i in range(0, len(NAMES), EACH)]


def everyday(step):
    """The tuples, of which one of so many is tried every day."""
    return [pytest.param(names, marks=[pytest.mark.slow] * bool(i % step)) for i, names in enumerate(TUPLES)]


def mixed(names):
    """A formula in which each name occurs several times, and its value."""
    text = " + ".join(f"{a} * 2 + sigmoid({a}) * {b}" for a, b in zip(names, names[1:] + names[:1]))

    def value(arrays):
        return sum(2 * a + b / (1 + np.exp(-a)) for a, b in zip(arrays, [*arrays[1:], arrays[0]]))

    return Formula(text), value


def samples(count, *shape):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("name", [name for name in keyword.kwlist if name != "not"])
def test_words_of_python_are_refused_as_names(name):
    with pytest.raises(FormulaError):
        Formula(f"{name} + 1")


@pytest.mark.parametrize("names", TUPLES, ids=lambda names: names[0])
def test_any_name_serves_in_a_formula_its_derivatives_and_its_text(names):
    formula, value = mixed(names)
    arrays = samples(len(names), 3)
    given = dict(zip(names, arrays))
    assert formula.names == names
    np.testing.assert_allclose(formula(**given), value(arrays), 1e-5, 1e-5)
    assert Formula(str(formula)) == formula
    for name in names[:3]:
        slope = formula.derivative(name)
        assert formula.differential(**{name: 1}) == slope
        assert slope(**{n: given[n] for n in slope.names}).shape == (3,)
        other = formula.put(**{name: "others"})
        np.testing.assert_array_equal(
            other(**{"others" if n == name else n: given[n] for n in names}), formula(**given)
        )


@pytest.mark.parametrize("names", TUPLES, ids=lambda names: names[0])
def test_any_name_serves_in_a_module_eagerly_and_compiled(names):
    formula, value = mixed(names)
    arrays = samples(len(names), 4, 3)
    nodes = [Input(name=f"x{i}").node() for i in range(len(names))]
    net = Graph(nodes, Pointwise(formula=str(formula)).node(*nodes))
    y = net(*arrays)
    np.testing.assert_allclose(y, value(arrays), 1e-5, 1e-5)
    net.backward(np.ones_like(y))
    wanted = [np.array(g) for g in net.grad]
    step = np.float32(1e-2)
    for i in range(2):
        moved = [x + step * (j == i) for j, x in enumerate(arrays)], [x - step * (j == i) for j, x in enumerate(arrays)]
        np.testing.assert_allclose(wanted[i], (value(moved[0]) - value(moved[1])) / (2 * step), 1e-2, 1e-2)
    program = Program(net, [x.shape for x in arrays], ["f4"] * len(arrays), grads=(True,))
    assert program.executable is not None, program.why
    np.testing.assert_allclose(program.run(*arrays, np.ones_like(y)), y, 1e-5, 1e-5)
    for found, truth in zip(program.grad, wanted):
        np.testing.assert_allclose(found, truth, 1e-5, 1e-5)


def test_a_result_may_be_written_to_an_array_unless_a_variable_is_called_out():
    x, room = np.ones(3, np.float32), np.zeros(3, np.float32)
    assert Formula("2 * x")(x=x, out=room) is room
    np.testing.assert_array_equal(Formula("2 * out")(out=x), 2 * x)


def test_names_in_the_text_of_a_kernel_stay_different():
    found = [asVariable(name) for name in NAMES]
    assert len(set(found)) == len(NAMES)
    assert not {*CPP.split(), *CUDA.split()} & set(found)
    assert [asVariable(name) for name in ("x", "beta", "x0", "gain")] == ["x", "beta", "x0", "gain"]


@needsEmulator
@pytest.mark.parametrize("names", everyday(2), ids=lambda names: names[0])
def test_any_name_serves_in_the_text_of_a_kernel(names):
    formula, value = mixed(names)
    arrays = samples(len(names), 5)
    params = "".join(f"const float* p_{i}, " for i in range(len(names)))
    loads = " ".join(f"const float {asVariable(n)} = p_{i}[threadIdx.x];" for i, n in enumerate(names))
    body = f"float result; {{ typedef float T; {loads} {formula.cuda('result')} }}"
    text = f'{formula.preamble("float")}\nextern "C" __global__ void whole({params}float* p_y) {{ {body} p_y[threadIdx.x] = result; }}'
    got = np.zeros(5, np.float32)
    slots = tuple(("pointer", x) for x in (*arrays, got))
    runAll([Launch("whole", text, "whole", slots, (1, 1, 1), (5, 1, 1))])
    np.testing.assert_allclose(got, value(arrays), 1e-5, 1e-5)
    if any(map(isAxis, names)):  # an index, in a nest of its own
        return
    got[:] = 0
    loads = {n: Operand("f32", x, (1,)) for n, x in zip(names, arrays)}
    runAll(launches(LoopNest((5,), loads, (("result", formula),), {"result": Operand("f32", got, (1,))})))
    np.testing.assert_allclose(got, value(arrays), 1e-5, 1e-5)


@needsEmulator
@pytest.mark.parametrize("names", everyday(6), ids=lambda names: names[0])
def test_any_name_serves_in_an_update_on_a_gpu(names):
    first, second, *others = names
    formulas = {first: Formula(f"{first} + {second} * {others[0]}"), second: Formula(f"{second} * 2")}
    x, y, factor = *samples(2, 40), np.array(0.5, np.float32)
    wanted = x + y / 2, y * 2
    runAll(updates(formulas, [{first: x, second: y}], [{others[0]: factor}]))
    np.testing.assert_allclose(x, wanted[0], 1e-6, 1e-6)
    np.testing.assert_array_equal(y, wanted[1])


CONSTANT = ["x ** 0 + y", "y + where(1 > 0, y, x)", "x ** 0 * y", "0 * x + y", "x - x + y", "(x > 0) * 0 + y"]


@pytest.mark.parametrize("shapes", [((4, 3), (4, 3)), ((4, 3), (3,)), ((4, 1), (3,)), ((), (2,))])
@pytest.mark.parametrize("text", CONSTANT)
def test_a_variable_that_no_result_needs_still_counts_for_its_shape(text, shapes):
    nodes = [Input(name=name).node() for name in "xy"]

    class Some(Pointwise):
        formula = text
        inputs = ("x", "y")

    x, y = (np.asarray(samples(1, *shape)[0]) for shape in shapes)
    net = Graph(nodes, Some().node(*nodes))
    wanted = net(x, y)
    assert wanted.shape == net.dataShapeFrom(list(shapes)) == np.broadcast_shapes(*shapes)
    net.backward(np.ones_like(wanted))
    program = Program(net, [x.shape, y.shape], ["f4", "f4"], grads=(True,))
    assert program.executable is not None, program.why
    np.testing.assert_array_equal(program.run(x, y, np.ones_like(wanted)), wanted)
    for found, truth in zip(program.grad, net.grad):
        np.testing.assert_array_equal(found, truth)


@pytest.mark.parametrize("text", ["x ** 0", "where(1 > 0, 2, x)"])
def test_a_formula_that_needs_no_variable_at_all_has_the_shape_of_its_input(text):
    module = Pointwise(formula=text)
    x = samples(1, 4, 3)[0]
    y = module(x)
    assert y.shape == x.shape and y.dtype == x.dtype and (y == y[0, 0]).all()
    module.backward(np.ones_like(y))
    np.testing.assert_array_equal(module.grad, np.zeros_like(x))
    out = np.empty_like(x)
    assert module.updateData(x, out=out) is out and (out == y).all()
    np.testing.assert_array_equal(Sequential(module).compile(x.shape, train=False).run(x), y)
