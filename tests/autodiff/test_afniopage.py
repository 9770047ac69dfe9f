"""The example and the sentences of afnio's pages of Function and Node that a person tries first, word for word."""

import threading
from abc import ABC, abstractmethod

import numpy as np
import pytest
from tapes import leaf

import puregraph.autodiff.graph
from puregraph import autodiff
from puregraph.autodiff import AutoDiffException, Function, Variable, enable_grad, grad
from puregraph.compat.text import functional as F
from puregraph.graph import Graph
from puregraph.graph.input import Input


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


class Reversed(Function):
    """The example of the page."""

    @staticmethod
    def forward(ctx, x):
        reverse = x.data[::-1]
        out = Variable(data=reverse, role=x.role, requires_grad=True)
        ctx.save_for_backward(x, reverse, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, reverse, out = ctx.saved_variables
        grad = f"Here is the feedback for {x.role} (reversed): {grad_out.grad}"
        role = f"Feedback to {x.role}"
        x.grad = Variable(data=grad, role=role)
        return x.grad


def text(data="This is a string"):
    return Variable(data=data, role="Input string", requires_grad=True)


def test_the_example_runs_as_printed():
    a = text()
    c = Reversed.apply(a)
    assert (c.data, c.role, c.requires_grad, c.is_leaf) == ("gnirts a si sihT", "Input string", True, False)
    c.backward("Shorter, please.")
    (feedback,) = a.grad
    assert feedback.data == "Here is the feedback for Input string (reversed): Shorter, please."
    assert feedback.role == "Feedback to Input string"
    Reversed.apply(a).backward(Variable("And kinder.", role="an opinion"))
    assert [g.data.rpartition(": ")[2] for g in a.grad] == ["Shorter, please.", "And kinder."]


def test_the_example_runs_on_what_an_operation_made():
    a = text("abc")
    middle = Reversed.apply(a)
    Reversed.apply(middle).backward("good")
    (feedback,) = a.grad
    assert feedback.data.count("Here is the feedback for Input string (reversed): ") == 2
    with pytest.raises(AutoDiffException, match="is not kept"):
        _ = middle.grad


def test_a_gradient_set_inside_backward_is_not_left_by_one_that_fails():
    class Failing(Reversed):
        @staticmethod
        def backward(ctx, grad_out):
            Reversed.backward(ctx, grad_out)
            raise KeyError("no")

    a = text()
    with pytest.raises(KeyError):
        Failing.apply(a).backward("good")
    assert a.grad == []


def test_several_contributions_returned_for_one_text_become_one():
    class Twice(Reversed):
        @staticmethod
        def backward(ctx, grad_out):
            (x, _, _) = ctx.saved_variables
            x.grad = [Variable("one"), Variable("two")]
            x.grad.append(Variable("three"))
            return x.grad

    a = text()
    Twice.apply(a).backward("good")
    assert [g.data for g in a.grad] == ["one\ntwo\nthree"]


def test_a_list_is_no_gradient_of_an_array():
    class Listed(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return [dy * 2]

    with pytest.raises(AutoDiffException, match="Listed.backward returned a list"):
        Listed.apply(leaf([1.0])).sum().backward()


def test_a_bare_output_marked_non_differentiable_has_no_gradient():
    class Peak(Function):
        @staticmethod
        def forward(ctx, x):
            largest = np.max(x.data)
            ctx.mark_non_differentiable(largest)
            return x.data * 2, largest

        @staticmethod
        def backward(ctx, dy, _):
            return dy * 2

    y, largest = Peak.apply(leaf([1.0, 2.0]))
    assert y.requires_grad and not largest.requires_grad


def test_a_batch_of_texts_keeps_its_list_as_one_gradient():
    class Batch(Reversed):
        @staticmethod
        def backward(ctx, grad_out):
            return grad_out.data

    a = text(["ab", "cd"])
    Batch.apply(a).backward(["first", "second"])
    assert a.grad == [["first", "second"]]


def test_the_example_on_two_threads_at_once_loses_nothing():
    a = text()
    outputs = [Reversed.apply(a) for _ in range(40)]
    threads = [
        threading.Thread(target=lambda part: [y.backward("good") for y in part], args=(outputs[i::4],))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(a.grad) == 40


def test_the_gradient_of_a_text_may_be_set_to_one_variable():
    a = text()
    feedback = Variable("Shorter.")
    a.grad = feedback
    assert a.grad == [feedback]
    Reversed.apply(a).backward("good")
    assert len(a.grad) == 2
    with pytest.raises(TypeError, match="a list of contributions, or one Variable"):
        a.grad = "Shorter."


def test_outputs_that_are_no_variables_have_none_for_a_gradient():
    class Several(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, 7, None, np.arange(3), True, Variable(np.arange(2)), np.ones(2)

        @staticmethod
        def backward(ctx, *grads):
            seen.append([getattr(g, "data", g) for g in grads])
            return grads[0] * 2

    seen = []
    x = leaf([1.0, 2.0])
    outputs = Several.apply(x)
    outputs[0].sum().backward()
    (first, seven, nothing, indices, truth, whole, floats) = seen[0]
    assert first.tolist() == [1, 1] and x.grad.tolist() == [2, 2]
    assert seven is nothing is indices is truth is None
    assert whole.tolist() == [0, 0] and floats.tolist() == [0, 0]


def test_outputs_of_whole_numbers_have_none_for_a_gradient_in_a_graph_too():
    class Largest(Function):
        outputNames = ("y", "where")

        @staticmethod
        def forward(ctx, x):
            return x * 2, np.argmax(x, -1)

        @staticmethod
        def backward(ctx, dy, dWhere):
            seen.append(dWhere)
            return dy * 2

    seen = []
    x = Input(name="x").node()
    node = Largest.node(x)
    graph = Graph(x, [(node, 0), (node, 1)])
    graph(np.array([[1.0, 3.0]]))
    graph.backward([np.ones((1, 2)), None])
    assert seen == [None] and graph.grad.tolist() == [[2, 2]]


def test_the_nodes_of_the_tape_are_instances_of_functions():
    a, b = text("Hello,"), text("world!")
    c = F.sum([a, b])
    assert isinstance(c.grad_fn, Function) and isinstance(c.grad_fn, autodiff.graph.Node)
    assert all(isinstance(edge.node, Function) for edge in c.grad_fn.next_functions)
    y = Reversed.apply(a)
    assert isinstance(y.grad_fn, Reversed) and not isinstance(c.grad_fn, Reversed)
    assert isinstance((leaf([1.0]) * 2).grad_fn, Function)
    assert not any(isinstance(other, Function) for other in (a, None, 3, Function, Reversed, np.add))


def test_a_function_may_have_abstract_bases():
    class Named(ABC):
        @staticmethod
        @abstractmethod
        def title(): ...

    class Both(Reversed, Named):
        @staticmethod
        def title():
            return "both"

    assert isinstance(Both.apply(text()).grad_fn, Named) is False
    assert issubclass(Both, Named) and isinstance(Both.apply(text()).grad_fn, Both)


def test_the_paths_of_the_pages_are_modules():
    assert autodiff.graph is puregraph.autodiff.graph
    assert autodiff.graph.Node is autodiff.Node and autodiff.graph.GradientEdge is autodiff.GradientEdge
    x = leaf([1.0])
    assert autodiff.graph.get_gradient_edge(x * 2).node.name() == "MulBackward0"
    assert autodiff.function.Function is Function


def test_saved_tensors_is_another_name_of_saved_variables():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            assert ctx.saved_variables[0] is x
            return 3 * x * x * dy

    x = Variable(2.0, requires_grad=True)
    (first,) = grad(Cube.apply(x), x, create_graph=True)
    assert (first.item(), grad(first, x)[0]) == (12.0, 12.0)
