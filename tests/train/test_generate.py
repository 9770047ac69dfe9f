"""Text of a language model: the scores of a filled-up window are those of the text alone, and draws follow them."""

import re

import numpy as np
import pytest

import puregraph
from puregraph import LSTM, DataError, Embedder, Graph, Input, Linear, Sequential, Transpose, generate
from puregraph.core.device import toDevice, toHost
from puregraph.models import gpt, transformerBlock
from puregraph.train.decoding import NextToken
from puregraph.train.decoding.sampling import drawToken


def language(seed=1, length=12):
    """A GPT whose scores differ enough to be told apart."""
    puregraph.seed(seed)
    net = gpt(11, length=length, layers=1, heads=2, size=16).evalMode()
    net["words"].W.data *= 25
    return net


def bidirectional():
    """A network of scores for each token that looks at the tokens behind it as well."""
    return Sequential(Embedder(11, 16), transformerBlock(16, 2), Linear(16, 11), name="both")


def likeliest(net, text, tokens, length):
    """The likeliest tokens behind a text, by passes over what there is, of any length, not compiled."""
    text = list(text)
    for _ in range(tokens):
        text.append(int(toHost(net(toDevice(np.array([text[-length:]]))))[0, -1].argmax()))
    return text


def test_scores_of_a_window_are_those_of_each_text_alone():
    net, texts = language(), [[3], [1, 2, 3, 4, 5], list(range(11)), [5, 6, 7] * 5]
    found = NextToken(net, texts, 0, None, True).scores(texts)
    for scores, text in zip(found, texts):
        alone = toHost(net(toDevice(np.array([text[-12:]]))))[0, -1]
        assert np.abs(scores - alone).max() < 1e-5 * np.abs(alone).max() and scores.shape == (11,)


def test_the_likeliest_tokens_are_those_of_passes_over_each_text_beyond_the_window_too():
    net, texts = language(), [[3], [5, 1, 2]]
    found = generate(net, texts, tokens=20, temperature=0)
    assert found == [likeliest(net, text, 20, 12) for text in texts]
    assert generate(net, texts[0], tokens=20, temperature=0, compile=False) == found[0]
    assert generate(net, texts[0], tokens=6, temperature=0, length=4) == likeliest(net, texts[0], 6, 4)
    assert texts == [[3], [5, 1, 2]]


def test_all_tokens_are_one_compiled_shape():
    texts = [[1, 2]]
    model = NextToken(language(), texts, 20, None, True)
    for _ in range(14):
        model.scores(texts)
        texts[0].append(4)
    programs = model.objective.programs
    assert len(programs.kept) == 1 and programs.count == 14 + 2  # two more look whether it is causal


def test_a_network_without_positions_sees_the_whole_text():
    puregraph.seed(2)
    net = Sequential(Embedder(7, 8), LSTM(8, 8), Linear(8, 7)).evalMode()
    net["linear"].W.data *= 10
    assert generate(net, [1, 2], tokens=9, temperature=0) == likeliest(net, [1, 2], 9, 100)


def test_a_seed_repeats_a_text_and_each_prompt_has_draws_of_its_own():
    net = language()
    first = generate(net, [1, 2], tokens=20, seed=5, temperature=3)
    assert (
        len(first) == 22
        and first[:2] == [1, 2]
        and first == generate(net, np.array([1, 2]), tokens=20, seed=5, temperature=3)
    )
    assert first != generate(net, [1, 2], tokens=20, seed=6, temperature=3)
    both = generate(net, [[1, 2], [1, 2]], tokens=20, seed=5, temperature=3)
    assert both[0] == first != both[1]
    assert generate(net, [1, 2], tokens=0) == [1, 2]


def test_a_text_ends_behind_a_stop_token_and_others_go_on():
    net = language()
    whole = generate(net, [[1, 2], [4], [5, 6, 7]], tokens=20, seed=1, temperature=3)
    found = generate(net, [[1, 2], [4], [5, 6, 7]], tokens=20, seed=1, temperature=3, stop=[3, 9])
    for text, long, begin in zip(found, whole, (2, 1, 3)):
        ends = [i for i, token in enumerate(long) if i >= begin and token in (3, 9)]
        assert text == long[: ends[0] + 1 if ends else None]
    assert len(set(map(len, found))) > 1
    assert generate(net, [1, 2], tokens=20, seed=1, temperature=3, stop=whole[0][2]) == whole[0][:3]


