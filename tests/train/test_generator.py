"""The Generator: caches give the scores of full passes, whatever the batch; beam search, stop texts, streams."""

import itertools

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative

import puregraph
from puregraph import ArgumentError, Generator, Graph, Linear, generate
from puregraph.core.device import toDevice, toHost
from puregraph.graph.input import Input
from puregraph.models import gpt, llama
from puregraph.modules import Attention, Conv1D, Embedder, Reshape, Rotary, Transpose
from puregraph.train.decoding.beamsearch import Beam, inOrder
from puregraph.train.decoding.cachedgraph import CachedGraph
from puregraph.train.decoding.sampling import drawToken, lessRepeated


def gptOf(vocabulary=11, length=48, seed=1):
    puregraph.seed(seed)
    net = gpt(vocabulary, length=length, layers=2, heads=2, size=16).evalMode()
    net["words"].W.data *= 12
    return net


def llamaOf(groups=2):
    puregraph.seed(3)
    net = llama(11, layers=2, heads=4, size=32, inner=24, groups=groups).evalMode()
    for name, param in net.params.items():
        if name.endswith("W"):
            param.data *= 6
    return net


def windowedOf():
    """Rotated queries and keys of few heads, a window, capped scores and sinks."""
    puregraph.seed(4)
    x = Input(name="ids").node()
    h = Embedder(11, 16, name="words")(x)
    q, k, v = (Rotary(50.0)(Transpose((0, 2, 1, 3))(Reshape((0, 0, n, 8))(Linear(16, 8 * n)(h)))) for n in (2, 1, 1))
    attention = Attention(causal=True, window=4, cap=2.0, sinks=2)
    attention.sinks.data = np.array([1.0, -0.5], np.float32)
    y = attention(q, k, v)
    return Graph(x, Linear(16, 11, name="out")(Reshape((0, 0, 16))(Transpose((0, 2, 1, 3))(y)))).evalMode()


NETS = {"gpt": gptOf, "llama": llamaOf, "llama of one group": lambda: llamaOf(1), "window": windowedOf}


