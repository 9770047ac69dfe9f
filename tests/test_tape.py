"""The tape: Variables, Functions, nodes and edges, and the passes that go back over them."""

import copy
import gc
import pickle
import threading
import weakref
from collections import Counter

import numpy as np
import pytest

from puregraph.autodiff import (
    AutoDiffException,
    CycleError,
    Function,
    GradientEdge,
    Node,
    Variable,
    accumulate,
    backward,
    enable_grad,
    get_gradient_edge,
    grad,
    is_grad_enabled,
    no_grad,
    once_differentiable,
    set_grad_enabled,
    zero_like,
)


def leaf(data, dtype=np.float64):
    return Variable(np.array(data, dtype), requires_grad=True)


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


def number(value):
    return Variable(float(value), requires_grad=True)


class Scaled(Function):
    """x * y * k, the context in forward."""

    needs = None

    @staticmethod
    def forward(ctx, x, y, k):
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * y * k

    @staticmethod
    def backward(ctx, g):
        Scaled.needs = ctx.needs_input_grad
        x, y = ctx.saved_variables
        return g * y * ctx.k, g * x * ctx.k if ctx.needs_input_grad[1] else None, None


class Split(Function):
    """The same in the other style."""

    @staticmethod
    def forward(x, y, k):
        return x * y * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y)

    backward = Scaled.backward


# Functions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [Scaled, Split])
def test_a_function_in_either_style(style):
    x, y = leaf([1.0, 2.0]), Variable(np.array([3.0, 4.0]))
    z = style.apply(x, y, 2)
    assert z.data.tolist() == [6, 16] and z.requires_grad and not z.is_leaf
    edges = z.grad_fn.next_functions
    assert edges == (get_gradient_edge(x), GradientEdge(None, 0)) and edges[0].node.name() == "AccumulateGrad"
    z.backward(np.array([1.0, 10.0]))
    assert Scaled.needs == (True, False, False)
    assert x.grad.tolist() == [6, 80] and y.grad is None


@pytest.mark.parametrize("style", [Scaled, Split])
def test_a_function_can_be_differentiated_twice(style):
    x, y = number(2), number(5)
    z = style.apply(x, y * x, 3)  # 3 x^2 y
    (first,) = grad(z, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True)
    assert (first.data, second.data) == (60, 30)
    assert grad(second, y) == (6,)


def test_a_function_with_another_number_of_gradients_is_an_error():
    class Two(Function):
        @staticmethod
        def forward(ctx, x, y, k):
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g, g

    x = leaf([1.0])
    with pytest.raises(RuntimeError, match="Two.backward returned 2 gradients, expected 3"):
        Two.apply(x, x, 2).backward()
    assert x.grad is None


def test_a_function_with_a_gradient_of_another_shape_is_an_error():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.sum()

    x = leaf([1.0, 2.0])
    with pytest.raises(AutoDiffException, match=r"Wrong.*\(2,\).*\(\)"):
        Wrong.apply(x).backward(np.ones(2))
    assert x.grad is None


def test_a_function_is_not_an_object_and_says_what_it_lacks():
    with pytest.raises(RuntimeError, match="Scaled should not be instantiated"):
        Scaled()
    with pytest.raises(NotImplementedError, match="static method forward"):
        Function.apply(leaf([1.0]))

    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="static method backward"):
        Half.apply(number(1)).backward()
    with pytest.raises(NotImplementedError, match="setup_context"):
        Function.setup_context(None, (), None)


def test_a_function_takes_keywords_lists_and_dicts():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, parts, scale, by=None):
            ctx.save_for_backward(*parts, by["w"])
            ctx.scale = scale
            return sum(parts[1:], parts[0]) * by["w"] * scale

        @staticmethod
        def backward(ctx, g):
            *parts, w = ctx.saved_variables
            needs.append(ctx.needs_input_grad)
            return [g * w * ctx.scale for _ in parts], None, {"w": g * sum(parts[1:], parts[0]) * ctx.scale}

    needs = []
    a, b, w = number(1), Variable(2.0), number(3)
    y = Weighted.apply([a, b], 10, by={"w": w})
    assert y.data == 90
    assert [edge.node is None for edge in y.grad_fn.next_functions] == [False, True, False]
    y.backward()
    assert needs == [(True, False, True)]
    assert (a.grad, b.grad, w.grad) == (30, None, 30)


def test_a_list_wants_a_list_of_gradients():
    class Total(Function):
        @staticmethod
        def forward(ctx, parts):
            return parts[0] + parts[1]

        @staticmethod
        def backward(ctx, g):
            return [g]

    a, b = number(1), number(2)
    with pytest.raises(AutoDiffException, match="Total.backward: an input that is a list of 2 wants a list"):
        Total.apply([a, b]).backward()


