"""What the tape and the graph owe to values that are no arrays: sums of gradients, zeros, places inside inputs."""

from collections import Counter

import numpy as np
import pytest

from puregraph import AutoDiffException, DataError, Function, Graph, Input, autodiff
from puregraph.autodiff import Variable
from puregraph.core.accumulate import accumulate, seedLike, zeroLike


class Join(Function):
    """x y, with feedback that says which side it is for."""

    dataShapeFrom = staticmethod(lambda *shapes: ())

    @staticmethod
    def forward(ctx, x, y):
        return "".join(getattr(v, "data", v) for v in (x, y))

    @staticmethod
    def backward(ctx, grad):
        text = getattr(grad, "data", grad)
        return (Variable(f"left {text}"), Variable(f"right {text}")) if grad is not text else (text, text)


class Halves(Function):
    """Two outputs of one value of any type."""

    outputNames = ("first", "second")

    @staticmethod
    def forward(ctx, x):
        return x.data, x.data

    @staticmethod
    def backward(ctx, *grads):
        return Variable([g.data for g in grads])


def text(data, role=""):
    return Variable(data, role=role, requires_grad=True)


def test_feedback_from_two_readers_of_one_text_becomes_one_text_a_line_each():
    a = text("a")
    b = Join.apply(a, "!")
    Join.apply(b, b).backward("fine")
    assert [g.data for g in a.grad] == ["left left fine\nright fine"]


def test_a_bare_text_and_a_variable_accumulate_in_either_order():
    assert accumulate(Variable("one", role="r"), "two").data == "one\ntwo"
    assert accumulate(Variable("one", role="r"), "two").role == "r"
    assert accumulate("one", Variable("two")) == "one\ntwo"


def test_variables_of_arrays_still_add():
    assert accumulate(Variable(2.0), Variable(3.0)).data == 5.0


@pytest.mark.parametrize(
    ("value", "nothing"), [("abc", ""), (Counter("abc"), Counter()), (["a", 1.5], ["", 0.0])], ids=str
)
def test_an_output_without_a_gradient_gets_the_nothing_of_its_type(value, nothing):
    x = text(value)
    first, _ = Halves.apply(x)
    first.backward(value)
    assert [g.data for g in x.grad] == [[value, nothing]]
    assert type(x.grad[0].data[1]) is type(nothing)


def test_lists_accumulate_element_by_element():
    assert accumulate(["a", 1.0], ["b", 2.0]) == ["a\nb", 3.0]
    assert zeroLike(["a", 1.0]) == ["", 0.0]
    assert seedLike(["a", 1.0]) == ["", 1.0]
    assert accumulate(["a", ""], "b") == ["a\nb", "b"] and accumulate("b", ["a", ""]) == ["b\na", "b"]
    with pytest.raises(ValueError, match="longer"):
        accumulate(["a"], ["b", "c"])


def test_a_list_is_no_value_of_a_graph():
    x, y = Input(name="x").node(), Input(name="y").node()
    with pytest.raises(DataError, match="got list"):
        Graph([x, y], Join.node(x, y))("a", ["b"])


class First(Function):
    """The first text, and how long it is, which has no gradient."""

    outputNames = ("text", "length")
    dataShapeFrom = staticmethod(lambda *shapes: [(), ()])

    @staticmethod
    def forward(ctx, table):
        found = table["rows"][0]["text"]
        outputs = (found, np.int64(len(getattr(found, "data", found))))
        ctx.mark_non_differentiable(outputs[1])
        return outputs

    @staticmethod
    def backward(ctx, grad, _):
        return {"rows": [{"kind": None, "text": grad}, {"kind": None, "text": None}]}


def test_a_node_may_stand_inside_dicts_of_a_functions_input():
    x, y = Input(name="x").node(), Input(name="y").node()
    node = First.node({"rows": [{"kind": "user", "text": x}, {"kind": "user", "text": y}]})
    graph = Graph([x, y], (node, "text"))
    assert graph("one", "two") == "one"
    graph.backward("longer")
    assert graph.grad == ["longer", None]


def test_a_context_knows_the_form_of_the_inputs_on_a_tape_and_in_a_graph():
    forms = []

    class Spy(Function):
        dataShapeFrom = staticmethod(lambda *shapes: ())

        @staticmethod
        def forward(ctx, x, others=()):
            forms.append(ctx.form)
            return getattr(x, "data", x)

    a = text("a")
    Spy.apply(a, others=[1])
    assert forms[-1] == (a, ("others", [1]))
    x = Input(name="x").node()
    Graph(x, Spy.node(x, others=[1]))("a")
    assert [str(part) for part in forms[-1]] == ["_", "Keyword(name='others', value=[1])"]
    Graph(x, Spy.node(x))("a")
    assert [str(part) for part in forms[-1]] == ["_"]


def test_zeros_of_an_array_are_a_variable_on_the_tape_too():
    assert isinstance(autodiff.zero_like(Variable(2.0)), Variable)


class Rows(Function):
    """Texts in a list of dicts, one behind the other."""

    @staticmethod
    def forward(ctx, rows):
        return "".join(row["text"].data for row in rows)

    @staticmethod
    def backward(ctx, grad):
        return [{"text": f"{n}: {grad.data}"} for n in range(2)]


def test_a_list_that_grows_after_the_call_changes_nothing():
    a, b = text("a"), text("b")
    rows = [{"text": a}, {"text": b}]
    y = Rows.apply(rows)
    rows.append({"text": text("c")})
    rows[0]["text"] = text("d")
    y.backward("F")
    assert (a.grad, b.grad) == (["0: F"], ["1: F"])


def test_a_list_of_arrays_that_changes_after_the_call_changes_nothing():
    a, b = (Variable(np.ones(n), requires_grad=True) for n in (2, 3))
    parts = [a, b]
    y = np.concatenate(parts)
    parts.reverse()
    parts.append(a)
    y.backward(np.arange(5.0))
    assert (a.grad.tolist(), b.grad.tolist()) == ([0.0, 1.0], [2.0, 3.0, 4.0])


def test_the_gradient_of_a_lone_list_is_one_list():
    x = text(["a"])
    x.backward(["F"])
    autodiff.backward(x, Variable(["G"]))
    autodiff.backward([x, x], [["H"], ["I"]])
    assert [getattr(g, "data", g) for g in x.grad] == [["F"], ["G"], ["H"], ["I"]]
    with pytest.raises(AutoDiffException, match="wanted 2 gradients, one per output, got 1"):
        autodiff.backward([x, x], [["H"]])
