"""Text with gradients: operations, language models that are plain functions, evaluators, and the optimizer."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from puregraph import AutoDiffException, DataError, Function, Graph, Input, autodiff
from puregraph.autodiff import BackwardGraph, ForwardGraph, Variable, get_gradient_edge, grad
from puregraph.compat.text import (
    TGD,
    Add,
    ChatCompletion,
    DeterministicEvaluator,
    ExactMatchEvaluator,
    Split,
    Sum,
    functional,
    set_backward_model_client,
)
from puregraph.core.accumulate import accumulate


def text(data, role="", requires_grad=True):
    return Variable(data, role=role, requires_grad=requires_grad)


def words(grads):
    return [g.data for g in grads]


class Client:
    """A language model that gives prepared answers, and keeps what it was asked; an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.asked, self.options = list(answers), [], []

    def __call__(self, messages, **options):
        self.asked.append(messages)
        self.options.append(options)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def last(self):
        """All that was said in the last question."""
        return "\n".join(message["content"] for message in self.asked[-1])


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


# Language models ------------------------------------------------------------------------------------------------------


def chat(client, *, messages=None, inputs=None, **options):
    system = text("Answer {style}.", "system prompt")
    question = text("Why?", "question")
    messages = messages or [{"role": "system", "content": [system]}, {"role": "user", "content": ["Q:", [question]]}]
    return system, question, ChatCompletion.apply(client, messages, inputs or {"style": "briefly"}, **options)


