"""The optimizer of texts."""

import json

import pytest
from textclient import Client, text

from puregraph.autodiff import Variable
from puregraph.compat.text import (
    TGD,
    ChatCompletion,
    ExactMatchEvaluator,
    set_backward_model_client,
)


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
