"""Weights in pieces: each process keeps one, all read what they need, and the results are those of one process."""

import copy
import json

import numpy as np
import pytest
import recipes
from launched import lines
from rankpool import ran

from puregraph import CrossEntropy, Linear, Relu, Sequential, load
from puregraph.compile import Program, withCost
from puregraph.compile.weightgather import WeightGather, beforeReaders
from puregraph.distributed import CountingWorld, World
from puregraph.distributed.worlds import current
from puregraph.train import FunctionCallback

pytestmark = pytest.mark.usefixtures("longIfSlow")

OUTCOMES = """
import json, sys, recipes
names = sys.argv[1].split(",")
print(json.dumps([recipes.outcomes(names, shard="parameters"), recipes.outcome("perceptron", shard="parameters", compile=False)]))
"""
SOME = ("perceptron", "convolutional", "synchronized", "language")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("count", "names"),
    [(3, SOME), *[pytest.param(n, tuple(recipes.RECIPES), marks=pytest.mark.slow) for n in (1, 2, 4, 8)]],
)
def test_runs_with_pieces_of_the_weights_end_as_those_with_all_of_them(count, names, tmp_path):
    alone = [recipes.outcomesAlone(names), recipes.outcome("perceptron", compile=False)]
    found = [json.loads(line) for line in lines(ran(count, tmp_path, OUTCOMES, ",".join(names)))]
    assert found == [alone] * count


USED = """
import numpy as np, recipes
from puregraph import Calculator, Checkpoint
from puregraph.compile.weightgather import WeightGather
from puregraph.distributed import world
from puregraph.train import FunctionCallback
said = []
def look(trainer):
    params = list(trainer.net.params.values())
    said.append([param.array is None for param in params])
    if trainer.step == 3:
        trainer.net.evalMode()
        x = data[:5]
        y = Calculator(trainer.net).calculate(x)
        one, two, three = trainer.net.params["linear.W"], trainer.net.params["linear.b"], trainer.net.params["linear2.W"]
        plain = np.maximum(x @ one.data + two.data, 0) @ three.data + trainer.net.params["linear2.b"].data
        np.testing.assert_allclose(y, plain, rtol=1e-5)
        trainer.net.trainMode()
    if trainer.step == 4:
        params[0].data = params[0].data * 2
trainer, data, target = recipes.perceptron(shard="parameters", callbacks=[Checkpoint("run.h5", every=7), FunctionCallback(look)])
trainer.train(data, target, epochs=2)
assert all(each == [True] * 4 for n, each in enumerate(said)), said
(program, *_) = trainer.objective.programs.kept.values()
assert sum(type(call.function) is WeightGather for call in program.plan.schedule.calls) == 5  # W of the second twice
print(recipes.hashOf(trainer))
"""


@pytest.mark.mpi
def test_weights_in_pieces_are_read_set_and_saved_as_whole_ones(tmp_path):
    found = set(lines(ran(3, tmp_path, USED)))
    trainer, data, target = recipes.perceptron()

    def double(trainer):
        if trainer.step == 4:
            trainer.net.params["linear.W"].data = trainer.net.params["linear.W"].data * 2

    trainer.callbacks.append(FunctionCallback(double))
    trainer.train(data, target, epochs=2)
    assert found == {recipes.hashOf(trainer)}
    for shard in (None, "parameters"):
        again, data, target = recipes.perceptron(shard=shard)
        again.resume(tmp_path / "run.h5").train(data, target, epochs=2)
        assert recipes.hashOf(again) == recipes.hashOf(trainer)
    assert load(tmp_path / "run.h5").params.keys() == trainer.net.params.keys()


WINDOWS = """
import gc
import numpy as np
from puregraph.distributed import world
from puregraph.distributed.collectives.mpiwindow import MpiWindow
here = world()
before = here.made
for isShared in (True, False):
    window = MpiWindow(here, 5 + here.rank, np.float32, isShared)
    window.own[...] = 10 * here.rank + np.arange(5 + here.rank)
    here.barrier()
    for rank in range(here.size):
        into = np.full(3, -1, np.float32)
        window.read(rank, 2 + rank, into)
        assert into.tolist() == [10 * rank + 2 + rank + i for i in range(3)], into
    here.barrier()
    window.close()
here.window(3, np.float32).close()
for turn in range(4):
    window = here.window(7, np.float64)
    window.own[...] = here.rank
    if turn == 2 and here.rank == 1:
        kept = window
    del window
    gc.collect()
    here.barrier()
print([number - before for number in sorted(here.windows) if number >= before], kept.own.tolist() if here.rank == 1 else [1.0] * 7)
"""


@pytest.mark.mpi
def test_windows_are_read_by_all_and_given_back_when_no_process_has_them(tmp_path):
    assert set(lines(ran(3, tmp_path, WINDOWS))) == {f"[3, 4] {[1.0] * 7}"}


def parted(monkeypatch, world):
    """A trainer of one process of a world that is not there, with its weights in pieces."""
    monkeypatch.setattr(current, "CURRENT", [world])
    trainer, data, target = recipes.perceptron(shard="parameters")
    trainer.train(data, target)
    return trainer


def test_a_copy_of_a_network_in_pieces_has_weights_of_its_own(monkeypatch):
    net = parted(monkeypatch, CountingWorld(8, 3)).net
    assert all(param.array is None for param in net.params.values())
    twin = copy.deepcopy(net)
    for path, param in twin.params.items():
        np.testing.assert_array_equal(param.data, net.params[path].data)
    assert type(twin.params["linear.W"].initial).__name__ == "Given"


def test_a_gather_comes_right_before_its_first_reader_and_only_if_there_is_one(monkeypatch):
    class Kept:
        def has(self, param):
            return True

        def read(self, param, into):
            into[...] = param.materialize()

    net = Sequential(Linear(6, 5, name="one"), Relu(), Linear(5, 3, name="two"), name="net").trainMode()
    options = {"grads": "one", "updGrad": False, "keepGrads": True}
    graph = withCost(net, CrossEntropy(), 1, 1, False)
    program, plain = (
        Program(graph, [(4, 6), (4,)], None, True, **options, **more) for more in ({"weights": Kept()}, {})
    )
    x, t = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32), np.array([0, 1, 2, 0])
    found = []
    for each in (plain, program):
        each.run(x, t)
        found.append([param.grad.copy() for param in net.params.values()])
    for one, two in zip(*found):
        np.testing.assert_array_equal(one, two)
    names = [call.function.param for call in program.plan.schedule.calls if type(call.function) is WeightGather]
    params = net.params
    assert names == [params[path] for path in ("one.W", "one.b", "two.W", "two.b", "two.W")]
    assert beforeReaders([]) == []


def test_a_world_of_one_has_a_window_of_its_own():
    window = World().window(4, np.dtype(np.float32))
    window.own[...] = range(4)
    into = np.empty(2, np.float32)
    window.read(0, 1, into)
    assert into.tolist() == [1, 2]
    window.close()
    assert window.own.size == 0
