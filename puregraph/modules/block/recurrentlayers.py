"""RecurrentLayers: recurrent layers one after another; LSTMCell, GRUCell, RNNCell: one time step, a body of Scan."""

from typing import Any

from puregraph.core.arguments import Count, Flag, Probability, choice, takes
from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.projectedlstm import projectedLstm
from puregraph.modules.dropout import Dropout
from puregraph.modules.recurrent import DIRECTIONS, GRU, LSTM, RNN
from puregraph.modules.reshaping import Unsqueeze

KINDS: dict[str, Any] = {"LSTM": LSTM, "GRU": GRU, "RNN": RNN}


@blockNamed
@takes(
    kind=choice(*KINDS),
    insize=Count,
    hsize=Count,
    layers=Count,
    direction=choice("uni", "bi"),
    dropout=Probability,
    useBias=Flag,
    starts=Flag,
    states=Flag,
    lengths=Flag,
    projection=Count | None,
)
def RecurrentLayers(
    kind,
    insize,
    hsize,
    layers=2,
    direction="uni",
    dropout=0.0,
    useBias=True,
    starts=False,
    states=False,
    projection=None,
    name=None,
    lengths=False,
    **options,
):
    """Layers of an LSTM, GRU or RNN, each of which reads all h_t of the one before, with dropout between them.

    With `starts` the first states of each layer are inputs after x: h0, c0 of the first one, and so on; with `states`
    the last states of each are outputs after y, in the same order. With `lengths` a last input has the number of time
    steps of each sample: later ones change no state and give y = 0. Other options, such as the `mode` of an RNN, are
    those of the layer. With a `projection` h_t of an LSTM is (o tanh(c_t)) P, of that size; its layers are Scans, and
    slower. Layers are named "l0", "l1" and so on: `net.load(module.state_dict(), names="torch")` loads the weights of
    torch's module that has the name of the block, or of that module alone.

    Shapes    x (n, t, insize) (, states (n, d hsize)) (, lengths (n,)) -> y (n, t, d hsize) (, states),
              d = 2 for "bi", else 1; with a projection h has its size instead of hsize
    Source    Graves, Mohamed, Hinton 2013, arXiv:1303.5778, section 2; dropout: Zaremba, Sutskever, Vinyals 2014,
              arXiv:1409.2329, section 3.1; projection: Sak, Senior, Beaufays 2014, arXiv:1402.1128, section 2.2
    Raises    ArgumentError for another kind or option, or a projection of a GRU or RNN, or one with other options

    >>> RecurrentLayers("GRU", 8, 16, layers=3, direction="bi", dropout=0.1).dataShapeFrom(("N", "T", 8))
    ('N', 'T', 32)
    """
    if projection is not None and (kind != "LSTM" or options):
        wrong = ", ".join(options) if kind == "LSTM" else kind
        raise ArgumentError(f"RecurrentLayers: projection is for an LSTM without other options, got it with {wrong}")
    make, sides = KINDS[kind], DIRECTIONS[direction]
    width = sides * (projection or hsize)
    x = Input(name="x").node()
    y: Any = x
    inputs, last = [x], list[Any]()
    ends = {"lengths": Input(name="lengths").node()} if lengths else {}
    for i in range(layers):
        if i and dropout:
            y = Dropout(dropout, name=f"drop{i}")(y)
        first = [Input(name=f"{state}{i}").node() for state in make.cell] if starts else []
        size = width if i else insize
        if projection is None:
            outputs = ("y", *make.cell) if states else "y"
            shared = {"direction": direction, "useBias": useBias, "outputs": outputs}
            layer = make(size, hsize, **shared, name=f"l{i}", **options)
        else:
            layer = projectedLstm(size, hsize, projection, sides, useBias, starts, lengths, f"l{i}")
        y = node = layer.node(y, *first, **ends)
        inputs += first
        if states or projection is not None:
            y, last = (node, 0), [*last, *((node, k + 1) for k in range(len(make.cell)))]
    return Graph([*inputs, *ends.values()], [y, *last] if states else y, name=name)


def cell(kind, insize, hsize, useBias, name, **options):
    """A Graph of one time step: (states, x) -> (states, h)."""
    make = KINDS[kind]
    inputs = [Input(name=state).node() for state in make.cell]
    x = Input(name="x").node()
    step = make(insize, hsize, useBias=useBias, outputs=make.cell, name="step", **options)
    node = step.node(Unsqueeze((1,), name="time").node(x), *inputs)
    states = [(node, k) for k in range(len(make.cell))] if len(make.cell) > 1 else [node]
    return Graph([*inputs, x], [*states, states[0]], name=name)


@blockNamed
@takes(insize=Count, hsize=Count, useBias=Flag)
def LSTMCell(insize, hsize, useBias=True, name=None):
    """One time step of an LSTM: h, c, x -> the new h and c, and h again as the output of a Scan.

    Shapes    h, c (n, hsize), x (n, insize) -> h, c, h (n, hsize)
    Source    as `LSTM`
    Raises    ShapeError if the shapes do not fit

    >>> scan = Scan(LSTMCell(3, 4), carried=2, inputs=[(1, False)], outputs=[(1, False)])
    >>> scan.dataShapeFrom((2, 4), (2, 4), (2, 7, 3))
    [(2, 4), (2, 4), (2, 7, 4)]
    """
    return cell("LSTM", insize, hsize, useBias, name)


@blockNamed
@takes(insize=Count, hsize=Count, useBias=Flag)
def GRUCell(insize, hsize, useBias=True, name=None):
    """One time step of a GRU: h, x -> the new h, and h again as the output of a Scan.

    Shapes    h (n, hsize), x (n, insize) -> h, h (n, hsize)
    Source    as `GRU`
    Raises    ShapeError if the shapes do not fit

    >>> GRUCell(3, 4).dataShapeFrom([("N", 4), ("N", 3)])
    [('N', 4), ('N', 4)]
    """
    return cell("GRU", insize, hsize, useBias, name)


@blockNamed
@takes(insize=Count, hsize=Count, mode=choice("tanh", "relu"), useBias=Flag)
def RNNCell(insize, hsize, mode="tanh", useBias=True, name=None):
    """One time step of an RNN: h, x -> the new h, and h again as the output of a Scan.

    Shapes    h (n, hsize), x (n, insize) -> h, h (n, hsize)
    Source    as `RNN`
    Raises    ShapeError if the shapes do not fit

    >>> RNNCell(3, 4, mode="relu").dataShapeFrom([("N", 4), ("N", 3)])
    [('N', 4), ('N', 4)]
    """
    return cell("RNN", insize, hsize, useBias, name, mode=mode)