def fullScores(net, text):
    """The scores at every position by one pass over all tokens."""
    return toHost(net(toDevice(np.array([text]))))[0].astype(np.float64)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_scores_by_caches_are_those_of_a_full_pass_at_every_position(name, compiled, rng, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    net = NETS[name]()
    texts = [rng.integers(0, 11, 40).tolist() for _ in range(3)]
    cached = CachedGraph(net, 3, 40, compiled)
    wanted = [fullScores(net, text) for text in texts]
    most = max(np.abs(w).max() for w in wanted)
    starts = [1, 5, 9]
    for more in range(30):
        scores = cached.scores([text[: start + more] for text, start in zip(texts, starts)])
        for row, start in enumerate(starts):
            assert np.abs(scores[row] - wanted[row][start + more - 1]).max() < 1e-5 * most
    assert len(cached.caches) == (2 if name == "window" else 4)


def test_caches_of_float64_are_exact(rng):
    net = gptOf().calcMode(np.float64)
    text = rng.integers(0, 11, 30).tolist()
    cached = CachedGraph(net, 1, 40, True)
    assert {cache.cache.dtype for cache in cached.caches} == {np.dtype(np.float64)}
    for end in range(3, 31):
        scores = cached.scores([text[:end]])
        assert np.abs(scores - fullScores(net, text)[end - 1]).max() < 1e-12 * 50


@needsNative
def test_a_step_runs_natively_and_writes_its_rows_alone(rng):
    cached = CachedGraph(gptOf(), 2, 40, True)
    texts = [rng.integers(0, 11, 12).tolist() for _ in range(2)]
    for end in range(8, 11):
        before = [cache.cache.data.copy() for cache in cached.caches]
        cached.scores([texts[0][:end], texts[1][: end - 3]])
    for old, cache in zip(before, cached.caches):
        changed = (old != cache.cache.data).any(axis=(1, 3))
        assert np.flatnonzero(changed[0]).tolist() == [9] and np.flatnonzero(changed[1]).tolist() == [6]
    kept = cached.objective.programs.kept.values()
    step = next(p for p in kept if p is not None and p.shapes[0] == (2, 1))
    assert leftToNumpy(step) == []
    copies = [y for call in step.plan.schedule.calls for y in call.outs if y is not None and y.base is None]
    assert max(y.nbytes for y in copies) < cached.caches[0].cache.data.nbytes


def test_rows_take_the_caches_of_others(rng):
    net, texts = gptOf(), [rng.integers(0, 11, 9).tolist() for _ in range(3)]
    cached = CachedGraph(net, 3, 40, False)
    cached.scores(texts)
    parents = [2, 0, 2]
    cached.reorder(parents)
    again = [[*texts[parent], token] for parent, token in zip(parents, (1, 2, 3))]
    assert all(len(text) == len(seen) + 1 for text, seen in zip(again, cached.seen))
    for scores, text in zip(cached.scores(again), again):
        assert np.abs(scores - fullScores(net, text)[-1]).max() < 1e-4


@pytest.mark.parametrize("name", NETS)
def test_greedy_tokens_are_those_of_full_passes_beyond_the_caches_too(name):
    net = NETS[name]()
    texts = [[3], [5, 1, 2, 7, 7, 4, 1], list(range(11))]
    length = 20
    wanted = []
    for text in texts:
        text = list(text)
        for _ in range(25):
            text.append(int(fullScores(net, text[-length:])[-1].argmax()))
        wanted.append(text)
    for compiled in (True, False):
        write = Generator(net, temperature=0, length=length, compile=compiled)
        assert write(texts, tokens=25) == wanted
        assert write(texts[1], tokens=25) == wanted[1]
        assert all(model.cached is not None for model in write.models.values())


def test_a_prompt_has_the_same_samples_alone_and_in_any_batch():
    net = gptOf()
    texts = [[1, 2], [4], [5, 6, 7], [1, 2]]
    write = Generator(net, temperature=2.0, topK=9, topP=0.95, minP=0.01, repetition=1.1, seed=7)
    together = write(texts, tokens=20)
    assert [write(text, tokens=20) for text in texts[:3]] == together[:3]
    assert write(texts[::-1], tokens=20)[1:3] == together[1:3][::-1]
    assert together[0] != together[3] and write(texts, tokens=20) == together
    options = {"temperature": 2.0, "topK": 9, "topP": 0.95, "minP": 0.01, "repetition": 1.1}
    assert generate(net, texts, tokens=20, seed=7, **options) == together


def test_weights_that_change_between_calls_count():
    net = gptOf()
    write = Generator(net, temperature=0)
    write([1, 2, 3], tokens=1)
    for param in net.params.values():
        param.data[...] = np.roll(param.data, 1, axis=-1)
    assert write([1, 2, 3], tokens=4) == Generator(net, temperature=0, compile=False)([1, 2, 3], tokens=4)


def test_networks_that_mix_tokens_otherwise_see_the_window():
    puregraph.seed(5)
    x = Input(name="ids").node()
    h = Embedder(11, 8)(x)
    early = Conv1D(8, 8, 3, pad=((2, 0),))(Transpose((0, 2, 1))(h))
    q = Transpose((0, 2, 1))(early)
    heads = [Transpose((0, 2, 1, 3))(Reshape((0, 0, 1, 8))(q)) for _ in range(3)]
    y = Reshape((0, 0, 8))(Transpose((0, 2, 1, 3))(Attention(causal=True)(*heads)))
    net = Graph(x, Linear(8, 11)(y)).evalMode()
    text = [1, 2, 3]
    for _ in range(8):
        text.append(int(fullScores(net, text)[-1].argmax()))
    write = Generator(net, temperature=0)
    assert write([1, 2, 3], tokens=8) == text
    assert all(model.cached is None for model in write.models.values())


# Search ---------------------------------------------------------------------------------------------------------------


def allSequences(net, prompt, tokens, vocabulary, penalty, stop):
    """The best continuation of all, by a full pass for each."""
    best = (-np.inf, None)
    known = {}

    def logs(text):
        if text not in known:
            scores = fullScores(net, list(text))[-1]
            known[text] = scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        return known[text]

    def walk(tail, total):
        nonlocal best
        if tail and (tail[-1] == stop or len(tail) == tokens):
            best = max(best, (total / len(tail) ** penalty, tail))
            return
        for token in range(vocabulary):
            walk((*tail, token), total + logs((*prompt, *tail))[token])

    walk((), 0.0)
    return [*prompt, *best[1]]


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_of_four_finds_the_best_of_all_sequences(seed, penalty):
    """Of five tokens and six steps. The net has likely tokens: a beam may miss the best where all are alike."""
    puregraph.seed(seed)
    net = gpt(5, length=16, layers=1, heads=2, size=16).evalMode()
    net["words"].W.data *= 20
    write = Generator(net, beams=4, lengthPenalty=penalty, stop=4)
    assert write([1, 2], tokens=6) == allSequences(net, [1, 2], 6, 5, penalty, 4)


def test_a_beam_as_wide_as_all_sequences_is_exact_where_tokens_are_alike():
    puregraph.seed(9)
    net = gpt(3, length=16, layers=1, heads=2, size=16).evalMode()
    net["words"].W.data *= 4
    for penalty in (0.0, 1.0, 2.0):
        write = Generator(net, beams=81, lengthPenalty=penalty, stop=2)
        assert write([[0, 1], [1]], tokens=4) == [allSequences(net, p, 4, 3, penalty, 2) for p in ([0, 1], [1])]


def test_a_beam_of_several_prompts_is_that_of_each_alone():
    net = gptOf()
    write = Generator(net, beams=3, stop=[3, 9])
    texts = [[1, 2], [4], [5, 6, 7, 8, 1]]
    assert write(texts, tokens=12) == [write(text, tokens=12) for text in texts]
    assert Generator(net, beams=3, stop=[3, 9], compile=False)(texts, tokens=12) == write(texts, tokens=12)


def test_a_search_ends_when_no_open_hypothesis_can_win():
    beam = Beam(1, 10, 1.0, lambda tokens: tokens[-1] == 0)
    beam.extend(np.log([[0.6, 0.4]]))
    assert beam.ended[0].tokens == (0,) and beam.best.tokens == (0,) and not beam.isDone
    beam = Beam(1, 10, 0.0, lambda tokens: tokens[-1] == 0)
    beam.extend(np.log([[0.9, 0.1]]))
    assert beam.isDone


def test_numbers_come_in_order_and_equal_ones_by_index(rng):
    for size, first in itertools.product((1, 5, 30), (1, 4, 40)):
        totals = rng.integers(0, 4, (size, 3)).astype(float)
        assert list(inOrder(totals, first)) == np.argsort(-totals, axis=None, kind="stable").tolist()


# Options --------------------------------------------------------------------------------------------------------------


def test_unlikely_tokens_and_repeated_ones_are_held_back(rng):
    scores = np.log([0.5, 0.3, 0.15, 0.05])
    assert {drawToken(scores, rng, minP=0.5) for _ in range(100)} == {0, 1}
    assert {drawToken(scores, rng, minP=1.0) for _ in range(20)} == {0}
    assert lessRepeated(np.array([2.0, -1.0, 0.5]), [0, 1, 1], 2.0).tolist() == [1.0, -2.0, 0.5]
    often, seldom = (Generator(gptOf(), temperature=0, repetition=r)([1], tokens=10) for r in (1.0, 100.0))
    assert len(set(seldom)) > len(set(often))


def test_a_text_ends_with_a_stop_text():
    letters = "abcdefghijk"
    net = gptOf()
    decode = lambda ids: "".join(letters[i] for i in ids)  # noqa: E731
    whole = decode(Generator(net, temperature=3)([1, 2], tokens=30)[2:])
    stop = whole[4:6]
    found = decode(Generator(net, temperature=3, stopTexts=stop, decode=decode)([1, 2], tokens=30)[2:])
    assert found == whole[: whole.index(stop) + 2]


def test_a_stream_has_the_tokens_of_a_call():
    net = gptOf()
    write = Generator(net, temperature=2)
    assert list(write.stream([1, 2], tokens=7)) == write([1, 2], tokens=7)[2:]
    rows = list(write.stream([[1, 2], [4]], tokens=5))
    for row, text in enumerate(write([[1, 2], [4]], tokens=5)):
        assert [token for at, token in rows if at == row] == text[-5:]
    stream = write.stream([1, 2], tokens=7)
    next(stream)
    stream.close()
    assert write([1, 2], tokens=0) == [1, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Generator(gptOf(), stopTexts=("a",)), "stopTexts needs decode"),
        (lambda: next(Generator(gptOf(), beams=2).stream([1])), "beams=1 is needed for a stream"),
        (lambda: Generator(gptOf(), minP=2), "minP as a number from 0 to 1"),
        (lambda: Generator(gptOf(), repetition=0), "repetition as a finite number above 0"),
        (lambda: generate(gptOf(), [1], width=2), "width"),
    ],
)
def test_options_that_do_not_fit_are_refused(make, words):
    with pytest.raises((ArgumentError, TypeError), match=words):
        make()