def test_a_function_with_several_outputs():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2, x * x, 7

        @staticmethod
        def backward(ctx, *grads):
            seen.append(tuple(getattr(g, "data", g) for g in grads))
            (x,) = ctx.saved_variables
            return grads[0] * 2 + grads[1] * 2 * x

    seen = []
    x = number(3)
    twice, square, seven = Both.apply(x)
    assert (twice.output_nr, square.output_nr, twice.grad_fn is square.grad_fn) == (0, 1, True)
    assert not seven.requires_grad and seven.grad_fn is None
    square.backward(retain_graph=True)
    assert x.grad == 6 and seen[0][:2] == (0, 1)
    (twice + square).backward()
    assert x.grad == 6 + 8 and seen[1][:2] == (1, 1)


def test_gradients_that_are_missing_are_variables_of_zeros_or_none():
    class Pair(Function):
        materialize = True

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(Pair.materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return a * 2 if b is None else a.data * 2 + b.data * 3

    seen = []
    x = leaf([1.0, 2.0])
    Pair.apply(x)[0].backward(np.ones(2))
    assert isinstance(seen[0][1], Variable) and seen[0][1].data.tolist() == [0, 0]
    Pair.materialize = False
    Pair.apply(x)[0].backward(np.ones(2))
    assert seen[1][1] is None and x.grad.tolist() == [4, 4]


def test_an_output_marked_non_differentiable_has_no_gradient():
    class Peak(Function):
        @staticmethod
        def forward(ctx, x):
            y, where = x * 2, x * 0
            ctx.mark_non_differentiable(where)
            return y, where

        @staticmethod
        def backward(ctx, g, _):
            return g * 2

    x = leaf([1.0, 2.0])
    y, where = Peak.apply(x)
    assert y.requires_grad and not where.requires_grad and where.is_leaf
    y.backward(np.ones(2))
    assert x.grad.tolist() == [2, 2]


def test_a_saved_output_is_the_variable_that_apply_returned():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = np.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_variables
            return g * y

    x = number(1)
    g = Exp.apply(x)
    for _ in range(3):
        (g,) = grad(g, x, create_graph=True)
        assert g.data == np.exp(1.0)


def test_an_input_returned_as_it_is_becomes_another_variable():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf([1.0, 2.0])
    y = Same.apply(x)
    assert y is not x and y.grad_fn.name() == "SameBackward0" and x.is_leaf
    seed = np.array([1.0, 5.0])
    (y + Same.apply(x)).backward(seed)
    assert x.grad.tolist() == [2, 10] and seed.tolist() == [1, 5]


def test_once_differentiable_is_loud_the_second_time():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_variables
            return Variable(3 * x.data**2 * g.data)

    x = number(2)
    Cube.apply(x).backward()
    assert x.grad == 12
    (first,) = grad(Cube.apply(x) + x * x, x, create_graph=True)
    assert first.data == 16
    with pytest.raises(AutoDiffException, match="Cube.*once_differentiable"):
        grad(first, x)


def test_nothing_is_recorded_inside_a_function():
    class Deep(Function):
        @staticmethod
        def forward(ctx, x):
            inside.append((x * 2).requires_grad)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            inside.append(is_grad_enabled())
            return g * 2

    inside = []
    Deep.apply(number(1)).backward()
    grad(Deep.apply(number(1)), number(1), create_graph=True, allow_unused=True)
    x = number(1)
    grad(Deep.apply(x), x, create_graph=True)
    assert inside == [False, False, False, False, True]


def test_values_of_a_type_of_ones_own_flow():
    @accumulate.register
    def _(total: Counter, new: Counter):
        return total + new

    @zero_like.register
    def _(value: Counter):
        return Counter()

    class Join(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a.data + b.data

        @staticmethod
        def backward(ctx, g):
            return g, g

    a = Variable(Counter("ab"), requires_grad=True)
    middle = Join.apply(a, Variable(Counter("c")))
    top = Join.apply(middle, middle)
    top.backward(Counter(x=1))
    assert [found.data if isinstance(found, Variable) else found for found in a.grad] == [Counter(x=2)]
    top = Join.apply(a, a)
    a.zero_grad()
    top.backward(Counter(y=1))
    assert len(a.grad) == 2


# Nodes and edges ------------------------------------------------------------------------------------------------------


NAMES = {
    "AddBackward0": lambda x: x + x,
    "SubBackward0": lambda x: 1 - x,
    "MulBackward0": lambda x: 2 * x,
    "DivBackward0": lambda x: x / 2,
    "PowBackward0": lambda x: x**2,
    "NegBackward0": lambda x: -x,
    "AbsBackward0": abs,
    "MatmulBackward0": lambda x: x @ x,
    "SumBackward0": lambda x: x.sum(),
    "MeanBackward0": lambda x: np.mean(x),
    "MaxBackward0": lambda x: x.max(),
    "ExpBackward0": np.exp,
    "IndexBackward0": lambda x: x[0],
    "ReshapeBackward0": lambda x: x.reshape(-1),
    "TransposeBackward0": lambda x: x.T,
    "ConcatenateBackward0": lambda x: np.concatenate([x, x]),
    "TakeAlongAxisBackward0": lambda x: np.take_along_axis(x, np.zeros((2, 1), int), 1),
    "AstypeBackward0": lambda x: x.astype(np.float32),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_node_is_called_as_in_torch(name):
    y = NAMES[name](leaf([[1.0, 2.0], [3.0, 4.0]]))
    assert y.grad_fn.name() == name
    assert str(y.grad_fn).startswith(f"<{name} object at 0x") and f"grad_fn={name}" in repr(y)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
def test_an_operator_and_numpys_function_leave_the_same_node(operator):
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    function = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator]
    pairs = [(eval(f"x {operator} y"), function(x, y)), (eval(f"2 {operator} y"), function(np.array(2.0), y))]
    for a, b in pairs:
        assert a.grad_fn.name() == b.grad_fn.name() and np.array_equal(a.data, b.data)
        wanted = [v for v in (x, y) if get_gradient_edge(v) in a.grad_fn.next_functions]
        seed = np.array([0.3, -0.7])
        for g, h in zip(grad(a, wanted, seed), grad(b, wanted, seed)):
            assert np.array_equal(g, h)


def test_next_functions_are_in_the_order_of_the_arguments():
    x, c, y = leaf([1.0]), Variable(np.ones(1)), leaf([2.0])
    z = np.concatenate([x, c, np.ones(2), y, x])
    edges = z.grad_fn.next_functions
    assert edges == (*map(get_gradient_edge, (x,)), GradientEdge(None, 0), *map(get_gradient_edge, (y, x)))
    assert isinstance(edges, tuple) and all(type(edge) is GradientEdge for edge in edges)
    assert repr(edges[1]) == "(None, 0)" and repr(edges[0]).startswith("(<AccumulateGrad object at 0x")
    assert (c * x).grad_fn.next_functions == (GradientEdge(None, 0), get_gradient_edge(x))
    assert (3 * x).grad_fn.next_functions == (get_gradient_edge(x),)


def test_the_edge_of_a_variable():
    x = leaf([1.0])
    assert get_gradient_edge(x).node is get_gradient_edge(x).node and get_gradient_edge(x).node.variable is x
    parts = np.split(x * np.ones(4), 2)
    assert [get_gradient_edge(part).output_nr for part in parts] == [0, 1]
    assert parts[1].output_nr == 1 and parts[0].grad_fn.num_outputs == 2
    with pytest.raises(RuntimeError, match="does not require grad or does not have a grad_fn"):
        get_gradient_edge(Variable(1.0))


@pytest.mark.parametrize("edges", [[3], [("a", 0)], [(None, "0")], [(None, True)], 5])
def test_next_functions_take_edges_only(edges):
    with pytest.raises(TypeError):
        number(1).__mul__(2).grad_fn.next_functions = edges


def test_next_functions_know_how_many_outputs_a_node_has():
    a, b = number(1) * 2, number(1) * 3
    with pytest.raises(TypeError, match="MulBackward0.next_functions: MulBackward0 has 1 output.*got 1"):
        a.grad_fn.next_functions = [(b.grad_fn, 1)]


def test_edges_may_be_set_by_hand():
    x, other = number(3), number(5)
    y = x * x * x
    y.grad_fn.next_functions = (get_gradient_edge(other), GradientEdge(None, 0))
    y.backward()
    assert (x.grad, other.grad) == (None, 3)  # the right hand x of (x x) x is cut off


def test_a_node_of_ones_own_stands_in_the_graph():
    class Negate(Node):
        def apply(self, g):
            return -g

    x = number(2)
    y = x * 3
    node = Negate([get_gradient_edge(x)])
    y.grad_fn.next_functions = [(node, 0)]
    y.backward()
    assert x.grad == -3 and node.name() == "Negate"
    with pytest.raises(NotImplementedError, match="Subclasses should implement"):
        Node().apply()


def test_a_cycle_is_named():
    x = number(1)
    a = x * 2
    b = np.exp(a)
    a.grad_fn.next_functions = [(b.grad_fn, 0)]
    for kind in (CycleError, ValueError, AutoDiffException):
        with pytest.raises(kind, match="Cycle detected: .*ExpBackward0, MulBackward0"):
            b.backward()


def test_a_node_cannot_be_copied():
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="MulBackward0 belongs to one pass"):
            copied((number(1) * 2).grad_fn)


# Variables ------------------------------------------------------------------------------------------------------------


def test_a_leaf_and_what_was_made_of_it():
    x = number(2)
    y = x * x
    assert (x.is_leaf, y.is_leaf, x.requires_grad, y.requires_grad) == (True, False, True, True)
    assert x.grad_fn is None and x.grad is None
    assert repr(x) == "Variable(np.float64(2.0), requires_grad=True)"
    assert (Variable(1.0) * 2).is_leaf and not (Variable(1.0) * 2).requires_grad
    for name, value in [("grad_fn", None), ("is_leaf", True)]:
        with pytest.raises(AttributeError):
            setattr(y, name, value)


def test_what_is_no_leaf_keeps_its_gradient_if_told_to():
    x = number(3)
    y = x * x
    with pytest.raises(RuntimeError, match="MulBackward0 made is not kept: call retain_grad"):
        y.grad
    with pytest.raises(RuntimeError, match="retain_grad"):
        y.grad = 1.0
    with pytest.raises(RuntimeError, match="a leaf keeps its gradient"):
        x.retain_grad()
    y.retain_grad()
    y.retain_grad()
    assert y.grad is None
    z = y * 2 + y * 5
    z.backward(retain_graph=True)
    assert (y.grad, x.grad) == (7, 42)
    z.backward()
    assert y.grad == 14
    y.zero_grad()
    assert y.grad is None


@pytest.mark.parametrize("data", [1, True, np.arange(3), np.array([True]), 1j, np.ones(2, complex), None])
def test_only_floats_can_require_gradients(data):
    with pytest.raises(TypeError, match="only floating point values"):
        Variable(data, requires_grad=True)
    v = Variable(data)
    with pytest.raises(TypeError, match="only floating point values"):
        v.requires_grad = True
    assert not v.requires_grad


def test_integers_are_read_and_have_no_gradient():
    x, i = leaf([1.0, 2.0, 3.0]), Variable(np.array([2, 2, 0]))
    y = (x[i] * i).sum()
    y.backward()
    assert x.grad.tolist() == [0, 0, 4] and not (i * 2).requires_grad
    assert not np.argmax(x).ndim and not np.floor_divide(i, 2).requires_grad
    assert not (x > 1).requires_grad and (x > 1).data.tolist() == [False, True, True]
    assert not x.astype(int).requires_grad


def test_requires_grad_is_for_leaves():
    x = number(1)
    with pytest.raises(AutoDiffException, match="leaf only; use detach"):
        (x * 2).requires_grad_(False)
    x.requires_grad = False
    assert (x * 2).is_leaf
    assert Variable(2.0).requires_grad_().requires_grad


def test_detach_cuts():
    x = number(2)
    y = (x * x).detach()
    assert y.is_leaf and not y.requires_grad and y.data == 4
    (y * x).backward()
    assert x.grad == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_have_the_dtype_of_their_values(dtype):
    x, w = leaf([[0.5, 1.5]], dtype), leaf([[1.0], [2.0]], dtype)
    y = np.tanh((x @ w) * 2 + 1).sum() / 3 - x.mean() ** 2
    assert y.dtype == dtype
    y.backward()
    assert x.grad.dtype == w.grad.dtype == dtype


def test_mixed_dtypes_come_back_each_in_its_own():
    x, y, z = leaf([1.0, 2.0], np.float32), leaf([[3.0], [4.0]]), leaf(0.5, np.float16)
    for make in (lambda: x * y * z, lambda: np.hypot(x, y) * z, lambda: np.concatenate([x, y[:, 0]]) * z):
        for g, v in zip(grad(make().sum(), [x, y, z]), (x, y, z)):
            assert g.dtype == v.dtype and g.shape == v.shape
    (g,) = grad((x * y).sum(), x, create_graph=True)
    assert g.dtype == np.float32


def test_a_deep_copy_is_a_leaf_of_its_own():
    x = Variable(np.ones(2), role="weight", requires_grad=True)
    (x * 3).sum().backward()
    twin, again, other = copy.deepcopy([x, x, x * 2])
    assert twin is again and twin.role == "weight" and twin.requires_grad and twin.grad.tolist() == [3, 3]
    twin.data[0] = 5
    twin.grad[0] = 7
    assert x.data[0] == 1 and x.grad[0] == 3
    assert other.is_leaf and other.requires_grad and other.data.tolist() == [2, 2]
    nested = Variable([["a"]])
    copy.deepcopy(nested).data[0].append("b")
    assert nested.data == [["a"]]


def test_a_pickle_is_a_leaf():
    x = Variable(np.arange(3.0), role="weight", requires_grad=True)
    for v in (x, x * 2):
        twin = pickle.loads(pickle.dumps(v))
        assert np.array_equal(twin.data, v.data) and twin.role == v.role and twin.requires_grad and twin.is_leaf


def test_a_variable_acts_as_a_number():
    x = number(2)
    assert float(x) == 2 and bool(x) and x.item() == 2 and type(x.item()) is float
    assert int(x) == 2 and f"{x:.2f}" == "2.00" and f"{x}" == repr(x)
    assert Variable(np.arange(3)).tolist() == [0, 1, 2] and Variable("a").tolist() == "a"
    assert (
        (leaf([1.0, 2.0]) > 1).any()
        and not (leaf([1.0, 2.0]) > 1).all()
        and leaf([2.0, 1.0]).argsort().tolist() == [1, 0]
    )
    assert Variable(3).item() == 3 and Variable(3).dtype == int and Variable(3).shape == ()
    assert (x.ndim, x.size, x.shape, x.dtype) == (0, 1, (), np.float64)
    with pytest.raises(TypeError):
        len(x)
    with pytest.raises(TypeError):
        list(x)
    with pytest.raises(TypeError):
        x[0] = 1


def test_a_variable_is_a_sequence_of_its_rows():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    a, b = x
    (a * b).sum().backward()
    assert len(x) == 2 and x.grad.tolist() == [[3, 4], [1, 2]]


def test_comparing_goes_by_elements_and_hashing_by_identity():
    x, y = leaf([1.0, 2.0]), leaf([1.0, 3.0])
    assert (x == y).data.tolist() == [True, False] and (x != 1).data.tolist() == [False, True]
    assert len({x, y}) == 2 and {x: 1}[x] == 1
    (np.where(x == 1, x * x, x)).sum().backward()
    assert x.grad.tolist() == [2, 1]


def test_a_variable_in_a_variable_is_unwrapped():
    assert Variable(Variable(2.0)).data == 2


# Passes ---------------------------------------------------------------------------------------------------------------


def test_gradients_add_up_over_passes():
    x = number(3)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert x.grad == 12
    x.zero_grad()
    backward(y)
    assert x.grad == 6


def test_a_graph_is_freed_unless_it_is_kept():
    x = leaf([1.0, 2.0])
    for y in (x * x, np.exp(x), np.concatenate([x, x]), Scaled.apply(x, x, 1)):
        seed = np.ones(y.shape)
        y.backward(seed, retain_graph=True)
        y.backward(seed)
        with pytest.raises(RuntimeError, match=rf"{y.grad_fn.name()}: .*retain_graph=True"):
            y.backward(seed)


def test_create_graph_keeps_the_graph_too():
    x = number(2)
    y = x**3
    (g,) = grad(y, x, create_graph=True)
    assert isinstance(g, Variable) and g.requires_grad and g.data == 12
    assert grad(g, x) == (12,)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        grad(g, x)


def test_without_create_graph_there_is_no_second_derivative():
    x = number(2)
    (g,) = grad(x**3, x)
    assert not isinstance(g, Variable) and g == 12
    with pytest.raises(TypeError, match="wanted a Variable"):
        grad(g, x)
    (x**3).backward(create_graph=True)
    assert isinstance(x.grad, Variable) and x.grad.data == 12
    assert grad(x.grad, x) == (12,)


def test_third_derivatives():
    x = number(2)
    g = x**4
    for wanted in (32, 48, 48, 24):
        (g,) = grad(g, x, create_graph=True)
        assert g.data == wanted


def test_backward_of_several_variables():
    x = number(2)
    a, b = x * 3, x * x
    backward([a, b], [Variable(10.0), 1.0])
    assert x.grad == 34
    backward((x * 3, x * 4), None)
    assert x.grad == 41
    with pytest.raises(RuntimeError, match="wanted 2 gradients, one per output, got 1"):
        backward([x * 1, x * 2], [1.0])


def test_inputs_narrow_a_pass():
    x, y, z = number(2), number(3), number(4)
    out = x * y * z
    out.backward(inputs=[x, get_gradient_edge(y), x], retain_graph=True)
    assert (x.grad, y.grad, z.grad) == (12, 8, None)
    out.backward(inputs=z)
    assert z.grad == 6
    with pytest.raises(RuntimeError, match="inputs is empty"):
        (x * 2).backward(inputs=[])
    middle = x * 2
    with pytest.raises(RuntimeError, match="inputs must be leaves, got one that <MulBackward0"):
        (middle * 2).backward(inputs=[middle])


def test_inputs_that_are_not_reached_get_nothing():
    x, y = number(1), number(1)
    (x * 2).backward(inputs=[x, y])
    assert (x.grad, y.grad) == (2, None)


def test_grad_returns_and_stores_nothing():
    x, y = number(2), number(3)
    middle = x * y
    middle.retain_grad()
    out = middle * middle
    found = grad(out, [x, middle, get_gradient_edge(y), get_gradient_edge(middle)])
    assert found == (36, 12, 24, 12)
    assert (x.grad, y.grad, middle.grad) == (None, None, None)


def test_grad_of_something_unused():
    x, y = number(1), number(2)
    with pytest.raises(RuntimeError, match=r"do not depend on input 1, Variable\(np.float64\(2.0\).*allow_unused"):
        grad(x * 2, [x, y])
    assert grad(x * 2, [x, y], allow_unused=True) == (2, None)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x * 2, Variable(1.0), allow_unused=True)


