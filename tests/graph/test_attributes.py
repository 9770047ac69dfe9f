"""Attributes that are set and have no effect: misspelt, of another framework, or looked at once."""

import copy
import pickle

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Adam,
    BatchNorm,
    Callback,
    Cosine,
    Dropout,
    EarlyStop,
    Input,
    Linear,
    Module,
    Param,
    Relu,
    Sequential,
    Trainer,
)
from puregraph.autodiff import Variable
from puregraph.core.errors import ArgumentError, PuregraphError, UnknownAttributeError


def net():
    return Sequential(Linear(4, 3, name="fc"), Dropout(0.5, name="drop"), BatchNorm(3, name="norm"), name="net")


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda: net()["fc"].W, "traineable", "Param: setting traineable has no effect; set trainable"),
        (lambda: net()["fc"].W, "Trainable", "set trainable"),
        (lambda: net()["fc"].W, "lr", "set rate, a factor of the learning rate"),
        (lambda: net()["fc"].W, "requires_grad", "set trainable"),
        (lambda: net()["fc"].W, "weight_decay", "set decay"),
        (lambda: net()["fc"].W, "value", "set data"),
        (lambda: net()["norm"].mean, "trainable", "State: .* a State is never trained"),
        (lambda: net()["fc"], "rate", "Linear: .* it belongs to parameters"),
        (lambda: net()["fc"], "lr", "it belongs to parameters"),
        (lambda: net()["fc"], "requires_grad", "set trainable"),
        (lambda: net()["fc"], "weight", "set by its name, such as fc.W.data"),
        (lambda: net()["fc"], "useBias", r"it is an argument of Linear\(...\), read only once"),
        (lambda: net()["norm"], "momentun", "set momentum"),
        (lambda: net()["drop"], "P", "set p"),
        (net, "training", r"Sequential: .* call trainMode\(\) or evalMode\(\)"),
        (net, "Trainable", "set trainable"),
        (Adam, "lr", "Adam: setting lr has no effect; set learnRate"),
        (Adam, "rate", "set learnRate"),
        (Adam, "learnrate", "set learnRate"),
        (Adam, "learning_rate", "set learnRate"),
        (Adam, "scheduler", "set schedule"),
        (Adam, "clip_norm", "set clipNorm"),
        (SGD, "momentum", "set momRate"),
        (lambda: Cosine(10), "totall", "set total"),
        (lambda: Trainer(net(), MSE(), SGD()), "lr", "set trainer.optimizer.learnRate"),
        (lambda: Trainer(net(), MSE(), SGD()), "rate", "Trainer: rate is read-only; set trainer.optimizer.learnRate"),
        (lambda: Trainer(net(), MSE(), SGD()), "loss", "Trainer: loss is read-only$"),
        (lambda: Trainer(net(), MSE(), SGD()), "epochs", r"give it to train\(...\)"),
        (lambda: Trainer(net(), MSE(), SGD()), "batchSize", "set batchsize"),
        (lambda: Trainer(net(), MSE(), SGD()), "optimiser", "set optimizer"),
        (lambda: Trainer(net(), MSE(), SGD()), "seed", "read only once"),
        (EarlyStop, "Patience", "set patience"),
    ],
)
def test_an_attribute_that_would_have_no_effect_is_refused_with_the_one_that_has(make, name, words):
    thing = make()
    with pytest.raises(UnknownAttributeError, match=words):
        setattr(thing, name, 1)
    with pytest.raises((AttributeError, PuregraphError)):
        setattr(thing, name, 1)


@pytest.mark.parametrize("name", ["author", "labels", "trained", "names", "tags", "note", "history2", "_lr", "params2"])
@pytest.mark.parametrize("make", [net, lambda: net()["fc"], lambda: net()["fc"].W, Adam, EarlyStop])
def test_whoever_wants_to_note_something_on_an_object_can(make, name):
    thing = make()
    setattr(thing, name, [1])
    assert getattr(thing, name) == [1]


class Own(Module):
    """A module of a user's, whose attributes are its own."""

    def __init__(self, rate):
        super().__init__()
        self.rate, self.lr, self.weight, self.training, self.trainables = rate, 1, 2, 3, 4

    def later(self):
        self.learning_rate, self.requires_grad = 5, 6
        return self.bias


def test_modules_of_users_set_what_they_like():
    own = Own(0.5)
    own.bias = 7  # a method reads it
    assert own.later() == 7
    own.rate = 0.7
    for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        other.lr = 3
        assert (other.rate, other.requires_grad, other.lr) == (0.7, 6, 3)
    with pytest.raises(UnknownAttributeError, match="Own: setting is_training"):
        own.is_training = True


