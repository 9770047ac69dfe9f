"""Gather: indices from the end, and those beyond the first or the last."""

import numpy as np
import pytest

from puregraph import Gather, Graph, Input, PuregraphError


def test_an_index_far_below_zero_is_refused_and_the_compiler_sees_how_indices_are_counted():
    x, index = Input(name="x").node(), Input(name="index").node()
    net = Graph([x, index], Gather(axis=1, fromEnd=True, name="chosen").node(x, index))
    data, at = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.array([-3, 2, -1])
    program = net.compile((2, 3), (3,), dtypes=["f4", "i8"])
    for run in (net, program.run):
        np.testing.assert_array_equal(run(data, at), data[:, at])
    for wrong in (-4, -5, 3):
        with pytest.raises(PuregraphError, match=f"got {wrong}"):
            net(data, np.array([0, wrong]))
    with pytest.raises(PuregraphError, match="got -"):
        net(data[:, :0], np.array([-1]))
    assert "nestcode" in program.table() and "python" not in program.table()