def test_grad_takes_several_outputs():
    x = leaf([1.0, 2.0])
    (g,) = grad([x * 2, x * x], x, [np.ones(2), np.array([1.0, 10.0])])
    assert g.tolist() == [4, 42]


def test_only_what_leads_to_an_input_runs():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError

    x, y = number(1), number(1)
    assert grad(Bad.apply(x) * y, y) == (2,)


@pytest.mark.parametrize("wrong", [3.0, np.ones(2), "text", None, [1.0]])
def test_a_pass_starts_at_a_variable(wrong):
    with pytest.raises(TypeError, match="wanted a Variable or a GradientEdge"):
        backward(wrong)


def test_a_leaf_that_needs_no_gradient_cannot_go_back():
    with pytest.raises(RuntimeError, match="does not require grad or does not have a grad_fn"):
        Variable(1.0).backward()


def test_a_leaf_is_its_own_gradient():
    x = leaf([1.0, 2.0])
    x.backward(np.array([3.0, 4.0]))
    assert x.grad.tolist() == [3, 4]
    assert grad(x, x, np.ones(2))[0].tolist() == [1, 1]


def test_a_seed_has_the_shape_of_its_output():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"only for scalar outputs, got shape \(2,\)"):
        (x * 2).backward()
    for seed in (np.ones(3), np.ones((1, 2)), Variable(np.ones(1)), [[1.0, 2.0, 3.0]]):
        with pytest.raises(RuntimeError, match=r"wanted .*gradient"):
            (x * 2).backward(seed)
    assert x.grad is None
    (x * 2).backward(5)
    assert x.grad.tolist() == [10, 10]


