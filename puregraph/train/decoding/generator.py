"""Generator: continues texts with a language model, a token at a time, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import (
    AnyFunction,
    Count,
    Flag,
    Fraction,
    NotNegative,
    Number,
    Positive,
    Size,
    Texts,
    takes,
)
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.modules.attention import Attention
from puregraph.train.decoding.beamsearch import Beam, logSoftmaxOf
from puregraph.train.decoding.cachedgraph import CachedGraph
from puregraph.train.decoding.nexttoken import NextToken, checkFinite, positionsOf, promptsFrom
from puregraph.train.decoding.sampling import drawToken, lessRepeated
from puregraph.train.modes import inMode

if TYPE_CHECKING:
    from puregraph.graph.module import Module

# caches have a multiple of this many positions, so that prompts of similar lengths share a program
CACHE_POSITIONS_MULTIPLE = 64

OPTIONS = {  # of Generator and `generate`
    "temperature": NotNegative,
    "topK": Count | None,
    "topP": Fraction,
    "minP": Fraction,
    "repetition": Positive,
    "beams": Count,
    "lengthPenalty": Number,
    "stopTexts": Texts,
    "decode": AnyFunction | None,
    "seed": Size | None,
    "length": Count | None,
    "compile": Flag,
}


class Generator:
    """Continues texts with a language model; a stream of tokens, or a search for the likeliest continuation.

        write = Generator(net, temperature=0.8, topP=0.9, stop=0)
        ids = write(list(b"To be"), tokens=50)
        for token in write.stream(list(b"To be"), tokens=50): ...

    `net`            a network from tokens (n, t) to scores (n, t, vocabulary) of the next token
    `temperature`    the divisor of scores; 0 always takes the likeliest token
    `topK`, `topP`, `minP`  sample from the k likeliest tokens; from the smallest set with this total probability;
                     from those with at least this share of the largest probability
    `repetition`     makes tokens of the text less likely: a positive score is divided by it, a negative one multiplied
    `beams`          above 1: hypotheses of a beam search, which replaces sampling
    `lengthPenalty`  the sum of log-probabilities is divided by the number of tokens to this power
    `stop`           an id, or several, that end a text; `stopTexts` texts that do, in what `decode(ids)` returns
    `seed`           seed of the samples. A prompt has the same samples alone and in any batch; equal prompts of a batch
                     have different ones. None: a random seed
    `length`         the most tokens that the network sees; None: the number of its positions, or all tokens

    The prompts are computed in one pass, then one token of each text per step; keys and values of earlier tokens stay
    in caches (`RowCache`). Of texts longer than `length`, and in networks with layers that mix tokens other than by
    causal `Attention`, a pass sees the last `length` tokens each time.

    Source    Radford et al. 2019, Language Models are Unsupervised Multitask Learners; the caches: Pope et al. 2022,
              arXiv:2211.05102; the options: see `sampling` and `beamsearch`
    Raises    DataError for a prompt that is empty, not a list of ids, or has ids outside the vocabulary, and for a
              network that is not a causal language model

    >>> from puregraph.models import gpt
    >>> net = gpt(vocabulary=16, length=32, layers=1, heads=2, size=16)
    >>> len(Generator(net, temperature=0)([1, 2, 3], tokens=5))
    8
    """

    @takes(**OPTIONS)
    def __init__(
        self,
        net: Module,
        temperature: float = 1.0,
        topK: int | None = None,
        topP: float = 1.0,
        minP: float = 0.0,
        repetition: float = 1.0,
        beams: int = 1,
        lengthPenalty: float = 1.0,
        stop: Any = None,
        stopTexts: Any = (),
        decode: Callable[[list[int]], str] | None = None,
        seed: int | None = 0,
        length: int | None = None,
        compile: bool = True,
    ):
        if stopTexts and decode is None:
            raise ArgumentError("Generator: stopTexts needs decode, a function from ids to a text")
        self.net, self.length, self.compile, self.seed = net, length, compile, seed
        self.sampling: dict[str, Any] = {"temperature": temperature, "topK": topK, "topP": topP, "minP": minP}
        self.repetition, self.beams, self.lengthPenalty = repetition, beams, lengthPenalty
        self.ends = set(np.atleast_1d([] if stop is None else stop).tolist())
        self.stopTexts = (stopTexts,) if isinstance(stopTexts, str) else tuple(stopTexts)
        self.decode: Any = decode
        self.models: dict[tuple[int, int, int], TextScores] = {}

    @takes(tokens=Size)
    def __call__(self, prompt: Any, tokens: int = 100) -> Any:
        """Return the ids of the prompt and up to `tokens` more; of several prompts a list of lists."""
        texts, isOne = promptsFrom(prompt)
        if self.beams > 1:
            texts = self.searched(texts, tokens)
        else:
            for row, token in self.drawn(texts, tokens):
                texts[row].append(token)
        return texts[0] if isOne else texts

    @takes(tokens=Size)
    def stream(self, prompt: Any, tokens: int = 100) -> Iterator[Any]:
        """Yield each token as it is drawn; of several prompts (row, token).

        Raises    ArgumentError with `beams`, whose tokens are known at the end only
        """
        if self.beams > 1:
            raise ArgumentError("Generator: beams=1 is needed for a stream: a search knows its tokens at the end only")
        texts, isOne = promptsFrom(prompt)
        for row, token in self.drawn(texts, tokens):
            texts[row].append(token)
            yield token if isOne else (row, token)

    def reset(self) -> None:
        """Free the caches and the compiled programs."""
        self.models.clear()

    def drawn(self, texts: list[list[int]], tokens: int) -> Iterator[tuple[int, int]]:
        """Yield (row, token) for each drawn token; the caller appends it to the text."""
        begins, model = list(map(len, texts)), self.modelFor(texts, tokens, len(texts))
        draws = [self.generatorOf(texts, row) for row in range(len(texts))]
        unfinished = list(range(len(texts)))
        with model.running():
            for _ in range(tokens):
                scores = model.scores(texts)
                for row in unfinished:
                    rated = lessRepeated(scores[row], texts[row], self.repetition)
                    yield row, drawToken(rated, draws[row], **self.sampling)
                unfinished = [row for row in unfinished if not self.isEnd(texts[row][begins[row] :])]
                if not unfinished:
                    break

    def searched(self, texts: list[list[int]], tokens: int) -> list[list[int]]:
        """Return the texts with the likeliest continuation that a beam search reaches."""
        width, model = self.beams, self.modelFor(texts, tokens, len(texts) * self.beams)
        beams = [Beam(width, tokens, self.lengthPenalty, self.isEnd) for _ in texts]
        rows = [list(text) for text in texts for _ in range(width)]
        with model.running():
            for _ in range(tokens):
                scores, parents = model.scores(rows), list(range(len(rows)))
                for i, (beam, text) in enumerate(zip(beams, texts)):
                    if beam.isDone:
                        continue
                    first, count = i * width, len(beam.open)
                    rated = [lessRepeated(scores[j], rows[j], self.repetition) for j in range(first, first + count)]
                    order = beam.extend(logSoftmaxOf(np.array(rated)))
                    parents[first : first + len(order)] = [first + parent for parent in order]
                    for j, hypothesis in enumerate(beam.open):
                        rows[first + j] = [*text, *hypothesis.tokens]
                model.reorder(parents)
                if all(beam.isDone for beam in beams):
                    break
        return [[*text, *beam.best.tokens] for text, beam in zip(texts, beams)]

    def isEnd(self, tokens: Any) -> bool:
        """True if new tokens end with a stop token, or their text has a stop text."""
        if len(tokens) and tokens[-1] in self.ends:
            return True
        if not self.stopTexts or not len(tokens):
            return False
        text = self.decode(list(tokens))
        return any(stop in text for stop in self.stopTexts)

    def generatorOf(self, texts: list[list[int]], row: int) -> np.random.Generator:
        """Return the random numbers of a prompt, which depend on the seed, its tokens and its equals before it."""
        same = sum(text == texts[row] for text in texts[:row])
        return np.random.default_rng(None if self.seed is None else [self.seed, same, *texts[row]])

    def modelFor(self, texts: list[list[int]], tokens: int, samples: int) -> TextScores:
        """Return the scores of `samples` texts of these lengths."""
        window = NextToken(self.net, texts, tokens, self.length, self.compile)
        longest = -(-(max(map(len, texts)) + tokens) // CACHE_POSITIONS_MULTIPLE) * CACHE_POSITIONS_MULTIPLE
        limit = self.length or min(positionsOf(window.objective.net), default=longest)
        key = samples, window.length, min(longest, limit)
        if key not in self.models:
            self.models[key] = TextScores(window, samples, key[2], self.compile)
        return self.models[key]


class TextScores:
    """The scores of the next token of several texts: by caches if the network allows, else by passes over a window."""

    def __init__(self, window: NextToken, samples: int, length: int, compile: bool):
        self.window = window
        self.cached = cachedOf(window, samples, length, compile)

    def running(self) -> Any:
        """A context in which the network is in evalMode; the caches begin anew, as weights may have changed."""
        if self.cached is not None:
            self.cached.seen = []
        return inMode(False, self.window.objective.net, *([] if self.cached is None else [self.cached.graph]))

    def scores(self, texts: list[list[int]]) -> Any:
        """Return the scores (n, vocabulary) in float64, on the host."""
        if self.cached is None or max(map(len, texts)) > self.cached.length:
            return self.window.scores(texts)
        return checkFinite(self.cached.scores(texts))

    def reorder(self, parents: list[int]) -> None:
        """Give each text the cache of another."""
        if self.cached is not None and self.cached.seen:
            self.cached.reorder(parents)


def cachedOf(window: NextToken, samples: int, length: int, compile: bool) -> CachedGraph | None:
    """Return the network with caches; None if its tokens cannot be computed one at a time."""
    modules = window.objective.net.modules().values()
    if not any(isinstance(module, Attention) and module.causal for module in modules):
        return None
    try:
        made = CachedGraph(window.objective.net, samples, length, compile)
        return made if made.isExact(window.vocabulary) else None
    except PuregraphError:  # sizes that depend on the number of tokens
        return None