def test_a_chat_fills_places_and_hands_options_on():
    client = Client("Because.")
    system, question, answer = chat(client, temperature=0.5)
    assert client.asked == [[{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Q:\nWhy?"}]]
    assert client.options == [{"temperature": 0.5}]
    assert (answer.data, answer.grad_fn.name()) == ("Because.", "ChatCompletionBackward0")
    assert [edge.node.variable for edge in answer.grad_fn.next_functions] == [system, question]


def test_a_chat_asks_for_one_feedback_per_variable_that_needs_it():
    critic = Client('Here you are:\n```json\n["be kind", "ask more"]\n```')
    system, question, answer = chat(Client("Because."), backward_model_client=critic)
    answer.backward("rude")
    assert words(system.grad) == ["be kind"] and words(question.grad) == ["ask more"]
    assert system.grad[0].role == "feedback to system prompt"
    for part in (
        "Because.",
        "<FEEDBACK>rude</FEEDBACK>",
        '<TEXT number="1" role="system prompt">Answer {style}.</TEXT>',
    ):
        assert part in critic.last
    assert "JSON list of 2 texts" in critic.last and 'number="3"' not in critic.last


def test_a_chat_tells_inputs_and_whom_it_skips():
    critic = Client('["more"]')
    style = text("briefly", "style")
    system = text("Answer {style}.", "system prompt", requires_grad=False)
    answer = ChatCompletion.apply(
        Client("ok"),
        inputs={"style": style},
        backward_model_client=critic,
        messages=[{"content": system, "role": "system"}],
    )
    answer.backward("F")
    assert words(style.grad) == ["more"] and system.grad == [] and "system prompt" not in critic.last


def test_what_an_input_says_is_never_taken_for_a_place():
    client = Client("ok")
    ChatCompletion.apply(client, [{"role": "user", "content": '{a} {b} {"x": {c}}'}], {"a": "{b}", "b": 2})
    assert client.asked[0][0]["content"] == '{b} 2 {"x": {c}}'


def test_a_chat_answers_a_batch_row_by_row():
    client, critic = Client("1", "2"), Client('["add"]')
    prompt = text("{x} {y}?", "prompt")
    answer = ChatCompletion.apply(
        client, [{"role": "user", "content": prompt}], {"x": text(["a", "b"], requires_grad=False), "y": "c"},
        backward_model_client=critic,
    )  # fmt: skip
    assert answer.data == ["1", "2"] and [m[0]["content"] for m in client.asked] == ["a c?", "b c?"]
    answer.backward(Variable(["good", "bad"]))
    assert words(prompt.grad) == ["add"] and '<FEEDBACK answer="2">bad</FEEDBACK>' in critic.last
    assert critic.last.count("<CONVERSATION>") == 2


def test_a_model_that_fails_twice_is_asked_a_third_time():
    critic = Client(ConnectionError("down"), '["one", "two", "three"]', '["be kind", "ask more"]')
    system, _, answer = chat(Client("Because."), backward_model_client=critic)
    answer.backward("rude")
    assert words(system.grad) == ["be kind"] and len(critic.asked) == 3
    assert (
        "cannot be used: wanted a JSON list of 2 texts, got ['one', 'two', 'three']" in critic.asked[2][-1]["content"]
    )
    assert len(critic.asked[1]) == 2  # after an exception the question is the same


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([ConnectionError("down")], "in 3 tries; the last time: ConnectionError: down"),
        (["no JSON"], "wanted a JSON list of 2 texts, got 'no JSON'"),
        (['["one"]'], r"wanted a JSON list of 2 texts, got \['one'\]"),
        (['["one", 2]'], "JSON list of 2 texts"),
        ([None], "wanted a text, got NoneType"),
    ],
)
def test_after_three_tries_an_error_and_nothing_is_stored(answers, words):
    critic = Client(*answers)
    system, question, answer = chat(Client("Because."), backward_model_client=critic)
    direct = answer + system
    with pytest.raises(RuntimeError, match=f"ChatCompletion.backward: the model client gave no answer.*{words}"):
        direct.backward("rude")
    assert len(critic.asked) == 3 and system.grad == question.grad == []
    critic.answers = [json.dumps(["a", "b"])]
    direct.backward("rude")  # the pass can be tried again
    assert len(system.grad) == 2


def test_feedback_that_says_nothing_asks_nobody():
    system, _, answer = chat(Client("Because."))
    answer.backward()
    assert words(system.grad) == [""]


def test_without_a_client_for_feedback_the_error_says_what_to_do():
    _, _, answer = chat(Client("Because."))
    with pytest.raises(RuntimeError, match="nobody gives feedback: call set_backward_model_client"):
        answer.backward("rude")


def test_the_client_for_feedback_is_set_for_a_block_or_for_good():
    first, second = Client('["1", "1"]'), Client('["2", "2"]')
    system, _, answer = chat(Client("ok"))
    setting = set_backward_model_client(first)
    with set_backward_model_client(second):
        answer.backward("F", retain_graph=True)
    answer.backward("F")
    setting.__exit__()
    assert words(system.grad) == ["2", "1"] and set_backward_model_client.chosen is None


@pytest.mark.parametrize(
    ("messages", "inputs", "error", "words"),
    [
        ("hello", {}, TypeError, "wanted messages"),
        ([{"role": "user"}], {}, TypeError, "wanted messages"),
        ([], {}, TypeError, "wanted messages"),
        ([{"role": "user", "content": 3}], {}, TypeError, "a content is text, got int: 3"),
        ([{"role": "user", "content": "{a}"}], {"b": "x"}, ValueError, "write {b} in one"),
        ([{"role": "user", "content": "{a}{b}"}], {"a": ["x"], "b": ["y", "z"]}, ValueError, r"got lengths \[1, 2\]"),
    ],
)
def test_a_chat_refuses_what_it_cannot_send(messages, inputs, error, words):
    client = Client("ok")
    with pytest.raises(error, match=words):
        ChatCompletion.apply(client, messages, inputs)
    assert not client.asked


def test_an_answer_that_is_no_text_is_named():
    with pytest.raises(AutoDiffException, match="must return a text, got dict"):
        chat(Client({"text": "ok"}))


def test_a_chat_is_a_node_of_a_graph():
    client, critic = Client("Because."), Client('["clearer", "longer"]')
    x, style = Input(name="x").node(), Input(name="style").node()
    messages = [{"role": "system", "content": "Answer {style}."}, {"role": "user", "content": [x, "!"]}]
    node = ChatCompletion.node(client, messages, {"style": style}, backward_model_client=critic)
    graph = Graph([x, style], node)
    assert graph("Why?", "briefly") == "Because."
    assert [m["content"] for m in client.asked[0]] == ["Answer briefly.", "Why?\n!"]
    graph.backward("rude")
    assert graph.grad == ["clearer", "longer"] and '<TEXT number="1" role="message 2, by user">Why?' in critic.last


# Evaluators -----------------------------------------------------------------------------------------------------------


def test_an_exact_match_scores_and_its_explanation_asks_for_feedback():
    critic = Client("say red")
    pred = text("green", "answer")
    with set_backward_model_client(critic):
        score, explanation = ExactMatchEvaluator.apply(pred, "red")
        assert score.data == 0 and not score.requires_grad
        assert explanation.data == "The score for exact match with the target is 0."
        assert explanation.grad_fn.name() == "ExactMatchEvaluatorBackward0"
        explanation.backward()
    assert words(pred.grad) == ["say red"] and pred.grad[0].role == "feedback to answer"
    assert '<OUTPUT role="answer">green</OUTPUT><TARGET>red</TARGET>' in critic.last
    assert "<FEEDBACK>" not in critic.last


def test_after_success_nobody_is_asked():
    critic = Client("never")
    pred = text("green", "answer")
    score, explanation = ExactMatchEvaluator.apply(pred, "green", success_fn=all, backward_model_client=critic)
    explanation.backward()
    assert score.data == 1 and words(pred.grad) == [""] and not critic.asked


def test_an_evaluator_asks_three_times_at_most():
    critic = Client(OSError("1"), OSError("2"), '["say red"]')
    pred = text("green")
    ExactMatchEvaluator.apply(pred, "red", backward_model_client=critic)[1].backward()
    assert words(pred.grad) == ["say red"] and len(critic.asked) == 3
    critic, pred = Client(OSError("down")), text("green")
    _, explanation = ExactMatchEvaluator.apply(pred, "red", backward_model_client=critic)
    with pytest.raises(
        RuntimeError, match="ExactMatchEvaluator.backward: the model client gave no answer.*OSError: down"
    ):
        explanation.backward()
    assert pred.grad == [] and len(critic.asked) == 3


def test_an_evaluator_of_a_batch_reduces_scores():
    critic = Client("say more")
    pred, target = text(["abc", "d"], "answers"), Variable(["ab", "de"], role="truth")
    score, explanation = DeterministicEvaluator.apply(
        pred,
        target,
        lambda p, t: len(t) / len(p),
        "length",
        lambda scores: min(scores) >= 1,
        max,
        "their largest",
        backward_model_client=critic,
    )
    assert score.data == 2.0 and not score.requires_grad
    assert explanation.data.startswith("The score for length is 2.0 (their largest); one by one: 0.66")
    assert len(explanation.grad_fn.next_functions) == 2 and explanation.grad_fn.next_functions[1].node is None
    explanation.backward("and politely")
    assert words(pred.grad) == ["say more"] and "<FEEDBACK>and politely</FEEDBACK>" in critic.last
    assert critic.last.count("<OUTPUT") == 2
    scores, _ = ExactMatchEvaluator.apply(pred, ["abc", "x"], reduction_fn=None)
    assert scores.data == [1, 0]
    with pytest.raises(ValueError, match="one target per prediction"):
        ExactMatchEvaluator.apply(pred, ["abc"])


def test_a_target_gets_no_feedback():
    critic, target = Client("never"), text("red")
    _, explanation = ExactMatchEvaluator.apply("green", target, backward_model_client=critic)
    explanation.backward()
    assert target.grad == [] and not critic.asked


def test_an_evaluator_is_a_node_of_a_graph():
    x = Input(name="x").node()
    node = ExactMatchEvaluator.node(Add.node(x, "!"), "red!", backward_model_client=Client("say red"))
    graph = Graph(x, node)
    assert graph("green") == [0, "The score for exact match with the target is 0."] and graph("red")[0] == 1
    graph("green")
    graph.backward([None, ""])
    assert graph.grad == "For the first part, as one of two parts that stand together: say red"


# TGD ------------------------------------------------------------------------------------------------------------------


def test_a_step_rewrites_a_text_by_its_feedback():
    editor = Client("thinking ... <NEW>Be brief.</NEW>")
    prompt = text("Be.", "prompt")
    optimizer = TGD([prompt], editor, constraints=["English", Variable("short")], temperature=0)
    (prompt + "x").backward("too short")
    assert optimizer.step() is True
    assert prompt.data == "Be brief." and editor.options == [{"temperature": 0}]
    for part in ('<TEXT role="prompt">Be.</TEXT>', "too short</FEEDBACK>", "<CONSTRAINT>short</CONSTRAINT>"):
        assert part in editor.last
    optimizer.zero_grad()
    assert prompt.grad == [] and optimizer.step() is False and len(editor.asked) == 1


def test_empty_feedback_leaves_a_text_alone():
    prompt, other = text("Be."), text("Do.")
    prompt.grad, other.grad = [Variable(""), Variable("")], ["more"]
    assert TGD([prompt, other], lambda messages: " Done. ").step()
    assert (prompt.data, other.data) == ("Be.", "Done.")


def test_momentum_shows_feedback_of_as_many_steps_again():
    editor = Client("a", "b", "c", "d")
    prompt = text("")
    optimizer = TGD(prompt, editor, momentum=2)
    for said in ("one", "two", "three", "four"):
        prompt.grad = [Variable(said)]
        optimizer.step()
    assert optimizer.state == [["three", "four"]]
    assert '<EARLIER steps="2">two</EARLIER>\n<EARLIER steps="1">three</EARLIER>' in editor.last
    assert "one" not in editor.last.split("<TEXT")[1]
    plain = TGD(prompt, Client("e"))
    plain.step()
    assert plain.state == [[]]


def test_an_optimizer_goes_on_from_its_state():
    prompt = text("")
    optimizer = TGD(prompt, Client("a"), momentum=2)
    prompt.grad = ["one"]
    optimizer.step()
    state = json.loads(json.dumps(optimizer.state_dict()))
    editor = Client("b")
    again = TGD(prompt, editor, momentum=0)
    again.load_state_dict(state)
    again.step()
    assert again.momentum == 2 and again.state == [["one", "one"]] and '<EARLIER steps="1">one' in editor.last
    with pytest.raises(ValueError, match="wanted the state of 2 parameters, got that of 1"):
        TGD([prompt, text("")], editor).load_state_dict(state)


def test_a_step_that_fails_changes_no_text():
    first, second = text("1"), text("2")
    first.grad, second.grad = ["x"], ["y"]
    editor = Client("new", OSError("down"))
    optimizer = TGD([first, second], editor, momentum=1)
    with pytest.raises(RuntimeError, match="TGD, rewriting a text: .* OSError: down"):
        optimizer.step()
    assert (first.data, second.data, optimizer.state) == ("1", "2", [[], []]) and len(editor.asked) == 4
    editor.answers = ["  "]
    with pytest.raises(RuntimeError, match="wanted a new text, got an empty one"):
        optimizer.step()


def test_the_words_of_a_step_can_be_ones_own():
    editor, prompt = Client("new"), text("old", "p")
    prompt.grad = ["use {text}"]
    TGD(prompt, editor, messages=[{"role": "user", "content": "{role}: {text} <- {feedback}"}]).step()
    assert editor.asked == [[{"role": "user", "content": "p: old <- use {text}"}]]


@pytest.mark.parametrize(
    ("params", "options", "error", "words"),
    [
        ([], {}, ValueError, "at least one parameter"),
        (["text"], {}, TypeError, "Variable of text, got str"),
        ([Variable(1.0, requires_grad=True)], {}, TypeError, "Variable of text"),
        ([Variable("a")], {}, ValueError, "a leaf with requires_grad=True"),
        ([text("a") + "b"], {}, ValueError, "a leaf with requires_grad=True"),
        ([text("a")], {"momentum": -1}, ValueError, "wanted momentum, a number of steps"),
    ],
)
def test_an_optimizer_refuses_what_it_cannot_rewrite(params, options, error, words):
    with pytest.raises(error, match=words):
        TGD(params, Client("x"), **options)


def test_a_prompt_is_trained_through_a_chain_of_models():
    prompt = text("Say hello.", "prompt")

    def model(messages):
        return "hello" + "!" * ("excited" in messages[0]["content"])

    def critic(messages):
        asked = messages[-1]["content"]
        return "be excited" if "<TARGET>" in asked else json.dumps([asked.split("FEEDBACK>")[1][:-2]])

    def editor(messages):
        asked = messages[-1]["content"]
        return "Say hello. " + asked.split("FEEDBACK>")[1][:-2]

    optimizer = TGD(prompt, editor)
    scores = []
    with set_backward_model_client(critic):
        for _ in range(3):
            answer = ChatCompletion.apply(model, [{"role": "user", "content": prompt}])
            score, explanation = ExactMatchEvaluator.apply(answer, "hello!")
            optimizer.zero_grad()
            explanation.backward()
            optimizer.step()
            scores.append(score.data)
    assert scores == [0, 1, 1] and prompt.data == "Say hello. be excited"
