"""Functions of one's own on text, on the tape and in graphs."""

import re
from collections import Counter

import pytest
from textclient import text, words

from puregraph import DataError, Function, Graph, Input, autodiff
from puregraph.autodiff import BackwardGraph, ForwardGraph, Variable
from puregraph.compat.text import (
    Add,
    Split,
    Sum,
)
from puregraph.core.accumulate import accumulate

# Functions of one's own -----------------------------------------------------------------------------------------------


class Scaled(Function):
    """k x y, with a context."""

    kept = []

    @staticmethod
    def forward(ctx, x, y, k):
        Scaled.kept.append(ctx.needs_input_grad)
        ctx.save_for_backward(x, y)
        ctx.k = k
        return Variable(x.data * y.data * k)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_variables
        return grad * y * ctx.k, grad * x * ctx.k if ctx.needs_input_grad[1] else None, None


class ScaledApart(Function):
    """k x y, with the context filled apart."""

    kept = []

    @staticmethod
    def forward(x, y, k):
        return Variable(x.data * y.data * k)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ScaledApart.kept.append(ctx.needs_input_grad)
        ctx.save_for_backward(*inputs)

    backward = staticmethod(lambda ctx, grad: (grad * ctx.saved_variables[1] * ctx.saved_variables[2], None, None))


@pytest.mark.parametrize("function", [Scaled, ScaledApart])
def test_both_styles_know_which_inputs_need_a_gradient(function):
    x, y = Variable(3.0, requires_grad=True), Variable(5.0)
    z = function.apply(x, y, 2)
    assert function.kept[-1] == (True, False, False)
    leaf, nowhere = z.grad_fn.next_functions
    assert (leaf.node.name(), leaf.output_nr, nowhere) == ("AccumulateGrad", 0, (None, 0))
    assert str(nowhere) == "(None, 0)" and z.grad_fn.name() == f"{function.__name__}Backward0"
    z.backward()
    assert (z.data, x.grad, y.grad) == (30.0, 10.0, None)


def test_a_variable_given_by_keyword_gets_its_gradient():
    x, y = Variable(3.0, requires_grad=True), Variable(5.0, requires_grad=True)
    Scaled.apply(x, k=2, y=Variable(7.0)).backward()
    assert x.grad == 14.0
    Scaled.apply(x, y, k=2).backward()
    assert (x.grad, y.grad) == (24.0, 6.0)


def test_a_function_is_never_an_object_and_its_methods_must_be_written():
    with pytest.raises(RuntimeError, match="Scaled should not be instantiated"):
        Scaled()
    for call in (Function.forward, Function.backward, Function.setup_context):
        with pytest.raises(NotImplementedError):
            call(*[None] * (3 if call is Function.setup_context else 1))


def test_another_number_of_gradients_than_inputs_is_an_error():
    class Short(Scaled):
        backward = staticmethod(lambda ctx, grad: (grad, grad))

    x = Variable(3.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="Short.backward returned 2 gradients, expected 3"):
        Short.apply(x, Variable(5.0), 2).backward()
    assert x.grad is None


