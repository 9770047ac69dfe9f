"""A checkpoint of an optimizer that updates a part of a network: it goes on with that part, or is refused."""

import numpy as np
import pytest

from puregraph import Adam, CheckpointError, CrossEntropy, Linear, MomentumSGD, Relu, Sequential, Trainer
from puregraph.serialize import checkpoint as checkpoints


def network():
    return Sequential(Linear(4, 5, name="body"), Relu(), Linear(5, 3, name="head"), name="net")


def data():
    rng = np.random.default_rng(3)
    return rng.standard_normal((16, 4)).astype(np.float32), rng.integers(0, 3, 16)


def trained(optimizer, part="head", epochs=2):
    net = network()
    optimizer.setupOn(net[part] if part else net)
    trainer = Trainer(net, CrossEntropy(), optimizer, batchsize=8)
    trainer.train(*data(), epochs=epochs)
    return trainer


@pytest.mark.parametrize("make", [Adam, MomentumSGD])
def test_an_optimizer_of_a_part_comes_back_for_that_part(make, tmp_path):
    trainer = trained(make())
    trainer.net.save(tmp_path / "net.h5", trainer.optimizer)
    found = checkpoints.load(tmp_path / "net.h5")
    assert [slot.param for slot in found.optimizer.slots] == [found.graph["head"].W, found.graph["head"].b]
    wanted = trainer.optimizer.state
    for name, array in found.optimizer.state.items():
        kind, _, path = name.partition("/")
        assert array.tobytes() == wanted[f"{kind}/head.{path.removeprefix('head.')}"].tobytes()


def test_a_loop_of_ones_own_saves_and_loads_a_part_under_paths_of_the_network(tmp_path):
    net, optimizer = network(), Adam()
    optimizer.setupOn(net["head"])
    x, _ = data()
    for _ in range(2):
        y = net.trainMode()(x)
        net.backward(np.ones_like(y))
        optimizer.update()
    net.save(tmp_path / "net.h5", optimizer)
    assert checkpoints.contents(tmp_path / "net.h5").optimizer["part"] == ["head.W", "head.b"]
    other, fresh = network(), Adam()
    fresh.setupOn(other["head"])
    other.load(tmp_path / "net.h5", optimizer=fresh)
    assert fresh.step == 2
    assert {k: v.tobytes() for k, v in fresh.state.items()} == {k: v.tobytes() for k, v in optimizer.state.items()}


def test_an_optimizer_of_everything_is_not_given_the_state_of_a_part(tmp_path):
    trainer = trained(Adam())
    trainer.net.save(tmp_path / "net.h5", trainer.optimizer)
    other = network()
    with pytest.raises(
        CheckpointError, match="its optimizer updates 'head.W', 'head.b' alone, the Adam given updates all"
    ):
        other.load(tmp_path / "net.h5", optimizer=Adam().setupOn(other))
    with pytest.raises(CheckpointError, match="given updates 'body.W', 'body.b'; call setupOn with that part"):
        other.load(tmp_path / "net.h5", optimizer=Adam().setupOn(other["body"]))


def test_a_trainer_does_not_resume_with_an_optimizer_of_another_part(tmp_path):
    trained(Adam()).save(tmp_path / "run.h5")
    other = Trainer(network(), CrossEntropy(), Adam(), batchsize=8)
    before = other.net["body"].W.data.copy()
    with pytest.raises(CheckpointError, match="alone, the Adam given updates all parameters; call setupOn"):
        other.resume(tmp_path / "run.h5")
    assert np.array_equal(other.net["body"].W.data, before)
    net = network()
    Trainer(net, CrossEntropy(), Adam().setupOn(net["head"]), batchsize=8).resume(tmp_path / "run.h5")


def test_a_file_of_an_optimizer_of_everything_is_as_it_was(tmp_path):
    trainer = trained(Adam(), part=None)
    trainer.net.save(tmp_path / "net.h5", trainer.optimizer)
    assert "part" not in checkpoints.contents(tmp_path / "net.h5").optimizer
    found = checkpoints.load(tmp_path / "net.h5")
    assert len(found.optimizer.slots) == 4


def test_parameters_that_no_module_holds_by_themselves_are_said(tmp_path):
    net = network()
    optimizer = Adam().setupOn(net["head"])
    optimizer.slots = optimizer.slots[:1]
    net.save(tmp_path / "net.h5", optimizer)
    with pytest.raises(CheckpointError, match="updates only 'head.W', and no module of the graph has just these"):
        checkpoints.load(tmp_path / "net.h5")
