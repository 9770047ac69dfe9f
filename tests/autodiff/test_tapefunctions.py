"""Functions on the tape: both styles, what they keep, what they are handed and give back."""

from collections import Counter

import numpy as np
import pytest
from tapes import Scaled, Split, leaf, number

from puregraph.autodiff import (
    AutoDiffException,
    Function,
    GradientEdge,
    Variable,
    accumulate,
    enable_grad,
    get_gradient_edge,
    grad,
    is_grad_enabled,
    no_grad,
    once_differentiable,
    zero_like,
)
from puregraph.core.errors import GraphError, PuregraphError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Relu


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


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


class Written(Function):
    @staticmethod
    def forward(ctx, a, b):
        a[1:2] += b
        return a

    @staticmethod
    def backward(ctx, g):
        return g, g[1:2]


class Handed(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        g[0] = 0
        return g


def test_an_input_that_a_function_writes_into_keeps_its_gradient():
    a, b = leaf([1.0, 1.0]), leaf([1.0])
    h = a + 1
    y = Written.apply(h, b)
    assert y.data.tolist() == h.data.tolist() == [2, 3]
    y.sum().backward()
    assert a.grad.tolist() == [1, 1] and b.grad.tolist() == [1]


def test_a_leaf_that_a_function_writes_into_is_refused():
    with pytest.raises(AutoDiffException, match="a leaf that requires a gradient is not written into"):
        Written.apply(leaf([1.0, 1.0]), leaf([1.0]))


@pytest.mark.parametrize("write", [lambda h: h.__setitem__(0, 5.0), lambda h: np.add(h, 3.0, out=h)], ids=["[]", "out"])
def test_a_write_under_no_grad_changes_the_value_and_leaves_the_graph(write):
    a = leaf([1.0, 1.0])
    h = a * 2
    with no_grad():
        write(h)
    assert h.data[0] == 5 and h.requires_grad
    h.sum().backward()
    assert a.grad.tolist() == [2, 2]


def test_a_write_under_no_grad_is_noticed_by_what_needs_the_value():
    h = leaf([1.0, 1.0]) * 2
    y = np.exp(h)
    with no_grad():
        h[0] = 5.0
    with pytest.raises(AutoDiffException, match="modified in place"):
        y.sum().backward()


def test_a_function_under_no_grad_that_returns_its_input_gives_a_variable_without_gradient():
    a = leaf([1.0, 1.0])
    with no_grad():
        y = Handed.apply(a)
    assert y is not a and not y.requires_grad and a.requires_grad
    captured = leaf([2.0])

    class Captured(Handed):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_non_differentiable(x)
            return x, captured

    assert not any(y.requires_grad for y in Captured.apply(Variable(np.ones(1))))
    assert [y.requires_grad for y in Captured.apply(a)] == [False, True]


def test_a_function_in_a_graph_that_writes_into_what_others_read_is_refused():
    x, b = Input(name="x").node(), Input(name="b").node()
    net = Graph([x, b], Written.node(Relu(name="r").node(x), b, name="w"))
    with pytest.raises(
        PuregraphError, match="Written.forward writes into an input, which other nodes read: write into a copy"
    ):
        net(np.ones(2), np.ones(1))
    net = Graph(x, Handed.node(x, name="h"))
    y = net(np.ones(2))
    assert y.flags.writeable
    with pytest.raises(PuregraphError, match="Handed.backward writes into a gradient or a saved value"):
        net.backward(np.ones(2))


class Saved(Function):
    @staticmethod
    def forward(ctx, x):
        y = np.exp(x)
        ctx.save_for_backward(y)
        return y * 2

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return 2 * y * g


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x


def test_what_was_saved_has_the_name_that_torch_has_for_it_too():
    x = leaf([0.0, 1.0])
    Saved.apply(x).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * np.exp([0.0, 1.0]))
    node = Input(name="x").node()
    net = Graph(node, Saved.node(node, name="s"))
    net(np.zeros(2))
    net.backward(np.ones(2))
    assert net.grad.tolist() == [2, 2]


def test_a_second_derivative_through_what_was_saved_in_between_says_why_there_is_none():
    x = leaf([0.0, 1.0])
    (first,) = grad(Saved.apply(x).sum(), x, create_graph=True)
    with pytest.raises(AutoDiffException, match="its forward saved between inputs and outputs.*save inputs or outputs"):
        grad(first.sum(), x)


def test_nodes_and_variables_are_not_mixed_up():
    with pytest.raises(GraphError, match="Saved.apply: wanted Variables and constants, got a Node; use Saved.node"):
        Saved.apply(Input(name="x").node())
    with pytest.raises(GraphError, match="Saved.apply: wanted Variables"):
        Saved.apply(leaf([1.0]), [Input(name="x").node()])
    with pytest.raises(GraphError, match="Saved.node: wanted nodes and constants, got a Variable; use Saved.apply"):
        Saved.node(leaf([1.0]))
    with pytest.raises(GraphError, match="Variable: wanted a value, got a Node"):
        Variable(Input(name="x").node())
    with pytest.raises(AutoDiffException, match="mark_dirty: an input is not written into; write into a copy"):
        Dirty.apply(leaf([1.0]))
