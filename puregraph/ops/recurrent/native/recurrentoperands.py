"""RecurrentOperands: the arrays, sizes and kinds of recurrent cells that kernels are written for."""

from __future__ import annotations

from typing import Any, NamedTuple


class SequenceOperand(NamedTuple):
    """A sequence: an array with the strides of samples and time steps; the units of a step are contiguous."""

    what: Any
    strides: tuple[int, int]


class RecurrentSizes(NamedTuple):
    """Samples, time steps, units of a state, and inputs: the elements of x; 0 where x W is given."""

    samples: int
    timeSteps: int
    units: int
    inputs: int = 0


class NativeCell(NamedTuple):
    """A kind of cell: its gates, its states, the values it saves for backward, and whether dp and dq differ."""

    kind: str
    gates: int
    states: int
    saved: int
    parted: bool = False


CELLS = {
    "tanh": NativeCell("tanh", 1, 1, 0),
    "relu": NativeCell("relu", 1, 1, 0),
    "lstm": NativeCell("lstm", 4, 2, 4),
    "gru": NativeCell("gru", 3, 1, 4, True),
}
