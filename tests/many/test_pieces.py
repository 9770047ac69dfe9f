"""Checkpoints in pieces: each process writes its own, and whoever ends, and when, there is a file that can be loaded."""

import itertools
import shutil

import numpy as np
import pytest
import recipes
from launched import areGone, launched, lines
from rankpool import ran, ranAlone

import puregraph
from puregraph import Adam, Linear, Sequential
from puregraph.core.errors import CheckpointError, DataError
from puregraph.core.storage import pieces
from puregraph.core.storage.pieces import ElementRange, PieceSet, removePieces, writePiece
from puregraph.serialize.checkpoint import load, loadGraph, save
from puregraph.serialize.checkpointwriter import DividedState

SAVING = """
import recipes
from puregraph import Checkpoint
trainer, data, target = recipes.perceptron(shard="state")
trainer.callbacks[:0] = [Checkpoint("run.h5", every=3, keep=9)]
trainer.train(data, target, epochs=2)
print("hash", recipes.hashOf(trainer))
"""

RESUMING = """
import sys, recipes
for step in sys.argv[1:]:
    for shard in (None, "gradients"):
        trainer, data, target = recipes.perceptron(shard=shard)
        trainer.resume(f"run-{step}.h5").train(data, target, epochs=2)
        print("hash", recipes.hashOf(trainer))
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("saving", "counts"), [(3, (3,)), pytest.param(4, (1, 3, 8), marks=pytest.mark.slow)])
def test_a_file_in_pieces_is_resumed_to_the_bit_by_any_number(saving, counts, tmp_path):
    found = set(lines(ran(saving, tmp_path, SAVING)))
    assert len(found) == 1
    assert len(list(tmp_path.glob(f"run-3.h5.000?-of-000{saving}.*"))) == saving
    for count in counts:
        again = lines(ran(count, tmp_path, RESUMING, 3, 9))
        assert len(again) == 4 * count and set(again) == found
    assert set(lines(ranAlone(1, tmp_path, RESUMING, 6))) == found
    loaded = load(tmp_path / "run-9.h5")
    assert loaded.optimizer.step == 9
    assert all(slot.arrays["m"].shape == slot.param.shape for slot in loaded.optimizer.slots)


REPLACED = """
import recipes
from puregraph import Checkpoint
trainer, data, target = recipes.perceptron(shard="state", callbacks=[Checkpoint("run.h5", every=1)])
trainer.train(data, target, epochs=2)
trainer.save("run.h5")
"""


@pytest.mark.mpi
def test_old_pieces_are_removed_when_there_are_new_ones(tmp_path):
    assert ran(3, tmp_path, REPLACED).returncode == 0
    assert len(list(tmp_path.glob("run.h5*"))) == 4
    assert load(tmp_path / "run.h5").optimizer.step == 10
    recipes.perceptron()[0].save(tmp_path / "run.h5")
    assert [path.name for path in tmp_path.glob("run.h5*")] == ["run.h5"]


@pytest.fixture
def saved(tmp_path):
    """A network with an optimizer whose state is saved in three pieces, and the whole state."""
    puregraph.seed(0)
    net = Sequential(Linear(5, 4, name="one"), Linear(4, 3, name="two"))
    optimizer = Adam(0.1).setupOn(net)
    net.trainMode()
    net(np.ones((2, 5), np.float32))
    net.backward(np.ones((2, 3), np.float32))
    optimizer.update()
    state = optimizer.state
    flat = {name: array.reshape(-1) for name, array in state.items()}
    runs = [[] for _ in range(3)]
    shapes = []
    for index, (name, array) in enumerate(flat.items()):
        if name.startswith("step"):
            continue
        shapes.append([index, list(state[name].shape), array.dtype.name])
        cuts = [len(array) * r // 3 for r in range(4)]
        for r, (a, b) in enumerate(itertools.pairwise(cuts)):
            runs[r] += [ElementRange(index, a, b, array[a:b])] if a < b else []
    path = tmp_path / "run.h5"
    files = [writePiece(path, r, 3, each) for r, each in enumerate(runs)]
    arrays = {name: array if name.startswith("step") else None for name, array in state.items()}
    save(path, net, optimizer, None, DividedState(arrays, PieceSet(files, shapes)))
    return path, files, state, (net, optimizer, arrays, shapes, runs)


def test_one_process_loads_a_file_in_pieces_as_any_other(saved):
    path, _, state, _ = saved
    found = load(path).optimizer.state
    assert found.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
    assert loadGraph(path) is not None


def test_a_missing_piece_is_named(saved):
    path, files, _, _ = saved
    (path.parent / files[1][0]).unlink()
    with pytest.raises(CheckpointError, match=rf"its piece '{files[1][0]}' is missing"):
        load(path)
    assert loadGraph(path) is not None  # the network is in the file itself


@pytest.mark.parametrize("where", [0.1, 0.6, 0.95])
def test_a_damaged_piece_is_named(saved, where):
    path, files, _, _ = saved
    piece = path.parent / files[2][0]
    data = bytearray(piece.read_bytes())
    data[int(where * len(data))] ^= 1
    piece.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"its piece '{files[2][0]}': "):
        load(path)


def test_a_piece_of_another_file_is_refused(saved):
    path, files, _, (net, optimizer, arrays, shapes, runs) = saved
    other = writePiece(path, 0, 3, [run._replace(values=run.values + 1) for run in runs[0]])
    shutil.move(path.parent / other[0], path.parent / files[0][0])
    with pytest.raises(CheckpointError, match=r"was saved with another file, and has been renamed"):
        load(path)
    shutil.copy(path.parent / files[1][0], path.parent / files[0][0])
    with pytest.raises(CheckpointError, match=r"holds other elements than were saved with this file"):
        load(path)


@pytest.mark.parametrize("fault", ["twice", "hole", "end", "name", "kind"])
def test_forged_pieces_are_refused(saved, fault):
    path, files, _, (net, optimizer, arrays, shapes, runs) = saved
    wanted = "its pieces do not have"
    if fault == "twice":
        files = [*files, files[0]]
    elif fault == "hole":
        files = files[:1] + files[2:]
    elif fault == "end":
        shapes = [[index, [10**15], dtype] for index, _, dtype in shapes]
    elif fault == "name":
        files = [["../" + name, rows] for name, rows in files]
        wanted = "is no name of a piece"
    else:
        files = [[name, "rows"] for name, _ in files]
        wanted = "its optimizer cannot be"
    save(path, net, optimizer, None, DividedState(arrays, PieceSet(files, shapes)))
    for name, _ in saved[1]:
        (path.parent / name).touch()
    with pytest.raises(CheckpointError, match=wanted):
        load(path)


def test_bytes_have_no_pieces_beside_them(saved):
    with pytest.raises(CheckpointError, match="in other files: load the checkpoint by its path"):
        load(saved[0].read_bytes())


def test_only_pieces_of_this_file_are_removed(tmp_path):
    names = ["run.h5.0001-of-0002.0123456789ab", "run.h5.old", "rerun.h5.0001-of-0002.0123456789ab", "run.h5"]
    for name in names:
        (tmp_path / name).touch()
    removePieces(tmp_path / "run.h5", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_piece_that_is_written_again_is_the_same(saved):
    path, files, _, (*_, runs) = saved
    before = (path.parent / files[0][0]).read_bytes()
    assert writePiece(path, 0, 3, runs[0]) == files[0]
    assert (path.parent / files[0][0]).read_bytes() == before
    assert pieces.digest([], []) != pieces.digest([[0, 0, 1]], [0])


FULL = """
import recipes, puregraph.core.storage.pieces as pieces
from rankpool import patch
from puregraph.core.errors import CheckpointError
from puregraph.distributed import world
trainer, data, target = recipes.perceptron(shard="state")
trainer.train(data, target)
trainer.save("run.h5")
before = open("run.h5", "rb").read()
def full(*arguments):
    raise OSError(28, "No space left on device")
