"""Mixes of splits: what formulas say of them, and the plan of a script that never takes a step."""

import json

import numpy as np
import pytest

from puregraph import SGD, Adam, Linear, Relu, Sequential
from puregraph.cli import main
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.distributed import Cluster, CountingWorld, LinkSpeed
from puregraph.distributed.plan.parallelplan import ParallelPlan
from puregraph.distributed.tensor import splitTensors
from puregraph.models import gpt

WIDTH = 64
PARAMS = 4 * 4 * WIDTH * WIDTH  # bytes of the four Linear below


def even():
    """Four equal layers without bias, so that stages and tensors are divided evenly."""
    return Sequential(*(layer for _ in range(4) for layer in (Linear(WIDTH, WIDTH, useBias=False), Relu())), name="net")


def mixes(ranks, batch, net=None, optimizer=Adam, shape=(WIDTH,), **cluster):
    """The mixes by what they are."""
    plan = ParallelPlan(net or even(), [(batch, *shape)], Cluster(ranks, **cluster), optimizer)
    return {(mix.data, mix.tensor, mix.stages, mix.shard, mix.micro): mix for mix in plan.mixes}


def test_all_parts_of_a_mix_make_up_the_processes():
    found = mixes(16, 64, node=4)
    assert {(d, t, s) for d, t, s, *_ in found} == {(16 // t // s, t, s) for t in (1, 2, 4) for s in (1, 2, 4)}
    assert all(key[0] * mix.micro * mix.microbatches == 64 for key, mix in found.items())


def test_memory_is_divided_as_the_literature_says():
    found = mixes(8, 64, node=8)
    base = found[8, 1, 1, None, 1].memory
    saved = {shard: base - found[8, 1, 1, shard, 1].memory for shard in ("state", "gradients", "parameters")}
    assert saved["state"] == pytest.approx(2 * PARAMS * 7 / 8)  # two moments of Adam
    assert saved["gradients"] == pytest.approx(3 * PARAMS * 7 / 8 - PARAMS / 8)  # a bucket of them is there
    assert saved["parameters"] == pytest.approx(4 * PARAMS * 7 / 8 - 2 * PARAMS / 4)  # the largest layer's, twice
    plain = mixes(8, 64, optimizer=SGD, node=8)
    assert base - plain[8, 1, 1, None, 1].memory == pytest.approx(2 * PARAMS)
    parts = mixes(4, 64, node=4)
    halves = [parts[key].memory for key in ((4, 1, 1, None, 1), (2, 2, 1, None, 1), (1, 4, 1, None, 1))]
    assert halves[0] - halves[1] >= 4 * PARAMS / 2 and halves[1] - halves[2] >= 4 * PARAMS / 4


def test_time_is_divided_as_the_literature_says():
    link = LinkSpeed(1e9, 0.0)
    found = mixes(4, 64, link=link, flops=1e9)
    one, staged = found[4, 1, 1, None, 1], found[1, 1, 4, None, 1]
    assert staged.compute == pytest.approx(one.compute)
    assert staged.bubble == pytest.approx(3 / 64 * staged.compute)
    sent = {
        shard: sum(call.nbytes for call in found[4, 1, 1, shard, 16].calls) for shard in (None, "state", "parameters")
    }
    assert sent[None] == sent["state"] == pytest.approx(2 * PARAMS * 3 / 4)
    assert sent["parameters"] == pytest.approx(3 * PARAMS * 3 / 4)  # of one microbatch
    assert found[4, 1, 1, None, 16].exchange == pytest.approx(sent[None] / 1e9)


def test_the_best_fits_and_what_never_fits_is_said():
    free = ParallelPlan(even(), [(64, WIDTH)], Cluster(4, node=4), Adam)
    least = min(mix.memory for mix in free.mixes)
    small = ParallelPlan(even(), [(64, WIDTH)], Cluster(4, node=4, memory=least), Adam)
    assert small.best.memory == least and "best" in small.table()
    none = ParallelPlan(even(), [(64, WIDTH)], Cluster(4, node=4, memory=least / 2), Adam)
    assert none.best is None and "0 fit in memory; the smallest takes" in none.table()
    assert free.best.seconds == pytest.approx(min(mix.seconds for mix in free.mixes), abs=1e-9)


def test_heads_say_in_how_many_parts_tensors_can_be():
    shape = (8,)
    found = mixes(8, 64, gpt(17, 8, layers=2, heads=2, size=8), shape=shape, node=8)
    assert {t for _, t, *_ in found} == {1, 2}


@pytest.mark.parametrize("parts", [2, 4])
def test_bytes_of_tensors_in_parts_are_those_that_are_counted(parts, rng):
    net, x = gpt(17, 8, layers=2, heads=4, size=8), rng.integers(0, 17, (4, 8))
    plan = ParallelPlan(net, [x.shape], Cluster(parts, node=parts), Adam)
    (mix,) = [mix for mix in plan.mixes if (mix.tensor, mix.stages, mix.micro) == (parts, 1, 4)]
    world = CountingWorld(parts)
    graph = splitTensors(net, parts, x.shape, world=world).graph
    graph.trainMode()
    graph.backward(np.ones_like(graph(x)), updGrad=False)
    assert sum(call.nbytes for call in mix.calls) == pytest.approx(world.nbytes, rel=0.05)  # 17 words in parts


def test_what_cannot_be_mixed_is_refused():
    with pytest.raises(ArgumentError, match="wanted the shapes of one whole batch, in numbers"):
        ParallelPlan(even(), [("N", WIDTH)], Cluster(4), Adam)
    with pytest.raises(ShapeError, match="65"):
        ParallelPlan(even(), [(8, 65)], Cluster(4), Adam)


SCRIPT = """
import sys
import numpy as np
from puregraph import CrossEntropy, Linear, MomentumSGD, Sequential, Trainer
data, target = np.ones((40, 6), np.float32), np.zeros(40, int)
net = Sequential(Linear(6, 3, name="fc"), name="net")
if {trains}:
    Trainer(net, CrossEntropy(), MomentumSGD(0.1), batchsize=int(*sys.argv[1:] or [8])).train(data, target)
    open("trained", "w").close()
"""


def test_a_script_is_planned_without_a_step(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT.format(trains=True))
    options = ["--ranks", "100000", "--link", "25e9,5e-6", "--node", "8", "--memory", "80e9"]
    assert main(["plan", "train.py", *options]) == 0
    text = capsys.readouterr().out
    assert "train.py trains with batches of 8, fewer than 100,000 processes: a batch of 8 for each" in text
    assert "a batch of 800,000 on 100,000 processes" in text and "combinations for a batch of 800,000" in text
    assert "of each step waiting" in text
    assert main(["plan", "train.py", "--ranks", "4", "--batch", "64", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["data"] * row["micro"] * row["microbatches"] for row in rows["mixes"] if row["data"] == 4} == {64}
    state = {row["shard"]: row["memory"] for row in rows["mixes"] if (row["data"], row["micro"]) == (4, 1)}
    assert state[None] - state["state"] == pytest.approx(4 * 21 * 3 / 4)  # one number for each weight
    assert main(["plan", "train.py", "--arguments", "20"]) == 0
    assert "train.py trains with batches of 20" in capsys.readouterr().out
    assert not (tmp_path / "trained").exists()


def test_what_is_no_script_that_trains_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT.format(trains=False))
    assert main(["plan", "train.py"]) == 2
    assert "train.py ends without training: wanted a script in which a Trainer trains" in capsys.readouterr().err
    assert main(["plan", "nowhere.py"]) == 2
    assert "there is no script 'nowhere.py'" in capsys.readouterr().err
    (tmp_path / "train.py").write_text("open('begun', 'w')")
    for option, wrong in (("--batch", "-3"), ("--batch", "2.5"), ("--link", "fast")):
        assert main(["plan", "train.py", option, wrong]) == 2
        assert f"{option}: wanted" in capsys.readouterr().err
    assert not (tmp_path / "begun").exists()  # no script is run for options that cannot be meant
