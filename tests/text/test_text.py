"""Text with gradients: operations, and how the feedback of several readers is combined."""

import os
import subprocess
import sys

import numpy as np
import pytest
from textclient import text, words

from puregraph import AutoDiffException, autodiff
from puregraph.autodiff import Variable, get_gradient_edge, grad
from puregraph.compat.text import (
    Add,
    Split,
    Sum,
    functional,
)

# Add, Sum, Split ------------------------------------------------------------------------------------------------------


def test_add_joins_texts_their_roles_and_gives_each_its_feedback():
    x, y = text("abc", "first input"), text("def", "second input", requires_grad=False)
    z = Add.apply(x, y)
    assert (z.data, z.role, z.grad_fn.name()) == ("abcdef", "first input and second input", "AddBackward0")
    assert [(str(edge.node), edge.output_nr)[1] for edge in z.grad_fn.next_functions] == [0, 0]
    assert [edge.node is None for edge in z.grad_fn.next_functions] == [False, True]
    z.backward(Variable("too short"))
    (found,) = x.grad
    assert found.role == "feedback to first input"
    assert "first input" in found.data and found.data.endswith(": too short")
    assert y.grad == []


def test_plus_on_text_is_add_on_either_side():
    x = text("b", "middle")
    y = "a" + x + "c"
    assert (y.data, y.role, y.grad_fn.name()) == ("abc", "middle", "AddBackward0")
    with pytest.raises(AutoDiffException, match="text knows no operator 'mul'"):
        x * 2


def test_plus_on_arrays_is_still_numpys():
    x = Variable(np.ones(2), requires_grad=True)
    assert (x + x).grad_fn.name() == "AddBackward0" and (x + 1).data.tolist() == [2.0, 2.0]


def test_feedback_that_says_nothing_gains_no_words():
    x = text("a")
    (x + "b").backward()
    assert words(x.grad) == [""] and x.grad[0].role == "feedback to the first part"


def test_the_words_of_a_template_are_a_subclass_away():
    class Terse(Add):
        template = "{role}! {feedback}"

    x = text("a", "title")
    Terse.apply(x, "b").backward("use {role}")
    assert words(x.grad) == ["title! use {role}"]


def test_numbers_and_lists_add_with_their_own_gradients():
    x, y = text([1.5, 2.0], "x"), text([10.0, 20.0], "y")
    z = x + y
    assert z.data == [11.5, 22.0]
    z.backward(Variable([1.0, 0.5]))
    assert words(x.grad) == [[1.0, 0.5]]
    a, b = Variable(2.0, requires_grad=True), Variable(3.0, requires_grad=True)
    total = Sum.apply([a, b, Add.apply(a, 1.0)])
    total.backward()
    assert (total.data, a.grad, b.grad) == (8.0, 2.0, 1.0)


def test_lists_of_texts_go_row_by_row():
    x, y = text(["a", "b"], "x"), text(["c", "d"], "y")
    assert (x + y).data == ["ac", "bd"]
    z = functional.sum([x, y])
    assert z.data == ["<ITEM>a</ITEM><ITEM>c</ITEM>", "<ITEM>b</ITEM><ITEM>d</ITEM>"]
    z.backward(Variable(["", "no"]))
    assert x.grad[0].data[0] == "" and x.grad[0].data[1].endswith(": no")


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        ("a", 1.0, TypeError, "Add: wanted two texts, two numbers or two lists of them, got str, float"),
        (["a"], "b", TypeError, "got list, str"),
        (["a"], ["b", "c"], ValueError, "wanted lists of one length, got lengths 1, 2"),
        (np.ones(2), np.ones(3), TypeError, "two numbers"),
    ],
)
def test_what_does_not_add_says_so(x, y, error, message):
    with pytest.raises(error, match=message):
        Add.apply(Variable(x), y)


def test_sum_marks_items_and_its_node_is_named_as_afnio_names_it():
    a, b = text("Hello,", "greeting"), text("world!", "subject")
    c = functional.sum([a, b])
    assert (c.data, c.role) == ("<ITEM>Hello,</ITEM><ITEM>world!</ITEM>", "greeting and subject")
    assert isinstance(c.grad_fn, autodiff.Node) and c.grad_fn.name() == "SumBackward0"
    assert [edge.node.name() for edge in c.grad_fn.next_functions] == ["AccumulateGrad", "AccumulateGrad"]
    c.backward("friendlier")
    assert [g.role for g in (*a.grad, *b.grad)] == ["feedback to greeting", "feedback to subject"]
    assert all(g.data.endswith(": friendlier") for g in (*a.grad, *b.grad))
    with pytest.raises(ValueError, match="at least one item"):
        Sum.apply([])
    with pytest.raises(TypeError, match="Sum: wanted texts alone"):
        Sum.apply([a, 1.0])


