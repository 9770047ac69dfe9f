"""The sum over all paths of a transducer, which emits labels between time steps, in log space.

    at (t, u)    a blank leads to (t + 1, u), label u to (t, u + 1); the last step is a blank at (T - 1, U)

Source    Graves 2012, Sequence Transduction with Recurrent Neural Networks, arXiv:1211.3711, eq. 16 to 20
"""

from typing import Any

import numpy as np

from puregraph.core.tracer import arrayLike
from puregraph.ops.alignment.pathlaunches import pathLaunches
from puregraph.ops.alignment.reference import NEVER, needFirst, needLengths, summed
from puregraph.ops.cuda.runtime.launch import gridFor
from puregraph.ops.gather.reference import addAt
from puregraph.ops.kernel import REFERENCE, kernel


@kernel
def transductions(logs, index, lengths, counts, blank):
    """-ln of the probability of all paths of each sample, and the probability of each class at each (t, u).

    The first is inf where there is no path; the second, 0 there, is minus its gradient in `logs`.

    Shapes    logs (n, t, s + 1, c), index (n, s) labels and -1 behind them, lengths (n,) and counts (n,) integers ->
              (n,) and (n, t, s + 1, c)
    Raises    IndexError if a length is not from 0 to t, or a count not from 0 to s
    """
    needLengths(lengths, counts, logs, index)
    n, time, rows, classes = logs.shape
    labels = np.where(index < 0, blank, index)
    at = np.broadcast_to(labels[:, None, :, None], (n, time, rows - 1, 1))
    isLabel = arrayLike(index, np.arange(rows - 1)) < counts[:, None]
    stay = logs[:, :, :, blank]
    emit = np.where(isLabel[:, None], np.take_along_axis(logs[:, :, : rows - 1], at, axis=3)[:, :, :, 0], NEVER)
    isEnd = np.equal(arrayLike(index, np.arange(time))[:, None], (lengths - 1)[:, None, None])
    isEnd = isEnd & np.equal(arrayLike(index, np.arange(rows)), counts[:, None])[:, None]
    never = np.full_like(logs, NEVER, shape=(n,))
    ahead = forwardRows(stay, emit, never)
    ends = np.where(isEnd, ahead + stay, NEVER).reshape(n, time * rows) if time else never[:, None]
    total = ends.max(axis=1) + np.zeros_like(never)
    isPossible = ~(total <= 0.1 * NEVER)  # nan is a number that went wrong
    back = backwardRows(stay, emit, isEnd, never)
    later = np.concatenate([back[:, 1:], np.full_like(back, NEVER, shape=(n, 1, rows))], axis=1)[:, :time]
    later = np.where(isEnd, 0.0, later)
    offset = np.where(isPossible, total, 0.0)[:, None, None]
    blanks = np.exp(np.minimum(ahead + stay + later - offset, 0))
    emitted = np.exp(np.minimum(ahead[:, :, : rows - 1] + emit + back[:, :, 1:] - offset, 0))
    emitted = np.concatenate([emitted, np.zeros_like(blanks, shape=(n, time, 1))], axis=2)
    both = np.stack([blanks, emitted], axis=3).reshape(n * time * rows, 2)
    kinds = np.concatenate([labels, np.zeros_like(labels, shape=(n, 1)) + blank], axis=1)
    kinds = np.stack([np.zeros_like(kinds) + blank, kinds], axis=2)
    kinds = np.broadcast_to(kinds[:, None], (n, time, rows, 2)).reshape(n * time * rows, 2)
    chances = addAt(both.astype(logs.dtype), kinds, classes).reshape(logs.shape)
    return np.where(isPossible, -total, np.inf).astype(logs.dtype), chances


def forwardRows(stay, emit, never):
    """The logarithm of the probability of reaching each (t, u)."""
    _, time, rows = stay.shape
    entering = [never * 0, *[never] * (rows - 1)]
    result: list[Any] = []
    for t in range(time):
        row = [entering[0]]
        for u in range(1, rows):
            row.append(summed(entering[u], row[u - 1] + emit[:, t, u - 1]))
        entering = [row[u] + stay[:, t, u] for u in range(rows)]
        result.append(np.stack(row, axis=1))
    return np.stack(result, axis=1) if result else np.zeros_like(stay)


def backwardRows(stay, emit, isEnd, never):
    """The logarithm of the probability of going from each (t, u) to the end."""
    _, time, rows = stay.shape
    later = [never] * rows
    result: list[Any] = []
    for t in range(time - 1, -1, -1):
        row: list[Any] = [None] * rows
        for u in range(rows - 1, -1, -1):
            onward = stay[:, t, u] + np.where(isEnd[:, t, u], 0.0, later[u])
            row[u] = onward if u == rows - 1 else summed(onward, emit[:, t, u] + row[u + 1])
        later = row
        result.append(np.stack(row, axis=1))
    return np.stack(result[::-1], axis=1) if result else np.zeros_like(stay)


@transductions.shape
def transductions(logs, index, lengths, counts, blank):
    """(n,) and the shape of the logarithms, in their dtype."""
    return [((logs.shape[0],), logs.dtype), (logs.shape, logs.dtype)]


@transductions.flops
def transductions(y, logs, index, lengths, counts, blank):
    """Two passes of a sum of two exponentials, and two probabilities, at each (t, u)."""
    return 24 * logs.shape[0] * logs.shape[1] * logs.shape[2]


@transductions.cuda
def transductions(outs, logs, index, lengths, counts, blank):
    """A block takes a pass of a sample, then a thread each class at a (t, u). A label that is no class makes the cost
    nan."""
    n, time, rows, classes = logs.shape
    kept, sizes = ((n, time, rows), (n, time, rows)), (time, rows, classes, blank)
    entries, size = ("latticeRows", "latticeChances"), logs.size
    return pathLaunches(entries, outs, (logs, index, lengths, counts), kept, sizes, (size, gridFor(size)[0]))


@transductions.vjp
def transductions(g, y, logs, index, lengths, counts, blank):
    """dlogs = -g times the probabilities; the probabilities themselves have no known gradient."""
    needFirst(g)
    return -g[0].reshape(-1, 1, 1, 1) * y[1], None, None, None, None


transductions.declare(jvp=REFERENCE)