@pytest.mark.parametrize(
    "start", [2, 2.0, np.float32(2), np.array(2), Variable(2.0), Variable(np.float32(2))], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_seed_takes_the_dtype_of_its_output(start, dtype):
    x = leaf(3, dtype)
    for y, slope in [(x * 4, 4), (x + 0, 1), (x**2, 6), (x, 1), (x.reshape(1)[0], 1)]:
        (g,) = grad(y, x, start)
        assert g.dtype == dtype and g == 2 * slope


def test_seeds_are_neither_written_nor_handed_on():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    seed = np.array([1.0, 10.0])
    seed.flags.writeable = False
    for make in (
        lambda: x + y,
        lambda: x.reshape(2, 1).reshape(2) + y,
        lambda: x + x + x + y,
        lambda: +x + np.copy(y),
        lambda: np.broadcast_to(x, (2,)) + y,
    ):
        x.zero_grad()
        y.zero_grad()
        make().backward(seed)
        assert not np.shares_memory(x.grad, seed) and not np.shares_memory(x.grad, y.grad)
        x.grad *= 2
        x.grad[0] = 0
        assert seed.tolist() == [1, 10] and y.grad.tolist() == [1, 10]
        a, b = grad(make(), [x, y], seed)
        assert not np.shares_memory(a, seed) and not np.shares_memory(a, b) and a.flags.writeable
    x.zero_grad()
    x.sum().backward()
    x.grad += 1
    assert x.grad.tolist() == [2, 2]


def test_a_gradient_that_a_rule_keeps_is_not_written():
    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            kept.append(np.ones(2))
            return Variable(kept[-1])

    kept = []
    x = leaf([1.0, 2.0])
    y = Keeps.apply(x) + Keeps.apply(x) + Keeps.apply(x)
    y.backward(np.ones(2))
    y = Keeps.apply(x)
    y.backward(np.ones(2))
    assert x.grad.tolist() == [4, 4] and all(g.tolist() == [1, 1] for g in kept)


def test_three_readers_are_added_in_the_order_in_which_they_ran():
    values = [0.1, 0.7, 1e16, -1e16, 0.3]
    x = number(1)
    middle = x * 1
    out = 0.0
    for v in values:
        out = middle * v + out
    total = values[0]
    for v in values[1:]:
        total = total + v
    out.backward()
    assert x.grad == total != sum(sorted(values))
    seen = []
    y = number(1)
    inner = y * 1
    backward(inner * 2 + inner * 3 + inner * inner, accumulate=lambda a, b: seen.append((a, b)) or a + b)
    assert seen == [(2, 3), (5, 1), (6, 1)] and y.grad == 7


def test_accumulate_of_a_pass_goes_for_leaves_too():
    x = number(2)
    (x * 3 + x * 5).backward(accumulate=max)
    assert x.grad == 5
    assert grad(x * 3 + x * 5, x, accumulate=min) == (3,)


def test_a_pass_that_fails_changes_nothing_and_can_be_tried_again():
    class Fragile(Function):
        broken = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            if Fragile.broken:
                raise KeyError("not today")
            return g * 2 * ctx.saved_variables[0]

    x, y = number(3), number(5)
    middle = Fragile.apply(x) * y
    middle.retain_grad()
    out = middle * y
    with pytest.raises(KeyError) as caught:
        out.backward()
    notes = getattr(caught.value, "__notes__", None) or list(caught.value.args)
    assert any("FragileBackward0" in str(note) for note in notes)
    assert (x.grad, y.grad, middle.grad) == (None, None, None) and is_grad_enabled()
    Fragile.broken = False
    out.backward()
    assert (x.grad, y.grad, middle.grad) == (150, 90, 5)


def test_an_accumulate_that_fails_changes_no_leaf():
    def refuse(a, b):
        raise ValueError("no")

    x, y = number(1), number(1)
    with pytest.raises(ValueError, match="no"):
        (x * y + y).backward(accumulate=refuse)
    assert (x.grad, y.grad) == (None, None)


def test_a_wrong_number_of_gradients_names_the_node():
    class Three(Node):
        def apply(self, g):
            return g, g, g

    x = number(1)
    y = x * 2
    y.grad_fn.next_functions = [(Three([get_gradient_edge(x)]), 0)]
    with pytest.raises(RuntimeError, match="Three returned 3 gradients, expected 1"):
        y.backward()
    assert x.grad is None


def test_no_gradient_is_no_zero():
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    class Never(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError

    x = number(1)
    Nothing.apply(Never.apply(x)).backward()
    assert x.grad is None


# Hooks ----------------------------------------------------------------------------------------------------------------


def test_hooks_of_variables():
    x = number(2)
    y = x * 3
    seen = []
    first = y.register_hook(lambda g: seen.append(float(g)))
    second = y.register_hook(lambda g: g * 10)
    third = x.register_hook(lambda g: seen.append(float(g)))
    (y + y).backward(retain_graph=True)
    assert seen == [2, 60] and x.grad == 60
    second.remove()
    second.remove()
    third.remove()
    x.zero_grad()
    y.backward(retain_graph=True)
    assert seen == [2, 60, 1] and x.grad == 3
    first.remove()
    assert grad(y, x) == (3,) and seen == [2, 60, 1]


def test_hooks_count_for_grad_and_for_what_is_retained():
    x = number(2)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    assert grad(y * 1, [y, x], retain_graph=True) == (10, 31)
    (y * 1).backward()
    assert (y.grad, x.grad) == (10, 31)


def test_hooks_of_nodes():
    x = number(2)
    y = x * x
    seen = []
    handle = y.grad_fn.register_hook(lambda found, given: seen.append((found, given)))
    y.grad_fn.register_hook(lambda found, given: tuple(g * 2 for g in found))
    y.backward(retain_graph=True)
    assert seen == [((2, 2), (1,))] and x.grad == 8
    handle.remove()
    y.backward()
    assert len(seen) == 1 and x.grad == 16


def test_a_hook_sees_variables_when_the_pass_is_recorded():
    x = number(2)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = grad(y, x, create_graph=True)
    assert g.data == 8 and grad(g, x) == (8,)  # 2 x^2


def test_a_hook_wants_a_gradient():
    with pytest.raises(AutoDiffException, match="does not require grad"):
        Variable(1.0).register_hook(print)


def test_a_hook_on_a_leaf_that_collects_sees_each_contribution():
    x = Variable({"a": 1}, requires_grad=True)

    class Both(Function):
        @staticmethod
        def forward(ctx, a, b):
            return {**a.data, **b.data}

        @staticmethod
        def backward(ctx, g):
            return g.data, {"b": 2}

    x.register_hook(lambda g: {**g, "seen": True})
    Both.apply(x, x).backward({"a": 1})
    assert x.grad == [{"a": 1, "seen": True}, {"b": 2, "seen": True}]


# Modes ----------------------------------------------------------------------------------------------------------------


def test_no_grad_in_all_spellings():
    x = number(2)

    @no_grad
    def bare(v):
        return v * v

    @no_grad()
    def called(v):
        """Says what it does."""
        return v * v

    @enable_grad()
    def enabled(v):
        return v * v

    @set_grad_enabled(False)
    def disabled(v):
        return v * v

    assert is_grad_enabled()
    assert not bare(x).requires_grad and not called(x).requires_grad and not disabled(x).requires_grad
    assert called.__name__ == "called" and called.__doc__ == "Says what it does."
    with no_grad():
        assert not is_grad_enabled() and (x * x).is_leaf and enabled(x).requires_grad
        with enable_grad():
            assert (x * x).requires_grad
            with set_grad_enabled(False):
                assert not (x * x).requires_grad
            assert is_grad_enabled()
        assert not is_grad_enabled()
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert is_grad_enabled()
    switch = no_grad()
    with switch:
        with switch:
            pass
        assert not is_grad_enabled()
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    assert is_grad_enabled()


def test_without_recording_everything_computes_the_same():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with no_grad():
        for f in (
            lambda x: x @ x,
            lambda x: np.split(x, 2)[1],
            lambda x: np.fft.fft(x),
            lambda x: np.linalg.eigh(x)[0],
        ):
            y = f(x)
            assert y.is_leaf and not y.requires_grad and np.array_equal(y.data, f(x.data))


def test_modes_belong_to_threads():
    found = []
    with no_grad():
        thread = threading.Thread(target=lambda: found.append(((number(1) * 2).requires_grad, is_grad_enabled())))
        thread.start()
        thread.join()
        assert not is_grad_enabled()
    assert found == [(True, True)]


# In place -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * x,
        lambda x: x * 2 * x,
        np.exp,
        lambda x: x @ x,
        lambda x: np.concatenate([x, x]),
        lambda x: Scaled.apply(x, x, 1),
        lambda x: Split.apply(x, x, 1),
    ],
)
def test_a_saved_value_that_was_modified_is_noticed(make):
    x = leaf([1.0, 2.0])
    y = make(x).sum()
    x.data += 1
    with pytest.raises(RuntimeError, match="Backward0.*modified in place|save_for_backward keeps was modified"):
        y.backward()
    assert x.grad is None
    make(x).sum().backward()


