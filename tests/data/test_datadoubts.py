"""Data that trains without an error, and that nobody can have meant, is answered with a warning before the first step."""

import re
import warnings

import numpy as np
import pytest

from puregraph import (
    LSTM,
    MSE,
    SGD,
    BatchNorm,
    CrossEntropy,
    Flatten,
    LayerNorm,
    Linear,
    MulAddConst,
    Relu,
    Reshape,
    Sequential,
    Trainer,
    Transpose,
)
from puregraph.core.errors import GraphWarning
from puregraph.data import TableReader

RNG = np.random.default_rng(0)
X, LABELS = RNG.random((60, 4), dtype=np.float32), np.arange(60) % 3
ORDER = np.argsort(LABELS, kind="stable")
PIXELS = (X * 255).astype(np.uint8)
STEPS, STEPLABELS = RNG.random((8, 6, 4), dtype=np.float32), RNG.integers(0, 3, (8, 6))


def said(data, target, net=None, cost=None, validation=None, **options):
    """The warnings of one epoch."""
    net = net or Sequential(Linear(4, 3, name="fc"))
    trainer = Trainer(net, cost or CrossEntropy(), SGD(0.01), batchsize=8, progress="none", compile=False, **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.train(data, target, validation=validation)
    return "; ".join(str(w.message) for w in found if issubclass(w.category, GraphWarning))


def refilled():
    """A list of batches in one buffer."""
    buffer, found = np.empty((8, 4), np.float32), []
    for i in range(0, 24, 8):
        buffer[:] = X[i : i + 8]
        found.append((buffer, LABELS[i : i + 8]))
    return found


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            lambda: said(refilled(), None),
            "3 batches have one array of data with different targets, filled again for each",
        ),
        (lambda: said(PIXELS, LABELS), "bytes from 0 to 25. go into 'fc' .Linear. as they are: give data / 255"),
        (
            lambda: said(X * 1e4, LABELS),
            r"data of 5\.\de\+03 in the mean goes into 'fc' .Linear. as it is, .* BatchNorm",
        ),
        (lambda: said(X[ORDER], LABELS[ORDER], shuffle=False), "shuffle=False, and the samples come class by class"),
        (
            lambda: said(X[ORDER][:40], LABELS[ORDER][:40], validation=(X[ORDER][40:], LABELS[ORDER][40:])),
            r"20 of 20 samples of the validation are of classes \(2\) that the training has no sample of",
        ),
        (
            lambda: said(X, LABELS + 1, Sequential(Linear(4, 4)), validation=(X[:30], LABELS[:30])),
            r"10 of 30 samples of the validation are of classes \(0\)",
        ),
        (
            lambda: said(X, LABELS, validation=(X * 255, LABELS)),
            r"the data has a standard deviation of 0\.\d+ in the training and \d+\.?\d* in the validation: scale both",
        ),
        (
            lambda: said(STEPS, STEPLABELS, Sequential(Linear(4, 3), Reshape((0, 3, 6), name="turn"))),
            r"'sequential.turn' \(Reshape\) makes \(8, 3, 6\) of \(8, 6, 3\) with the elements in their order, .* Transpose",
        ),
        (
            lambda: said(STEPS, STEPLABELS, Sequential(Linear(4, 6), BatchNorm(6, name="bn"), Transpose((0, 2, 1)))),
            r"'sequential.bn' \(BatchNorm\) normalises axis 1 of \(8, 6, 6\), .*Linear. makes the last axis: LayerNorm",
        ),
    ],
)
def test_data_that_nobody_can_have_meant_is_answered_before_the_first_step(run, words):
    assert re.search(words, run())


@pytest.mark.parametrize(
    "run",
    [
        lambda: said(X, LABELS, validation=(X[:9] * 2, LABELS[:9])),
        lambda: said(X, LABELS, shuffle=False),
        lambda: said(X * 1e4, LABELS, Sequential(BatchNorm(4), Linear(4, 3))),
        lambda: said([(X[:8], LABELS[:8])] * 3, None),
        lambda: said((X > 0.5).astype(np.uint8), LABELS),
        lambda: said(PIXELS, LABELS, Sequential(MulAddConst(1 / 255), Linear(4, 3))),
        lambda: said(X[ORDER], LABELS[ORDER]),
        lambda: said(X[ORDER], X[ORDER, :1], Sequential(Linear(4, 1)), MSE(), shuffle=False),
        lambda: said(
            STEPS, STEPLABELS, Sequential(Linear(4, 6), LayerNorm(6), Relu(), Linear(6, 3), Transpose((0, 2, 1)))
        ),
        lambda: said(STEPS, STEPLABELS[:, 0], Sequential(LSTM(4, 3, outputs="h"), Flatten(), Linear(3, 3))),
    ],
)
def test_what_may_be_meant_is_left_alone(run):
    assert run() == ""


MANY = RNG.random((400, 4), dtype=np.float32)
CLASSES = (MANY * 3).astype(int).sum(1) % 3
FOLDS = np.arange(400) % 3


def folds(make, between=lambda net: None):
    """The warnings of each fold of three, of which each trains the network that `make` gives."""
    found = []
    for fold in range(3):
        net, part = make(), fold == FOLDS
        found.append(said(MANY[~part], CLASSES[~part], net, validation=(MANY[part], CLASSES[part])))
        between(net)
    return found


def test_a_validation_on_what_trains_is_answered():
    words = r"of \d+ samples of the validation are among those that train: .*validation=0\.2 holds some out"
    assert re.search(f"400 {words}", said(MANY, CLASSES, validation=(MANY, CLASSES)))
    assert re.search(f"150 {words}", said(MANY, CLASSES, validation=(MANY[::-1][:150].copy(), CLASSES[::-1][:150])))


def test_folds_that_train_one_network_on_are_answered():
    net = Sequential(Linear(4, 3))
    first, *others = folds(lambda: net)
    assert first == ""
    for text in others:
        assert re.search("13. of 13. samples of the validation have trained this network .* takes a new network", text)


def test_folds_of_networks_of_their_own_or_set_back_are_left_alone(tmp_path):
    assert folds(lambda: Sequential(Linear(4, 3))) == [""] * 3
    net = Sequential(Linear(4, 3))
    net.save(tmp_path / "start.h5")
    assert folds(lambda: net, lambda net: net.load(tmp_path / "start.h5")) == [""] * 3


@pytest.mark.parametrize(
    "run",
    [
        lambda: said(MANY[:90], CLASSES[:90], validation=(MANY[:90], CLASSES[:90])),  # a few are learnt by heart
        lambda: said(MANY[:300], CLASSES[:300], validation=(MANY[240:], CLASSES[240:])),  # less than half
        lambda: said(np.round(MANY), CLASSES * 0, validation=(np.round(MANY), CLASSES * 0)),  # 16 kinds of samples
        lambda: said(MANY, CLASSES, validation=(MANY, (CLASSES + 1) % 3)),
    ],
)
def test_a_validation_that_may_be_meant_is_left_alone(run):
    assert run() == ""


def test_a_run_that_goes_on_with_what_was_held_out_is_left_alone():
    net = Sequential(Linear(4, 3))
    assert [said(MANY, CLASSES, net, validation=0.3) for _ in range(2)] == ["", ""]


def test_a_column_of_another_category_in_each_row_is_named():
    table = {"id": [str(i) for i in range(60)], "city": ["a", "b"] * 30}
    with pytest.warns(GraphWarning, match="column 'id': 60 categories in 60 rows, from which nothing can be learnt"):
        TableReader(categories=["id", "city"]).fit(table)
