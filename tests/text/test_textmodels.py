"""Language models that are plain functions, and evaluators."""

import json

import pytest
from textclient import Client, text, words

from puregraph import AutoDiffException, Graph, Input
from puregraph.autodiff import Variable
from puregraph.compat.text import (
    Add,
    ChatCompletion,
    DeterministicEvaluator,
    ExactMatchEvaluator,
    set_backward_model_client,
)

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