def test_the_mode_of_a_network_is_put_back():
    net = gpt(11, length=8, layers=1, heads=2, size=16, dropout=0.5).trainMode()
    assert generate(net, [1], tokens=5, compile=False) == generate(net, [1], tokens=5, compile=False)
    assert net.isTraining and all(node.module.isTraining for node in net.nodes)


class Fixed:
    """Draws that are given."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {2: 0.5, 0: 0.25, 3: 0.15, 1: 0.1}),
        ({"temperature": 0.5}, {2: 0.25, 0: 0.0625, 3: 0.0225, 1: 0.01}),
        ({"topK": 2}, {2: 0.5, 0: 0.25}),
        ({"topP": 0.7}, {2: 0.5, 0: 0.25}),
        ({"topP": 0.76}, {2: 0.5, 0: 0.25, 3: 0.15}),
        ({"topK": 3, "topP": 0.84}, {2: 0.5, 0: 0.25, 3: 0.15}),  # 0.75 of 0.9 is 0.83
        ({"topP": 0.0}, {2: 1}),
        ({"topK": 100}, {2: 0.5, 0: 0.25, 3: 0.15, 1: 0.1}),
        ({"temperature": 0}, {2: 1}),
        ({"temperature": 1e-300}, {2: 1}),
    ],
)
def test_a_token_is_drawn_with_the_probability_of_its_score(options, wanted):
    scores = np.log([0.25, 0.1, 0.5, 0.15]) + 700
    places = (np.arange(4000) + 0.5) / 4000
    found = np.bincount([drawToken(scores, Fixed(u), **options) for u in places], minlength=4) / 4000
    p = np.array([wanted.get(token, 0) for token in range(4)])
    assert np.abs(found - p / p.sum()).max() < 1 / 4000


def test_of_equal_scores_the_first_are_likelier():
    assert drawToken(np.ones(4), Fixed(0.9), temperature=0) == 0
    assert {drawToken(np.ones(4), Fixed(u), topK=2) for u in (0.1, 0.9)} == {0, 1}


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda: generate(language(), "To be"), "wanted a list of ids, got a text 'To be'; ids are list(b'To be')"),
        (lambda: generate(language(), b"To be"), "wanted a list of ids, got a text"),
        (lambda: generate(language(), ["To", "be"]), "wanted a list of ids, whole numbers, or a list of such lists"),
        (lambda: generate(language(), []), "prompt: wanted at least one id to begin with, got []"),
        (lambda: generate(language(), 3), "prompt: wanted at least one id to begin with, got 3"),
        (lambda: generate(language(), [[1], []]), "wanted at least one id in each text to begin with, got none"),
        (
            lambda: generate(language(), [1.5]),
            "wanted a list of ids, whole numbers, or a list of such lists, got [1.5]",
        ),
        (lambda: generate(language(), [[1, 2], 3]), "wanted a list of ids, whole numbers, or a list of such lists"),
        (lambda: generate(language(), [[[1, 2]]]), "wanted a list of ids, whole numbers, or a list of such lists"),
        (lambda: generate(language(), [1, 11]), "prompt: wanted ids from 0 to 10, the vocabulary, got 11"),
        (lambda: generate(language(), [[1], [-1]]), "prompt: wanted ids from 0 to 10, the vocabulary, got -1"),
        (lambda: generate(language(), [1], length=13), "length: wanted at most 12, the positions of Sequential 'gpt'"),
        (lambda: generate(bidirectional(), [1]), "is not causal: its scores at a position depend on the tokens behind"),
        (lambda: generate(Sequential(language(), Transpose((0, 2, 1))), [1]), "leave the Transpose out"),
        (
            lambda: generate(Sequential(language(), Linear(11, 1), Transpose((0, 2, 1))), [1]),
            "wanted a network of scores",
        ),
        (lambda: generate(Graph([x := Input().node(), y := Input().node()], x + y), [1]), "got inputs "),
    ],
)
def test_what_cannot_be_written_is_refused(give, words):
    with pytest.raises(DataError, match=re.escape(words)):
        give()


def test_scores_that_are_not_finite_are_said():
    net = language()
    net["words"].W.data[0] = np.nan
    with np.errstate(all="ignore"), pytest.raises(DataError, match="gives scores that are not finite"):
        generate(net, [1], tokens=1)
