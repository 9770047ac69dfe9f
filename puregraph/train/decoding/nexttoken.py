"""NextToken: the scores of the next token of texts, by passes of one fixed shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError, show
from puregraph.data.batches import Batch
from puregraph.graph.module import Module
from puregraph.modules.embedding import Position
from puregraph.train.objective import Objective

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.graph import Graph

ROUNDING_TOLERANCE = 1e-5  # relative to the largest score: smaller differences are rounding errors


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
        return checkFinite(scores)

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
        if np.abs(y - z).max(initial=0) > ROUNDING_TOLERANCE * np.abs(y).max(initial=0):
            raise DataError(
                f"generate: {self.objective.net.title()} is not causal: its scores at a position depend on the tokens "
                "behind it; Attention(causal=True) and transformerBlock(..., causal=True) look at those before it alone"
            )
        self.isKnown = True


def checkFinite(scores: Any) -> Any:
    """Return scores after a check.

    Raises    DataError if any is not finite
    """
    if not all(np.isfinite(row).all() for row in scores):
        raise DataError(
            "generate: the network gives scores that are not finite; a pass in puregraph.autodiff.detect_anomaly() "
            "names the first node that does"
        )
    return scores


def positionsOf(net: Graph) -> list[int]:
    """Return the lengths of the tables of positions of a network."""
    return [module.W.shape[0] for module in net.modules().values() if isinstance(module, Position)]


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
    positions = positionsOf(net)
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