def test_split_gives_parts_that_share_one_node():
    x = text("a b", "sentence")
    parts = Split.apply(x, " ")
    assert type(parts) is tuple and words(parts) == ["a", "b"]
    assert [get_gradient_edge(p).output_nr for p in parts] == [0, 1]
    assert parts[0].grad_fn is parts[1].grad_fn and len(parts[0].grad_fn.next_functions) == 1
    assert [p.role for p in parts] == ["split part 0 of sentence", "split part 1 of sentence"]
    parts[0].backward("F1", retain_graph=True)
    parts[1].backward("F2")
    assert words(x.grad) == ["<ITEM>F1</ITEM><ITEM></ITEM>", "<ITEM></ITEM><ITEM>F2</ITEM>"]
    with pytest.raises(RuntimeError, match="retain_graph"):
        parts[1].backward("F3")


def test_split_without_retain_graph_runs_once():
    x = text("a b")
    parts = Split.apply(x, " ")
    parts[0].backward("F1")
    with pytest.raises(RuntimeError, match="second time"):
        parts[1].backward("F2")
    assert words(x.grad) == ["<ITEM>F1</ITEM><ITEM></ITEM>"]


def test_split_fills_short_rows_of_a_batch():
    x = text(["a b c", "d", ""], "rows")
    parts = Split.apply(x, maxsplit=1)
    assert words(parts) == [["a", "d", ""], ["b c", "", ""]]
    parts[1].backward(Variable(["x", "", "y"]))
    assert words(x.grad) == [
        ["<ITEM></ITEM><ITEM>x</ITEM>", "<ITEM></ITEM><ITEM></ITEM>", "<ITEM></ITEM><ITEM>y</ITEM>"]
    ]
    with pytest.raises(TypeError, match="Split: wanted a text"):
        Split.apply(Variable(2.5))


def test_inputs_by_keyword_get_their_own_feedback():
    x, y = text("a", "x"), text("b", "y")
    Add.apply(y=y, x=x).backward("f")
    assert x.grad[0].role == "feedback to x" and y.grad[0].role == "feedback to y"


# Several readers ------------------------------------------------------------------------------------------------------


def test_a_leaf_collects_what_each_reader_says_in_the_order_in_which_they_read():
    a = text("a", "base")
    b = a + "!"
    e = a + b
    e.backward("F")
    assert len(a.grad) == 2
    assert a.grad[0].data.count("For ") == 2  # through b, which read it first
    assert a.grad[1].data.count("For ") == 1
    e = a + (a + "?")
    e.backward("G")
    assert len(a.grad) == 4


ORDER = """
from puregraph.autodiff import Variable
from puregraph.compat.text import Split, Sum
def once():
    a = Variable("a b", role="base", requires_grad=True)
    parts = [a + str(i) for i in range(8)]
    end = Sum.apply([parts[i] for i in (5, 2, 7, 0, 1, 6, 3, 4)] + list(Split.apply(a, " ")) + [a])
    end.backward("F")
    return [g.data for g in a.grad]
first = once()
assert all(once() == first for _ in range(99))
print(first)
"""


def test_the_order_is_the_same_whatever_the_hashes_are():
    found = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", ORDER], env=environment, capture_output=True, text=True, timeout=120
        )
        assert not done.stderr, done.stderr
        found.add(done.stdout)
    assert len(found) == 1 and found.pop().count("For ") > 8


def test_an_inner_text_that_two_read_passes_one_feedback_on():
    a = text("a", "base")
    b = a + "!"
    b.retain_grad()
    Sum.apply([b, b]).backward("F")
    assert len(b.grad) == 1 and b.grad[0].data.count("\n") == 1
    assert len(a.grad) == 1 and a.grad[0].data.count("F") >= 2


def test_how_feedback_is_combined_can_be_said_for_one_pass():
    a, seen = text("a", "base"), []
    b = a + "!"

    def merge(first, second):
        seen.append((first.data, second.data))
        return Variable(f"both: {len(seen)}")

    first, second = b + "1", b + "2"
    e = Variable("", role="end") + first + second
    e.backward("F", accumulate=merge)
    ((one, two),) = seen
    assert one.count("For ") > two.count("For ")  # `first` lies one addition deeper
    assert a.grad[0].data.endswith(": both: 1")


def test_grad_returns_feedback_without_storing_it():
    a = text("a", "base")
    (found,) = grad(a + "b", a, "F")
    assert found.data.endswith(": F") and a.grad == []
