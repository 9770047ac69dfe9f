"""Different optimizers for different parameters: as if each stepped alone, in one step, one file, one compiled program."""

import copy
import re

import numpy as np
import pytest

from puregraph import MSE, SGD, Adam, AdamW, BatchNorm, Cosine, Linear, MomentumSGD, Relu, Sequential, Trainer
from puregraph.core import initial
from puregraph.core.errors import ArgumentError, CheckpointError, GraphWarning, PuregraphError
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit
from puregraph.optimizers import MultiOptimizer
from puregraph.serialize.checkpoint import load

MANNERS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(not jit.available(), reason="no llvmlite"))]


def network():
    initial.seed(3)
    return Sequential(
        Linear(6, 8, name="stem"), BatchNorm(8, name="norm"), Relu(), Linear(8, 4, name="head")
    )  # fmt: skip


def batches(count=5):
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((16, 6)).astype("f4"), rng.standard_normal((16, 4)).astype("f4")) for _ in range(count)
    ]


def three():
    return {"stem": MomentumSGD(0.02, 0.8), "*.b": SGD(0.05, decay=0.1), "*": Adam(0.01, schedule=Cosine(8))}


def several(**options):
    return MultiOptimizer(three(), **options)


def weights(net):
    return {path: param.data.tobytes() for path, param in net.params.items()}


def states(optimizer):
    return {name: array.tobytes() for name, array in optimizer.state.items()}


def backward(net, x, t):
    cost = MSE()
    cost(net(x), t)
    cost.backward()
    net.backward(cost.grad[0])


class Some:
    """Some parameters of a network, as what an optimizer is set up on."""

    def __init__(self, net, wanted):
        self.params = {path: param for path, param in net.params.items() if wanted(path)}

    def dataShapeFrom(self, *shapes):
        raise NotImplementedError


@pytest.fixture(params=MANNERS)
def manner(request):
    with useFast(request.param == "native"):
        yield


def test_each_parameter_is_updated_as_by_its_optimizer_alone(manner):
    net = network().trainMode()
    twin = copy.deepcopy(net)
    optimizer = several().setupOn(net)
    first, second, third = three().values()
    first.setupOn(Some(twin, lambda path: path.startswith("stem.")))
    second.setupOn(Some(twin, lambda path: path.endswith(".b") and not path.startswith("stem.")))
    third.setupOn(Some(twin, lambda path: not path.endswith(".b") and not path.startswith("stem.")))
    for x, t in batches():
        backward(net, x, t)
        optimizer.update()
        backward(twin, x, t)
        for each in (first, second, third):
            each.update()
    assert weights(net) == weights(twin)
    assert optimizer.step == 5 and list(optimizer.rates) == ["stem", "*.b", "*"]
    assert optimizer.rates["*"] == third.rate and optimizer.rate == 0.02


def test_a_compiled_step_gives_what_the_optimizer_gives(manner):
    net = network()
    twin = copy.deepcopy(net).trainMode()
    optimizer, reference = several(clipNorm=0.3), several(clipNorm=0.3).setupOn(twin)
    program = net.compile([(16, 6), (16, 4)], cost=MSE(), optimizer=optimizer)
    for x, t in batches():
        program.run(x, t)
        backward(twin, x, t)
        reference.update()
        for path, param in net.params.items():
            np.testing.assert_allclose(param.data, twin.params[path].data, rtol=2e-5, atol=1e-6, err_msg=path)
    assert program.why == "" and optimizer.norm == pytest.approx(reference.norm, rel=1e-5)


def test_a_changed_rate_of_one_optimizer_is_seen_by_the_compiled_step(manner):
    net = network()
    program = net.compile([(16, 6), (16, 4)], cost=MSE(), optimizer=(optimizer := several()))
    x, t = batches(1)[0]
    program.run(x, t)
    optimizer.optimizers["stem"].learnRate = 0.0
    velocity, before = optimizer.state["velocity/stem.W"].copy(), weights(net)
    program.run(x, t)
    changed = {path for path, data in weights(net).items() if data != before[path]}
    assert changed == {path for path in before if not path.startswith("stem.")}
    assert (optimizer.state["velocity/stem.W"] != velocity).any()
    optimizer.learnRate = 0.0
    before = weights(net)
    program.run(x, t)
    assert weights(net) == before