def test_steps_on_leaves_between_passes_are_fine():
    x = number(4)
    for _ in range(3):
        (x * x).backward()
        x.data = x.data - 0.25 * x.grad
        x.zero_grad()
    assert x.data == 0.5


def test_a_variable_is_not_written_into_an_array():
    x = leaf([1.0, 2.0])
    total = np.zeros(2)
    with pytest.raises(AutoDiffException, match=r"add: writing a Variable .*array = array \+ Variable"):
        total += x
    with pytest.raises(AutoDiffException, match="multiply: writing"):
        np.multiply(x, 2, out=total)
    assert total.tolist() == [0, 0]
    with no_grad():
        total += x
    total += x.detach()
    assert total.tolist() == [2, 4]
    with pytest.raises(AutoDiffException, match="add: this Variable is not written into"):
        np.add(1, 2, out=x)


def test_a_variable_that_is_written_into_becomes_what_was_written():
    x = leaf([1.0, 2.0])
    y = 3 * x
    assert np.add(y, x, out=y) is y
    assert y.data.tolist() == [4, 8]
    (y * y).sum().backward()
    assert x.grad.tolist() == [32, 64]
    with pytest.raises(AutoDiffException, match=r"multiply: wanted out= of shape \(\) and float64, got \(2,\)"):
        np.multiply(2.0, 3.0, out=x.detach())


