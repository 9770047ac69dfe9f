"""A step with sizes that depend on the data on a GPU, in the emulator: its pieces are programs there, and give what the CPU's
give."""

import numpy as np
from fakecupy import useGpu
from launches import needsEmulator

import puregraph
from puregraph import MSE, SGD, Compress, Graph, Input, Linear, Sequential, Sum, Tanh
from puregraph.core import device

pytestmark = needsEmulator
MASKS = [np.array(m, bool) for m in ([1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0])]


def trained():
    """Costs, parameters, and the program, after a step with each mask."""
    puregraph.seed(0)
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress(name="rows")(Tanh(name="tanh")(Linear(3, 4, name="fc")(x)), mask)
    deep = Sequential(Linear(4, 6, name="a"), Tanh(name="t"), Linear(6, 2, name="b"), name="mlp")(rows)
    net = Graph([x, mask], Linear(2, 1, name="head")(Sum(axis=0, name="pool")(deep)), name="net")
    step = net.compile((5, 3), (5,), (1,), cost=MSE(), optimizer=SGD(0.01))
    rng, costs = np.random.default_rng(0), []
    for chosen in MASKS:
        given = rng.standard_normal((5, 3)).astype(np.float32), chosen, np.ones(1, np.float32)
        costs.append(float(device.toHost(step.run(*given)[0])))
    step.optimizer.sync()
    return costs, [device.toHost(p.data) for p in net.params.values()], step


def test_training_in_pieces_gives_what_the_cpu_gives(monkeypatch):
    with device.useDevice("cpu"):
        costs, params, _ = trained()
    useGpu(monkeypatch)
    found, there, step = trained()
    np.testing.assert_allclose(found, costs, rtol=2e-5)
    for a, b in zip(there, params, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    for piece in [*step.partitioned.forward, *step.partitioned.backwards]:
        assert piece.partition.isOpen or {p.backend.name for p in piece.compiled} == {"gpu"}