def test_a_dict_trains_is_saved_and_goes_on_to_the_bit(tmp_path):
    def trainer():
        optimizers = {"stem": MomentumSGD(0.02, 0.8), "*.b": SGD(0.05), "*": Adam(0.01, schedule=Cosine())}
        return Trainer(network(), MSE(), optimizers, batchsize=16, progress="none")

    x, t = (np.concatenate(arrays) for arrays in zip(*batches()))
    halved = trainer()
    halved.train(x, t, epochs=2)
    halved.save(tmp_path / "run.h5")
    resumed = trainer()
    resumed.resume(tmp_path / "run.h5")
    assert states(resumed.optimizer) == states(halved.optimizer)
    halved.train(x, t, epochs=4)
    resumed.train(x, t, epochs=4)
    assert weights(resumed.net) == weights(halved.net)
    loaded = load(tmp_path / "run.h5").optimizer
    assert [type(each) for each in loaded.optimizers.values()] == [MomentumSGD, SGD, Adam]
    assert loaded.step == 10 and loaded.state.keys() == resumed.optimizer.state.keys()


def test_a_file_of_other_optimizers_is_refused(tmp_path):
    x, t = batches(1)[0]
    first = Trainer(network(), MSE(), {"stem": MomentumSGD(), "*": SGD()}, progress="none")
    first.train(x, t, epochs=1)
    first.save(tmp_path / "run.h5")
    second = Trainer(network(), MSE(), {"stem": Adam(), "*": SGD()}, progress="none")
    with pytest.raises(CheckpointError, match=re.escape("'velocity/stem.W' belongs to none")):
        second.resume(tmp_path / "run.h5")


def test_the_norm_that_is_clipped_is_that_of_all_gradients():
    net = network().trainMode()
    optimizer = several(clipNorm=0.01).setupOn(net)
    backward(net, *batches(1)[0])
    wanted = np.sqrt(sum(float((p.grad.astype("f8") ** 2).sum()) for p in net.params.values()))
    before = {path: param.data.copy() for path, param in net.params.items()}
    optimizer.update()
    assert optimizer.norm == pytest.approx(wanted, rel=1e-5)
    change = before["stem.W"] - net.params["stem.W"].data
    step = 0.02 * 0.01 / (wanted + 1e-6) * net.params["stem.W"].grad
    np.testing.assert_allclose(change, step, atol=1e-7)  # float32 of weights near 1
    assert np.linalg.norm(change) == pytest.approx(np.linalg.norm(step), rel=1e-2)


def test_it_gives_what_parameter_groups_of_torch_give():
    torch = pytest.importorskip("torch")
    net = Sequential(Linear(6, 8, name="stem"), Relu(), Linear(8, 4, name="head")).calcMode("float64").trainMode()
    optimizer = MultiOptimizer({"stem": AdamW(0.02, decay=0.1), "*": AdamW(0.001, decay=0.0)}).setupOn(net)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).double()
    for layer, name in ((model[0], "stem"), (model[2], "head")):
        layer.weight.data = torch.from_numpy(net.params[f"{name}.W"].data.T.copy())
        layer.bias.data = torch.from_numpy(net.params[f"{name}.b"].data.copy())
    groups = [
        {"params": model[0].parameters(), "lr": 0.02, "weight_decay": 0.1},
        {"params": model[2].parameters(), "lr": 0.001, "weight_decay": 0.0},
    ]
    peer = torch.optim.AdamW(groups)
    for x, t in batches():
        backward(net, x.astype("f8"), t.astype("f8"))
        optimizer.update()
        peer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.from_numpy(x).double()), torch.from_numpy(t).double()).backward()
        peer.step()
    np.testing.assert_allclose(net.params["stem.W"].data, model[0].weight.detach().numpy().T, rtol=1e-9)
    np.testing.assert_allclose(net.params["head.b"].data, model[2].bias.detach().numpy(), rtol=1e-9)


def test_a_part_of_a_network_has_patterns_of_its_own_paths():
    inner = network()
    net = Sequential(inner, Linear(4, 2, name="last"))
    optimizer = several().setupOn(inner)
    optimizer.setupFor(net)
    assert len(optimizer.slots) == len(inner.params)
    assert {type(optimizer.ruleOf(slot)).__name__ for slot in optimizer.slots} == {"MomentumSGD", "SGD", "Adam"}