def test_an_operation_that_needs_what_was_written_over_says_so():
    x = leaf([1.0, 2.0])
    y = 3 * x
    z = y * y
    np.add(y, 1, out=y)
    with pytest.raises(AutoDiffException, match="modified in place"):
        z.sum().backward()


def test_augmented_assignment_makes_a_new_variable():
    x = leaf([1.0, 2.0])
    y = x
    y += 1
    y *= x
    assert x.data.tolist() == [1, 2] and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [3, 5]


# What has no gradient -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (np.fft.fft, "no gradient is known for fft"),
        (np.linalg.eigh, "no gradient is known for eigh"),
        (np.add.reduce, "no gradient is known for reduce"),
        (lambda x: x * 1j, "multiply gives complex numbers"),
        (lambda x: np.add(x, 1, where=np.eye(2, dtype=bool)), "the gradient of add is not known with where="),
        (lambda x: np.sum(x, where=np.eye(2, dtype=bool)), "the gradient of sum is not known with where="),
        (lambda x: np.sum(x, None, None, None, False, 3.0), "the gradient of sum is not known with initial="),
        (lambda x: np.reshape(x, 4, order="F"), "the gradient of reshape is not known with order='F'"),
        (lambda x: np.take(x, [5], mode="wrap"), "the gradient of take is not known with mode='wrap'"),
        (lambda x: np.pad(x, 1, mode="edge"), "the gradient of pad is not known with mode='edge'"),
    ],
)
@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
def test_what_has_no_gradient_says_so_when_it_is_called(make, words):
    x = leaf([[2.0, 1.0], [1.0, 2.0]])
    with pytest.raises(AutoDiffException, match=words):
        make(x)
    make(x.detach())