def test_a_function_that_takes_an_object_is_no_method_of_it():
    def freeze(layer):
        layer.traineable = False

    with pytest.raises(UnknownAttributeError, match="set trainable"):
        freeze(net()["fc"])


def test_a_parameter_of_a_users_class_is_a_parameter_still():
    class Scaled(Param):
        def __init__(self, shape):
            super().__init__(shape)
            self.lr = 3

    assert Scaled((2,)).lr == 3


def test_a_module_is_frozen_as_a_whole(rng):
    x, t = rng.normal(size=(8, 4)).astype("f"), rng.normal(size=(8, 2)).astype("f")
    whole = Sequential(Linear(4, 4, name="a"), Relu(), Linear(4, 2, name="b"))
    whole["a"].trainable = False
    assert whole.trainable and not whole["a"].trainable and not whole["a"].W.trainable
    before = whole["a"].W.data.copy(), whole["b"].W.data.copy()
    Trainer(whole, MSE(), SGD(0.1), progress="none").train(x, t)
    assert np.array_equal(before[0], whole["a"].W.data) and not np.array_equal(before[1], whole["b"].W.data)
    whole.trainable = True
    assert whole["a"].b.trainable


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("onEpochEnds", "onEpochEnd"),
        ("onEpochend", "onEpochEnd"),
        ("on_epoch_end", "onEpochEnd"),
        ("onBatchBegin", "onBatchEnd"),
        ("on_train_batch_end", "onBatchEnd"),
        ("onTrainStart", "onTrainBegin"),
        ("onInterupt", "onInterrupt"),
    ],
)
def test_a_hook_that_nobody_calls_is_refused_when_its_class_is_written(name, meant):
    with pytest.raises(
        ArgumentError, match=f"Mine: {name} is never called; did you mean {meant}. Valid names: onTrainBegin, "
    ):
        type("Mine", (Callback,), {name: lambda self, trainer: None})


def test_a_method_of_a_callback_of_ones_own_is_no_hook():
    class Mine(Callback):
        def onEpochEnd(self, trainer):
            self.onMyBehalf(trainer)

        def onMyBehalf(self, trainer):
            """Called by itself."""

        def once(self):
            """Begins with the same letters."""

    assert Mine().order == 0


@pytest.mark.parametrize("inner", [False, True])
def test_the_mode_of_a_graph_that_is_set_is_that_of_all_modules_inside(inner):
    net = Sequential(
        Sequential(Dropout(0.5, name="drop"), name="in") if inner else Dropout(0.5, name="drop"), name="net"
    )
    net.isTraining = False
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(net(x), x)
    assert not net.isTraining and not net["in.drop" if inner else "drop"].isTraining
    net.isTraining = True
    assert net.isTraining and net["in.drop" if inner else "drop"].isTraining


@pytest.mark.parametrize("kind", ["params", "states"])
def test_what_is_put_among_the_arrays_of_a_network_would_be_lost_and_is_refused(kind):
    net = Sequential(Linear(3, 4), BatchNorm(4))
    found, name = getattr(net, kind), next(iter(getattr(net, kind)))
    values = np.zeros(found[name].shape, np.float32)
    for put in (
        lambda: found.__setitem__(name, values),
        lambda: found.update({name: values}),
        lambda: found.__ior__({name: values}),
        lambda: getattr(net["linear" if kind == "params" else "batchnorm"], kind).update({name: values}),
    ):
        with pytest.raises(PuregraphError, match=f"setting '{name}' here has no effect: .* set .data of the one"):
            put()
    kept = copy.deepcopy(found)  # a habit: what is copied is anyone's own
    kept[name] = values
    assert (
        type(kept) is dict
        and kept[name] is not found[name]
        and pickle.loads(pickle.dumps(found)).keys() == found.keys()
    )


@pytest.mark.parametrize("name", ["W", "b"])
@pytest.mark.parametrize("useBias", [True, False])
def test_a_node_or_anything_else_in_place_of_a_parameter_is_refused(name, useBias):
    fc = Linear(3, 4, useBias=useBias)
    before = getattr(fc, name)
    for value in (Input(name="w").node(), Linear(3, 4), "he", Variable(np.ones(3)), np.ones((3, 4)), len, 3):
        with pytest.raises(UnknownAttributeError, match=f"Linear: {name} is a parameter"):
            setattr(fc, name, value)
    assert getattr(fc, name) is before
    setattr(fc, name, getattr(Linear(3, 4), name))
    assert fc(np.ones((2, 3), np.float32)).shape == (2, 4)