trainer.train(data, target)
if world().rank == 1:
    patch(pieces, "write", full)
try:
    trainer.save("run.h5")
except CheckpointError as error:
    print(error, open("run.h5", "rb").read() == before)
"""


@pytest.mark.mpi
def test_a_process_that_cannot_write_is_named_by_all_and_the_old_file_stays(tmp_path):
    found = lines(ran(3, tmp_path, FULL))
    assert len(found) == 3
    assert all("rank 1 of 3: cannot save" in line and "No space left" in line and "True" in line for line in found)
    assert load(tmp_path / "run.h5").optimizer.step == 5


KILLED = """
import os, signal, sys, time, recipes
from launched import tellPid
from puregraph import Checkpoint
from puregraph.distributed import world
import puregraph.serialize.checkpointwriter as checkpoint
import puregraph.core.storage.pieces as pieces
tellPid()
where, rank = sys.argv[1], int(sys.argv[2])
trainer, data, target = recipes.perceptron(shard="state", callbacks=[Checkpoint("run.h5", every=2)])
def dying(function):
    def wrapped(*arguments, **named):
        if trainer.step >= 6 and world().rank == rank:
            if where == "piece":
                arguments[0].write(b"half of it")
            open("died", "w").write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapped
owner, name = {"piece": (pieces, "write"), "manifest": (checkpoint, "write"), "after": (checkpoint, "removePieces")}[where]
setattr(owner, name, dying(getattr(owner, name)))
trainer.train(data, target, epochs=50)
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("where", "rank", "step"),
    [("manifest", 0, 4), *[pytest.param(*each, marks=pytest.mark.slow) for each in [("piece", 1, 4), ("after", 0, 6)]]],
)
def test_a_process_that_is_killed_while_it_saves_leaves_a_file_that_can_be_loaded(tmp_path, where, rank, step):
    done = launched(2, tmp_path, KILLED, where, rank)
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    assert "of 2 was killed" in done.stderr
    assert areGone(tmp_path)
    trainer, data, target = recipes.perceptron()
    assert trainer.resume(tmp_path / "run.h5").step == step
    assert load(tmp_path / "run.h5").optimizer.step == step
    trainer.save(tmp_path / "run.h5")  # and what was left is removed
    assert [path.name for path in tmp_path.glob("*run.h5*")] == ["run.h5"]