def test_variables_may_be_given_by_name():
    x, low = leaf([1.0, 2.0, 3.0]), leaf(1.5)
    np.clip(a=x, a_min=low, a_max=2.5).sum().backward()
    assert x.grad.tolist() == [0, 1, 0] and low.grad == 1
    x.zero_grad()
    np.concatenate(arrays=[x, x]).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with no_grad():
        assert np.sum(a=x).data == 6


# Memory and threads ---------------------------------------------------------------------------------------------------


def test_a_freed_graph_lets_its_values_go():
    x = leaf(np.ones(10))
    middle = x * 2
    watched = weakref.ref(middle)
    out = (middle * middle).sum()
    del middle
    out.backward()
    gc.collect()
    assert watched() is None and out.grad_fn is not None


def test_a_dropped_graph_needs_no_collector():
    x = leaf(np.ones(10))
    gc.collect()
    gc.disable()
    try:
        node = weakref.ref((np.exp(x) * 2).grad_fn)
        assert node() is None
    finally:
        gc.enable()


def test_two_threads_record_and_go_back_at_once():
    shared = leaf(np.zeros(3))
    found, start = {}, threading.Barrier(2)

    def work(key):
        start.wait()
        x = number(key)
        y = x
        for _ in range(300):
            y = y * 1.001 + x * 0
            (shared * 1.0).sum().backward()
        with no_grad():
            silent = y * 2
        (g,) = grad(y, x)
        found[key] = (float(g), silent.requires_grad, is_grad_enabled())

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = number(1)
    y = expected
    for _ in range(300):
        y = y * 1.001 + expected * 0
    wanted = float(grad(y, expected)[0])
    assert found == {1: (wanted, False, True), 2: (wanted, False, True)}
    assert shared.grad.tolist() == [600, 600, 600]