def test_a_frozen_parameter_needs_no_pattern():
    net = network()
    for path, param in net.params.items():
        param.trainable = path.startswith("head")
    optimizer = MultiOptimizer({"head.W": SGD(), "head": Adam()}).setupOn(net)
    assert [slot.path for slot in optimizer.slots] == ["head.W", "head.b"]


def test_an_optimizer_says_the_rate_that_it_has_now_and_settings_without_effect_are_refused():
    x, t = (np.concatenate(arrays) for arrays in zip(*batches()))
    trainer = Trainer(network(), MSE(), {"stem": SGD(0.1, schedule=Cosine(20)), "*": SGD(0.1)}, progress="none")
    trainer.train(x, t, epochs=10)
    stem = trainer.optimizer.optimizers["stem"]
    assert stem.rate == trainer.optimizer.rates["stem"] == trainer.optimizer.rate < 0.1
    for name in ("decay", "clipValue"):
        with pytest.raises(ArgumentError, match=re.escape(f"set optimizer.optimizers['stem'].{name}")):
            setattr(trainer.optimizer, name, 0.1)
    with pytest.raises(ArgumentError, match="of another MultiOptimizer; make a new one"):
        Trainer(network(), MSE(), trainer.optimizer.optimizers)
    with pytest.warns(GraphWarning, match="is over after 3 updates") as found:
        Trainer(network(), MSE(), {"*": SGD(schedule=Cosine(3))}, progress="none").train(x, t, epochs=9)
    assert [each.filename for each in found] == [__file__]  # the line that asks for the run


def test_every_schedule_is_fitted_to_the_run():
    x, t = (np.concatenate(arrays) for arrays in zip(*batches()))
    first, second = Cosine(), Cosine()
    optimizers = {"stem": SGD(0.1, schedule=first), "*": SGD(0.1, schedule=second)}
    Trainer(network(), MSE(), optimizers, batchsize=16, progress="none").train(x, t, epochs=3)
    assert first(15) == second(15) == pytest.approx(0, abs=1e-6)


WRONG = {
    "no dict": (lambda: MultiOptimizer(Adam()), "wanted a dict such as"),
    "an empty dict": (lambda: MultiOptimizer({}), "wanted a dict such as"),
    "a class": (lambda: MultiOptimizer({"*": Adam}), "wanted an optimizer for '*', such as Adam()"),
    "a number as key": (lambda: MultiOptimizer({0: Adam()}), "wanted paths of nodes or parameters as keys, got 0"),
    "nested": (lambda: MultiOptimizer({"*": MultiOptimizer({"*": Adam()})}), "wanted an optimizer for '*'"),
    "clipNorm within": (
        lambda: MultiOptimizer({"*": Adam(clipNorm=1.0)}),
        "looks at all gradients: give it to MultiOptimizer",
    ),
    "clipValue within clipNorm": (
        lambda: MultiOptimizer({"*": Adam(clipValue=1.0)}, clipNorm=1.0),
        "wanted clipNorm, or clipValue for '*', got both",
    ),
    "set up alone": (lambda: MultiOptimizer({"*": Adam().setupOn(network())}), "is set up on a network by itself"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_one_of_several_is_refused(case):
    make, said = WRONG[case]
    with pytest.raises(ArgumentError, match=re.escape(said)):
        make()


def test_patterns_that_match_nothing_or_too_late_and_parameters_without_one_are_named():
    with pytest.raises(PuregraphError, match=re.escape("no pattern matches 'norm.")):
        MultiOptimizer({"stem": SGD(), "head": SGD()}).setupOn(network())
    with pytest.raises(PuregraphError, match=re.escape("no parameter matches 'steem'; did you mean 'stem'?")):
        MultiOptimizer({"steem": SGD(), "*": SGD()}).setupOn(network())
    with pytest.raises(PuregraphError, match=re.escape("put 'stem' before '*'")):
        MultiOptimizer({"*": SGD(), "stem": SGD()}).setupOn(network())
    with pytest.raises(PuregraphError, match="no parameter matches 'steem'"):
        network().compile([(2, 6), (2, 4)], cost=MSE(), optimizer={"steem": SGD(), "*": SGD()})
