"""Depth costs nothing: everything walks with explicit stacks, so a recursion limit of 200 is plenty."""

import subprocess
import sys
import textwrap

import pytest


def runLimited(body):
    """Run a script with the recursion limit at 200; its output."""
    head = """
        import copy, gc, pickle, sys
        import numpy as np
        from puregraph.graph import Graph
        from puregraph.graph.input import Input
        from puregraph.modules import Add, Identity
        from puregraph.graph.node import Node
        sys.setrecursionlimit(200)
        x = np.ones((2, 2))
    """
    script = textwrap.dedent(head) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("count", [2_500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_chain_of_many_nodes_is_built_run_copied_and_freed(count):
    out = runLimited(f"""
        count = {count}
        first = last = Input(name="x").node()
        for _ in range(count):
            last = Identity().node(last)
        net = Graph(first, last)
        assert net.dataShapeFrom(("N", 2)) == ("N", 2)
        assert net(x).sum() == 4
        net.backward(2 * x)
        assert net.grad.tolist() == [[2, 2], [2, 2]]
        seen = []
        Node.traverseForward(first, seen.append)
        Node.traverseBackward(last, seen.append)
        assert len(seen) == 2 * count + 2
        repr(net), repr(last), str(net)
        twin = pickle.loads(pickle.dumps(net))
        assert len(twin) == count + 1 and twin(x).sum() == 4
        del twin
        other = copy.deepcopy(net)
        assert other(x).sum() == 4
        del net, other, first, last, seen
        gc.collect()
        print("done")
    """)
    assert out == "done\n"


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_many_residual_blocks_are_built_run_and_freed(count):
    out = runLimited(f"""
        first = last = Input(name="x").node()
        for _ in range({count}):
            last = Add().node(Identity().node(last), last)
        net = Graph(first, last)
        net.calcMode("float64")
        y = net(np.full((1, 1), 0.0))
        net.backward(np.full((1, 1), 0.0))
        assert net.grad.shape == (1, 1)
        del net, first, last
        gc.collect()
        print("done")
    """)
    assert out == "done\n"


@pytest.mark.parametrize("count", [1_500, pytest.param(5_000, marks=pytest.mark.slow)])
def test_wide_joins_long_lists_and_nested_graphs_are_built_and_run(count):
    out = runLimited(f"""
        from puregraph.graph.sequential import Sequential
        first = Input(name="x").node()
        net = Graph(first, Add().node(*[Identity().node(first) for _ in range({count})]))
        assert np.all(net(x) == {count})
        net.backward(x)
        assert np.all(net.grad == {count})
        print("wide")
        net = Sequential([Identity(), Sequential([Identity() for _ in range({count})])])
        assert len(net.steps().items) == {count} + 1 and net(x).tolist() == x.tolist()
        net.backward(x)
        assert net.grad.tolist() == x.tolist()
        print("long")
        net = Identity(name="core")
        for level in range(20):
            net = Sequential(net, Identity(), name="level")
        assert net(x).sum() == 4 and len(net.steps().items) == 21
        net.backward(x)
        copy.deepcopy(net)(x)
        print("nested")
    """)
    assert out.split() == ["wide", "long", "nested"]
