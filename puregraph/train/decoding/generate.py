"""Generate: continue sequences of tokens with a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Count, Flag, Fraction, NotNegative, Size, optional, takes
from puregraph.core.errors import DataError, show
from puregraph.data.batches import Batch
from puregraph.graph.module import Module
from puregraph.modules.embedding import Position
from puregraph.train.decoding.sampling import drawToken
from puregraph.train.modes import inMode
from puregraph.train.objective import Objective

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.graph import Graph

NOISE = 1e-5  # relative to the largest score: smaller differences are rounding errors


@takes(
    tokens=Size,
    temperature=NotNegative,
    topK=optional(Count),
    topP=Fraction,
    seed=optional(Size),
    length=optional(Count),
    compile=Flag,
)
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

    Rows are padded to one fixed length, so that one compiled pass is used for every token; in a causal network, the
    padding after a token has no effect. Of longer texts, the network sees the last `length` tokens.

    Shapes    a list of ids -> a list of at most `tokens` more; a list of lists -> a list of those
    Source    Radford et al. 2019, Language Models are Unsupervised Multitask Learners; topK: Fan et al. 2018,
              arXiv:1805.04833; topP: Holtzman et al. 2020, arXiv:1904.09751, section 3.1
    Raises    DataError for a prompt that is empty, not a list of ids, or has ids outside the vocabulary, and for a
              network that is not a causal language model
    """
    texts, isOne = promptsFrom(prompt)
    model = NextToken(net, texts, tokens, length, compile)
    ends = set(np.atleast_1d([] if stop is None else stop).tolist())
    draws = [np.random.default_rng(None if seed is None else [seed, row]) for row in range(len(texts))]
    unfinished = list(range(len(texts)))
    with inMode(False, model.objective.net):
        try:
            for _ in range(tokens):
                scores = model.scores(texts)
                for row in unfinished:
                    texts[row].append(drawToken(scores[row], draws[row], temperature, topK, topP))
                unfinished = [row for row in unfinished if texts[row][-1] not in ends]
                if not unfinished:
                    break
        finally:
            model.objective.reset()
    return texts[0] if isOne else texts


class NextToken:
    """Computes the scores of the next token of several texts, by passes of one fixed shape.

    Raises    DataError for a network without such scores, and for ids outside its vocabulary
    """

    def __init__(self, net: Module, texts: list[list[int]], tokens: int, length: int | None, compile: bool):
        self.objective = Objective(net, compile=compile)
        self.length = lengthOf(self.objective.net, length, max(map(len, texts)) + tokens)
        self.vocabulary = vocabularyOf(self.objective.net, len(texts), self.length)
        wrong = next((token for text in texts for token in text if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise DataError(f"prompt: wanted ids from 0 to {self.vocabulary - 1}, the vocabulary, got {wrong}")
        self.isKnown = False  # True once the network is known to be causal

    def scores(self, texts: list[list[int]]) -> list[np.ndarray]:
        """Return the scores of each text's next token, on the host, in float64."""
        window = np.zeros((len(texts), self.length), np.int64)
        last = [min(len(text), self.length) - 1 for text in texts]
        for row, text in enumerate(texts):
            window[row, : last[row] + 1] = text[-self.length :]
        if not self.isKnown:
            self.checkCausal(window)
        y = self.passed(window)
        scores = [device.toHost(y[row, at]).astype(np.float64) for row, at in enumerate(last)]
        if not all(np.isfinite(row).all() for row in scores):
            raise DataError(
                "generate: the network gives scores that are not finite; a pass in puregraph.autodiff.detect_anomaly() "
                "names the first node that does"
            )
        return scores

    def passed(self, window: np.ndarray) -> AnyArray:
        """Run the network; the result stays on the device."""
        return self.objective.run(self.objective.prepare(Batch([window], [], len(window))))[1][0]

    def checkCausal(self, window: np.ndarray) -> None:
        """Check that the network is causal: tokens in the second half must not change scores in the first.

        Raises    DataError if they do
        """
        half, other = self.length // 2, window.copy()
        other[:, half:] = (other[:, half:] + 1) % self.vocabulary
        y, z = (device.toHost(self.passed(x))[:, :half].astype(np.float64) for x in (window, other))
        if np.abs(y - z).max(initial=0) > NOISE * np.abs(y).max(initial=0):
            raise DataError(
                f"generate: {self.objective.net.title()} is not causal: its scores at a position depend on the tokens "
                "behind it; Attention(causal=True) and transformerBlock(..., causal=True) look at those before it alone"
            )
        self.isKnown = True


def promptsFrom(prompt: Any) -> tuple[list[list[int]], bool]:
    """Return the ids of each text, and True if the prompt is a single text.

    Raises    DataError for anything but ids or lists of ids, and for an empty prompt
    """
    if isinstance(prompt, (str, bytes)):
        raise DataError(
            f"prompt: wanted a list of ids, got a text {prompt!r:.40}; ids are list(b'To be') where tokens are bytes, "
            "[letters.index(letter) for letter in text] where they are letters"
        )
    if not hasattr(prompt, "__len__") or not len(prompt):
        raise DataError(f"prompt: wanted at least one id to begin with, got {prompt!r:.40}")
    isOne = np.ndim(prompt[0]) == 0 and not isinstance(prompt[0], (str, bytes))
    return [idsOf(text) for text in ([prompt] if isOne else prompt)], isOne


def idsOf(text: str) -> list[int]:
    """Return the ids of one text.

    Raises    DataError for anything else, and for an empty text
    """
    try:
        ids = np.asarray(device.toHost(text) if hasattr(text, "dtype") else text)
    except ValueError:
        ids = np.zeros(0, object)
    if ids.ndim == 1 and not ids.size and ids.dtype != object:
        raise DataError("prompt: wanted at least one id in each text to begin with, got none")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise DataError(f"prompt: wanted a list of ids, whole numbers, or a list of such lists, got {text!r:.60}")
    return ids.tolist()


def lengthOf(net: Graph, length: int | None, whole: int) -> int:
    """Return the number of tokens that the network sees: `length`, or else its positions, or else the full text.

    Raises    DataError for more tokens than positions
    """
    positions = [module.W.shape[0] for module in net.modules().values() if isinstance(module, Position)]
    if length is not None and positions and length > min(positions):
        raise DataError(f"length: wanted at most {min(positions)}, the positions of {net.title()}, got {length}")
    return length or min(positions, default=whole)


def vocabularyOf(net: Graph, count: int, length: int) -> int:
    """Return the number of tokens that the network scores.

    Raises    DataError for a network of another kind, ShapeError for one that does not take tokens
    """
    names = list(net.arguments)
    y = net.dataShapeFrom((count, length)) if len(names) == 1 else names
    if len(names) != 1 or isinstance(y, list) or len(y) != 3 or y[:2] != (count, length):
        got = f"inputs {', '.join(names)}" if len(names) != 1 else f"{show(y)} for {show((count, length))}"
        isTransposed = len(names) == 1 and len(y) == 3 and y[::2] == (count, length)
        hint = "; leave the Transpose out, CrossEntropy(axis=-1) trains without it" * isTransposed
        raise DataError(f"generate: wanted a network of scores (n, t, vocabulary) for tokens (n, t), got {got}{hint}")
    return int(y[2])
