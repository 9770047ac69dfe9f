"""Attention under a mask by cuDNN, to which it is a bias: rows that see no key, and what stays with the Kernel."""

import numpy as np
import pytest
from launches import needsEmulator
from test_gpu_epilogues import onBoth

from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Attention, Flatten, Linear, Reshape, Transpose
from puregraph.ops.attention.cudnn import AttentionTask

pytestmark = [needsEmulator]


def masked(causal=False, sinks=None):
    """Attention with two heads of a sequence to itself, and a mask as the second input."""
    x, mask = Input().node(), Input().node()
    heads = [Transpose((0, 2, 1, 3)).node(Reshape((-1, 6, 2, 8)).node(Linear(8, 16).node(x))) for _ in "qkv"]
    y = Attention(causal=causal, sinks=sinks).node(*heads, mask=mask)
    return Graph([x, mask], Linear(96, 4).node(Flatten().node(Transpose((0, 2, 1, 3)).node(y))))


def maskOf(rng, name):
    """A mask; some query of the first sample sees no key."""
    seen = rng.random((5, 1, 1, 6)) < 0.6 if "keys" in name else rng.random((5, 2, 6, 6)) < 0.6
    seen[0, :, 0] = False
    if "bool" in name:
        return seen
    floats = np.where(seen, rng.standard_normal(seen.shape), -np.inf if "inf" in name else -1e9)
    return floats.astype(np.float32)


def launched(*arguments):
    """The tasks of attention by cuDNN and the entries of launches of a training that learns as the CPU does."""
    _, tasks, launches = onBoth(*arguments)
    return [task for task in tasks if isinstance(task, AttentionTask)], [launch.entry for launch in launches]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("bool keys", "bfloat16"),
        ("floats", "float32"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("bool", "float32"), ("inf keys", "float16")]),
    ],
)
def test_a_mask_is_a_bias_of_the_library(monkeypatch, rng, name, precision):
    x, t = rng.standard_normal((5, 6, 8)).astype("f4"), rng.integers(0, 4, 5)
    tasks, entries = launched(monkeypatch, masked, [(x, maskOf(rng, name), t), (x, maskOf(rng, name), t)], precision)
    forward, back = tasks
    assert forward.bias == back.bias and forward.bias.shape[2:] == (6, 6) and back.grads
    assert not {"attend", "attendKeys", "attendQueries"} & set(entries)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("bool keys", "float32"),
        ("floats", "bfloat16"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("bool", "float16"), ("inf keys", "float32")]),
    ],
)
def test_a_query_sees_no_key_if_the_mask_hides_all_before_it(monkeypatch, rng, name, precision):
    x, t = rng.standard_normal((5, 6, 8)).astype("f4"), rng.integers(0, 4, 5)
    mask = maskOf(rng, name)
    mask[1, ..., :3] = False if mask.dtype == bool else -np.inf
    mask[1, ..., 3:] = True if mask.dtype == bool else 0
    tasks, entries = launched(monkeypatch, lambda: masked(causal=True), [(x, mask, t), (x, mask, t)], precision)
    assert [task.causal for task in tasks] == [True, True] and all(task.bias is not None for task in tasks)
    assert not {"attend", "attendKeys", "attendQueries"} & set(entries)


@pytest.mark.parametrize(("name", "precision"), [("bool keys", "float32"), ("floats", "float16")])
def test_the_gradient_with_sinks_is_not_that_of_the_library(monkeypatch, rng, name, precision):
    """Nor is a forward pass in float16, in which the library hides keys by -60,000."""
    x, t = rng.standard_normal((5, 6, 8)).astype("f4"), rng.integers(0, 4, 5)
    mask = maskOf(rng, name)
    tasks, entries = launched(monkeypatch, lambda: masked(sinks=2), [(x, mask, t), (x, mask, t)], precision)
    assert not any(task.grads for task in tasks) and {"attendKeys", "attendQueries"} <= set(entries)
    assert bool(tasks) == (precision == "float32")