def test_other_grains_than_the_file_has_are_refused(tmp_path):
    trainer, data, target = recipes.perceptron()
    trainer.train(data, target)
    trainer.save(tmp_path / "run.h5")
    with pytest.raises(DataError, match="the run had grains=8, it cannot go on with grains=4; leave grains out"):
        recipes.perceptron(grains=4)[0].resume(tmp_path / "run.h5")
    trainer.train(data, target)
    again = recipes.perceptron(grains=None)[0].resume(tmp_path / "run.h5")
    assert again.grains == 8
    again.train(data, target)
    assert recipes.hashOf(again) == recipes.hashOf(trainer)


def test_a_run_without_grains_goes_on_with_some_from_its_next_epoch_on(tmp_path):
    trainer, data, target = recipes.perceptron(grains=None)
    trainer.train(data, target)
    trainer.save(tmp_path / "run.h5")
    assert recipes.perceptron()[0].resume(tmp_path / "run.h5").grains == 8
    trainer.callbacks.append(recipes.puregraph.train.FunctionCallback(lambda t: t.stop(now=True)))
    trainer.train(data, target)
    trainer.save(tmp_path / "run.h5")
    with pytest.raises(DataError, match="the run had grains=None, it cannot go on with grains=8"):
        recipes.perceptron()[0].resume(tmp_path / "run.h5")
