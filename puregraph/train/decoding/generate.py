"""Generate: continue sequences of tokens with a language model, in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import Size, takes
from puregraph.train.decoding.generator import OPTIONS, Generator

if TYPE_CHECKING:
    from puregraph.graph.module import Module


@takes(tokens=Size, **OPTIONS)
def generate(
    net: Module,
    prompt: Any,
    tokens: int = 100,
    temperature: float = 1.0,
    topK: int | None = None,
    topP: float = 1.0,
    stop: Any = None,
    seed: int | None = 0,
    length: int | None = None,
    compile: bool = True,
    minP: float = 0.0,
    repetition: float = 1.0,
    beams: int = 1,
    lengthPenalty: float = 1.0,
    stopTexts: Any = (),
    decode: Callable[[list[int]], str] | None = None,
) -> Any:
    """Continue `prompt` by up to `tokens` tokens, one after the other. Returns the list of all ids.

        ids = generate(net, list(b"To be"), tokens=50, temperature=0.8)
        print(bytes(ids).decode(errors="replace"))

    `net`          a network from tokens (n, t) to scores (n, t, vocabulary) of the next token, such as `models.gpt`
    `prompt`       the first ids; or a list of several prompts of any lengths, for which a list of lists is returned
    `temperature`  the divisor of scores: below 1 likely tokens become likelier, 0 always takes the likeliest
    `topK`         sample from the k likeliest tokens only; None: from all
    `topP`         sample from the smallest set of likeliest tokens with this total probability
    `stop`         an id, or several, that end a text
    `seed`         seed of the samples; the generator of each prompt is separate. None: a random seed
    `length`       the most tokens that the network sees; None: the number of its positions, or all tokens

    The others, and the caches that make a step cheap, are those of `Generator`, of which this is the short form.

    Shapes    a list of ids -> a list of at most `tokens` more; a list of lists -> a list of those
    Source    see `Generator`
    Raises    DataError for a prompt that is empty, not a list of ids, or has ids outside the vocabulary, and for a
              network that is not a causal language model
    """
    sampling = temperature, topK, topP, minP, repetition, beams, lengthPenalty
    return Generator(net, *sampling, stop, stopTexts, decode, seed, length, compile)(prompt, tokens)
