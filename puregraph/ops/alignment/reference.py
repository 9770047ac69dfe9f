"""The sum over all alignments of labels with time steps, by the forward-backward algorithm in log space.

    states    blank, label 0, blank, label 1, ..., blank: 2 s + 1 of them
    a step    to the same state, to the next one, or past a blank between two labels that differ

Source    Graves, Fernandez, Gomez, Schmidhuber 2006, Connectionist Temporal Classification, eq. 5 to 16
"""

import numpy as np

from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import arrayLike
from puregraph.ops.alignment.pathlaunches import pathLaunches
from puregraph.ops.cuda.runtime.launch import WAVE
from puregraph.ops.gather.reference import addAt
from puregraph.ops.kernel import REFERENCE, kernel

NEVER = -1e30  # the logarithm of what cannot happen: finite, so that no difference of two is nan


@kernel
def alignments(logs, index, lengths, counts, blank):
    """-ln of the probability of all alignments of each sample, and the probability of each class at each time step.

    The first is inf, and the second 0, where no alignment is possible. The gradient of the first is minus the second.

    Shapes    logs (n, t, c), index (n, s) labels, padded with -1, lengths (n,) and counts (n,) integers ->
              (n,) and (n, t, c)
    Raises    IndexError if a length is not from 0 to t, or a count not from 0 to s
    """
    needLengths(lengths, counts, logs, index)
    n, time, classes = logs.shape
    states, mayPass = statesOf(index, blank, logs)
    emitted = np.take_along_axis(logs, np.broadcast_to(states[:, None], (n, time, states.shape[1])), axis=2)
    row = arrayLike(index, np.arange(states.shape[1]))
    last = 2 * counts[:, None]
    ends = np.where(np.equal(row, last) | np.equal(row, last - 1), 0.0, NEVER).astype(logs.dtype)
    ahead = [np.where(np.equal(row, 0), 0.0, NEVER).astype(logs.dtype) + np.zeros_like(ends)]
    for t in range(time):
        now = summed(ahead[-1], moved(ahead[-1], 1), moved(ahead[-1], 2) + mayPass) + emitted[:, t]
        ahead.append(np.where(t < lengths[:, None], now, ahead[-1]))
    total = summed(*[(ahead[-1] + ends)[:, i : i + 1] for i in range(states.shape[1])])
    isPossible = ~(total <= 0.1 * NEVER)  # nan is a number that went wrong
    back, behind = ends, []
    jumps = moved(mayPass, -2)
    for t in range(time - 1, -1, -1):
        isWithin = t < lengths[:, None]
        behind.append(np.exp(np.where(isWithin & isPossible, ahead[t + 1] + back - total, NEVER)))
        later = back + emitted[:, t]
        back = np.where(isWithin, summed(later, moved(later, -1), moved(later, -2) + jumps), back)
    there = np.stack(behind[::-1], axis=1) if behind else np.zeros_like(emitted)
    flat = np.broadcast_to(states[:, None], there.shape).reshape(n * time, states.shape[1])
    chances = addAt(there.reshape(flat.shape), flat, classes).reshape(logs.shape)
    return np.where(isPossible, -total, np.inf)[:, 0].astype(logs.dtype), chances


def statesOf(index, blank, like):
    """The class of each state, and the log weight of skipping the blank before it: 0 if allowed, else NEVER."""
    n, s = index.shape
    labels = np.where(index < 0, blank, index)
    blanks = np.zeros_like(labels) + blank
    states = np.stack([blanks, labels], axis=2).reshape(n, 2 * s)
    states = np.concatenate([states, np.zeros_like(labels, shape=(n, 1)) + blank], axis=1)
    differs = np.not_equal(states[:, 2:], states[:, :-2]) & np.not_equal(states[:, 2:], blank)
    mayPass = np.where(differs, 0.0, NEVER).astype(like.dtype)
    first = np.full_like(mayPass, NEVER, shape=(n, min(2, 2 * s + 1)))
    return states, np.concatenate([first, mayPass], axis=1)


def moved(x, by):
    """The values shifted by n states along the second axis, filled with NEVER."""
    n, size = x.shape
    fill = np.full_like(x, NEVER, shape=(n, min(abs(by), size)))
    return np.concatenate([fill, x[:, : size - by]] if by > 0 else [x[:, -by:], fill], axis=1)[:, :size]


def summed(*terms):
    """ln of the sum of exp of arrays."""
    most = terms[0]
    for x in terms[1:]:
        most = np.maximum(most, x)
    total = np.exp(terms[0] - most)
    for x in terms[1:]:
        total = total + np.exp(x - most)
    return np.log(total) + most


def needLengths(lengths, counts, logs, index):
    """Refuse lengths and label counts that do not fit the arrays; tracers have no values to check."""
    for name, value, most in (("lengths", lengths, logs.shape[1]), ("labelLengths", counts, index.shape[1])):
        wrong = (value < 0) | (value > most)
        if isinstance(value, np.ndarray) and wrong.any():
            raise IndexError(f"wanted {name} from 0 to {most}, got {value[wrong][0]}")


@alignments.shape
def alignments(logs, index, lengths, counts, blank):
    """(n,) and (n, t, c), in the dtype of the logarithms."""
    return [((logs.shape[0],), logs.dtype), (logs.shape, logs.dtype)]


@alignments.flops
def alignments(y, logs, index, lengths, counts, blank):
    """Two passes of a sum of three exponentials for each time step and state."""
    return 24 * logs.shape[0] * logs.shape[1] * (2 * index.shape[1] + 1)


@alignments.cuda
def alignments(outs, logs, index, lengths, counts, blank):
    """A block takes a pass of a sample, then one each time step. A label that is no class makes the cost nan."""
    n, time, classes = logs.shape
    labels, steps = index.shape[1], n * time
    rows, sizes = ((n, time + 1, 2 * labels + 1), (n, time, 2 * labels + 1)), (time, classes, labels, blank)
    entries = "alignmentRows", "alignmentChances"
    return pathLaunches(entries, outs, (logs, index, lengths, counts), rows, sizes, (steps, min(steps, 2 * WAVE)))


@alignments.vjp
def alignments(g, y, logs, index, lengths, counts, blank):
    """dlogs = -g times the probabilities; the probabilities themselves have no known gradient."""
    needFirst(g)
    return -g[0].reshape(-1, 1, 1) * y[1], None, None, None, None


def needFirst(g):
    """Refuse a gradient of the probabilities.

    Raises    AutoDiffException if there is one
    """
    if g[0] is None or g[1] is not None:
        raise AutoDiffException("no second derivative is known of the sum over all alignments")


alignments.declare(jvp=REFERENCE)