class Reversed(Function):
    """A text backwards, in text or Variables."""

    dataShapeFrom = staticmethod(lambda *shapes: ())

    @staticmethod
    def forward(x):
        return Variable(x.data[::-1], role=x.role) if isinstance(x, Variable) else x[::-1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_variables
        if not isinstance(x, Variable):
            return f"reversed: {grad}"
        return Variable(f"reversed feedback for {x.role}: {grad.data}", role=f"feedback to {x.role}")


def test_a_function_on_text_keeps_roles_on_the_tape_and_works_in_a_graph():
    a = text("abc", "input")
    c = Reversed.apply(a)
    assert (c.data, c.role, c.grad_fn.name()) == ("cba", "input", "ReversedBackward0")
    c.backward("longer")
    assert words(a.grad) == ["reversed feedback for input: longer"] and a.grad[0].role == "feedback to input"
    x = Input(name="x").node()
    graph = Graph(x, Reversed.node(x))
    assert graph("abc") == "cba"
    graph.backward("longer")
    assert graph.grad == "reversed: longer"


# In a graph -----------------------------------------------------------------------------------------------------------


class Pair(Split):
    """A split with two parts, for a graph."""

    outputNames = ("left", "right")


def graphOfText():
    x, y = Input(name="x").node(), Input(name="y").node()
    pair = Pair.node(Add.node(x, " end"), " ", 1, name="pair")
    return Graph([x, y], Sum.node([(pair, "right"), y, (pair, "left"), (pair, "left")]))


def test_texts_flow_through_a_graph():
    graph = graphOfText()
    assert graph.dataShapeFrom((), ()) == ()
    assert graph("one two", "last") == "".join(f"<ITEM>{t}</ITEM>" for t in ("two end", "last", "one", "one"))
    graph.backward("F")
    x, y = graph.grad
    assert type(x) is type(y) is str
    assert y == "For item 2, as one of several items that stand together: F"
    assert x.index("item 3") < x.index("item 4") < x.index("item 1")


def test_a_graph_and_the_tape_say_the_same_but_for_the_roles():
    graph = graphOfText()
    graph("one two", "last")
    graph.backward("F")
    x, y = text("one two"), text("last")
    out = graph(x, y)
    out.backward("F")
    found = [*words(x.grad), *words(y.grad)]
    assert isinstance(out, Variable) and found != graph.grad
    assert [re.sub("For [^,]*", "", g) for g in found] == [re.sub("For [^,]*", "", g) for g in graph.grad]


def test_a_graph_knows_the_roles_of_variables():
    graph = graphOfText()
    x, y = text("one two", "question"), text("last", "hint")
    graph(x, y).backward("F")
    assert y.grad[0].role == "feedback to hint" and "For hint" in y.grad[0].data


def test_a_split_of_another_number_of_parts_names_both():
    x = Input(name="x").node()
    graph = Graph(x, (Pair.node(x), "left"))
    with pytest.raises(DataError, match="Pair: the text has 3 parts, the node 2 outputs"):
        graph("a b c")


class Count(Function):
    """How often each letter stands in a text; the feedback is a count of complaints, of a type of its own."""

    dataShapeFrom = staticmethod(lambda *shapes: ())

    @staticmethod
    def forward(ctx, x):
        counts = getattr(x, "data", x)
        return Counter({key: 2 * n for key, n in counts.items()})

    @staticmethod
    def backward(ctx, grad):
        return Counter({key: 3 * n for key, n in getattr(grad, "data", grad).items()})


def test_a_type_of_ones_own_flows_through_the_tape_and_a_graph():
    accumulate.register(Counter, lambda total, new: total + getattr(new, "data", new))
    seed = Counter("aab")
    leaf = Variable(Counter("x"), requires_grad=True)
    h = Count.apply(leaf)
    one, two = Count.apply(h), Count.apply(h)
    autodiff.backward([one, two], [seed, seed])
    (found,) = [getattr(g, "data", g) for g in leaf.grad]
    x = Input(name="x").node()
    h = Count.node(x)
    graph = Graph(x, [Count.node(h, name="one"), Count.node(h, name="two")])
    assert graph(Counter("x")) == [Counter(x=4), Counter(x=4)] and one.data == Counter(x=4)
    graph.backward([seed, seed])
    forward = ForwardGraph()
    one, two, three = (autodiff.Occurrence(Count) for _ in range(3))
    forward.add_connection(forward.INPUT, one, two, forward.OUTPUT)
    forward.add_connection(one, three, forward.OUTPUT)
    forward.compile()
    assert forward.calculate(Counter("x")) == [Counter(x=4), Counter(x=4)]
    backward = BackwardGraph(forward.graph_state).from_forward(forward).compile()
    assert found == graph.grad == backward.calculate(seed, seed) == Counter(a=36, b=18)


def test_texts_flow_through_a_graph_that_can_be_edited():
    forward = ForwardGraph()
    forward.add_connection(forward.INPUT, Reversed)
    for place in (0, 1):
        forward.add_edge(Reversed, Add, in_arg=0, out_arg=place)
    forward.add_connection(Add, forward.OUTPUT)
    forward.compile()
    assert forward.calculate("abc") == "cbacba"
    found = BackwardGraph(forward.graph_state).from_forward(forward).compile().calculate("F")
    one, two = found.splitlines()
    assert "For the first part, as" in one and "For the second part, as" in two
