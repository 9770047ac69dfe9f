"""Mistakes with dtypes, arrays, sizes and paths are refused with a sentence, or give what was meant."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from puregraph import (
    LSTM,
    MSE,
    SGD,
    Add,
    ArgMax,
    Attention,
    BatchNorm,
    Calculator,
    Cast,
    Checkpoint,
    Compress,
    Constant,
    Conv2D,
    CrossEntropy,
    CsvLog,
    Deconv2D,
    Einsum,
    Embedder,
    Full,
    Gather,
    GroupNorm,
    Input,
    Linear,
    Max,
    Mul,
    OneHot,
    Param,
    Power,
    PuregraphError,
    Range,
    Reshape,
    Sequential,
    Slice,
    SoftMax,
    Sub,
    TensorBoard,
    Trainer,
    Validator,
    Where,
    models,
)
from puregraph.core.foreign import hintFor
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.costs import Huber

X, WHOLE, T = np.ones((4, 3), np.float32), np.ones((4, 3), np.int64), np.zeros(4, np.int64)


def net():
    return Sequential(Linear(3, 2, name="fc"))


def train(data=X, target=T, append=None, **options):
    trainer = Trainer(net(), CrossEntropy(), SGD(0.1), batchsize=2, progress="none", **options)
    trainer.callbacks += [] if append is None else [append]
    return trainer.train(data, target, epochs=1)


def heads(*kinds):
    return [np.ones((1, 1, 2, 2), kind) for kind in kinds]


def sparse(kind="csr_matrix"):
    return getattr(pytest.importorskip("scipy.sparse"), kind)(X)


REFUSED = {
    "a dtype of complex numbers": (lambda: Cast("complex64"), "wanted dtype as a dtype of numbers"),
    "a dtype of text": (lambda: Cast(str), "wanted dtype as a dtype of numbers"),
    "a dtype of objects": (lambda: Input(dtype=object), "wanted dtype as a dtype of numbers"),
    "a dtype of dates": (lambda: OneHot(3, "M8[s]"), "wanted dtype as a dtype of numbers"),
    "a dtype of fields": (lambda: Full(1.0, [("a", "f4")]), "wanted dtype as a dtype of numbers"),
    "a parameter of complex numbers": (lambda: Param((2,), dtype=complex), "wanted the dtype of a parameter"),
    "a constant of rows of two lengths": (lambda: Constant([[1], [1, 2]]), "wanted an array of numbers"),
    "a constant of text": (lambda: Constant("a"), "wanted numbers for value"),
    "a constant of nothing": (lambda: Constant([None]), "wanted numbers for value"),
    "calculating in integers": (lambda: net().calcMode(int), "int"),
    "calculating in a list": (lambda: net().calcMode([np.float32]), "float32"),
    "compiled for a dtype that is none": (lambda: net().compile((4, 3), dtypes=["x"]), "a list of dtypes"),
    "compiled for complex numbers": (lambda: net().compile((4, 3), dtypes=["c8"]), "a list of dtypes"),
    "compiled for one dtype": (lambda: net().compile((4, 3), dtypes="float32"), "a list of dtypes"),
    "inferred from a dtype that is none": (lambda: net().dataTypeFrom("x"), "wanted dtypes, such as"),
    "a sum of objects": (lambda: Add()(np.array([1, None], object), X[0, :2]), "real numbers"),
    "a sum of complex numbers": (lambda: Add()(X * 1j, X), "real numbers"),
    "a product of dates": (lambda: Mul()(np.array(["2020"], "M8[Y]"), np.array([1])), "real numbers"),
    "a difference of booleans": (lambda: Sub()(X > 0, X > 0), "convert with"),
    "queries in half, keys in single": (lambda: Attention()(*heads("f2", "f4", "f4")), "wanted float16 for k"),
    "a mask in double": (lambda: Attention()(*heads("f4", "f4", "f4"), np.full((2, 2), 0.5)), "float32 for mask"),
    "a mask of integers": (lambda: Attention()(*heads("f4", "f4", "f4"), WHOLE[:2, :2]), "bools or floats for mask"),
    "states in double": (lambda: LSTM(3, 2)(X[None], np.zeros((1, 2)), np.zeros((1, 2))), "wanted float32 for h0"),
    "a norm of doubles": (lambda: Sequential(Input(dtype="f8"), BatchNorm(3))(X.astype("f8")), "wanted float32"),
    "integers for a layer": (lambda: net()(WHOLE), "wanted float32 for x, got int64"),
    "scores of integers": (lambda: SoftMax()(WHOLE), "wanted floats for x"),
    "a cost of booleans": (lambda: MSE()(X > 0, X > 0), "wanted floats for x"),
    "labels of floats": (lambda: CrossEntropy()(X, T.astype("f4")), "whole numbers|labels"),
    "ids of floats": (lambda: Embedder(3, 2)(X), "integers|whole numbers"),
    "indices of floats": (lambda: Gather()(X, X), "whole numbers|integers"),
    "a mask of numbers": (lambda: Compress()(X, T), "booleans for condition"),
    "a condition of numbers": (lambda: Where()(WHOLE, X, X), "booleans for condition"),
    "a Huber of 0": (lambda: Huber(0), "delta as a finite number above 0"),
    "a Huber of nan": (lambda: Huber(float("nan")), "delta as a finite number above 0"),
    "a Huber of another shape": (lambda: Huber()(X, T), "the target has the shape of x"),
    "the largest of none": (lambda: Max()(X[:0]), "at least one element to choose from"),
    "the index of none": (lambda: ArgMax(axis=0)(X[:0]), "at least one element to choose from"),
    "the first of none": (lambda: Slice()[0](X[:0]), "an axis of at least 1"),
    "a step of 0": (lambda: Range()(np.array(0), np.array(3), np.array(0)), "a step other than 0"),
    "a postpad beyond": (lambda: Deconv2D(1, 1, 3, postpad=1), "below the stride .* or the dilation"),
    "a postpad below 0": (lambda: Deconv2D(1, 1, 3, stride=2, postpad=-1), "postpad as a whole number"),
    "16 channels for 32": (lambda: Conv2D(32, 4, 3)(np.ones((1, 16, 32, 32), "f4")), "expected 32 channels"),
    "channels last": (lambda: GroupNorm(1, 3)(np.ones((2, 8, 8, 3), "f4")), "transpose the data"),
    "a callback of text": (lambda: train(append="x"), "wanted a Callback or a function"),
    "a class for a callback": (lambda: train(append=Checkpoint), r"the class Checkpoint; write Checkpoint\(...\)"),
    "sparse data": (lambda: train(sparse()), r"array.toarray\(\) makes a plain one"),
    "a list of sparse data": (lambda: train([sparse("coo_matrix")]), r"array.toarray\(\) makes a plain one"),
    "a sparse array in a graph": (lambda: net()(sparse("csr_array")), r"array.toarray\(\) makes a plain one"),
    "a sparse constant": (lambda: Constant(sparse()), r"array.toarray\(\) makes a plain one"),
    "sparse data of a validation": (lambda: Validator(net(), CrossEntropy()).validate(sparse(), T), "toarray"),
    "rows of two lengths": (lambda: train([[1, 2, 3], [1, 2]], [0, 1]), r"by padded\(sequences\)"),
    "targets of two lengths": (lambda: train(X, [[1], [1, 2], [1], [1]]), "target: wanted an array"),
    "fewer targets": (lambda: train(X, T[:3]), "4"),
    "decimals": (lambda: train([[Decimal(1)] * 3] * 4), "makes numbers of objects"),
    "objects": (lambda: net()(np.array([[Fraction(1, 2)] * 3])), "numbers"),
    "a text for data": (lambda: Calculator(net()).calculate("abc"), "wanted"),
    "an equation that is left out": (lambda: Einsum(), r"write Einsum\(equation\)"),
    "an equation of numbers": (lambda: Einsum(5), "wanted equation as a text"),
    "an integer to the power of -1": (lambda: Pointwise(formula="a ** b")(T + 2, T - 1), r"astype\('float32'\)"),
    "a power in words": (lambda: Power("2"), "wanted exponent as a finite number"),
    "classes in words": (lambda: models.resnet20("10"), "wanted classes as a whole number"),
    "0 classes": (lambda: models.resnet50(0), "wanted classes as a whole number of at least 1"),
    "a depth in words": (lambda: models.cifarResnet("20"), "wanted depth as a whole number"),
    "pictures of no size": (lambda: models.vit(None), "wanted image as a whole number"),
    "no layers": (lambda: models.transformer(None), "wanted layers as a whole number"),
    "NUL in the path of a log": (lambda: CsvLog("a\0b"), "no path has NUL characters"),
    "NUL in the folder of a log": (lambda: TensorBoard("a\0b"), "no path has NUL characters"),
    "NUL in the path of a checkpoint": (lambda: Checkpoint(Path("a\0b")), "no path has NUL characters"),
    "NUL in the path of a network": (lambda: net().save("a\0b"), "wanted path as a path"),
    "a name of 300 letters": (lambda: train(append=Checkpoint("a" * 300)), "cannot write .*; give another path"),
    "a log of 300 letters": (lambda: train(append=CsvLog("a" * 300)), "cannot write"),
}

RIGHT = {
    "Python's bool": (lambda: Cast(bool)(X), np.ones((4, 3), bool)),
    "Python's int": (lambda: Cast(int)(X), WHOLE),
    "another byte order": (lambda: Cast(">f4")(WHOLE), X),
    "float16 beside int64": (lambda: Add()(np.float16([1]), np.int64([2])), np.float16([3])),
    "float32 beside int64": (lambda: Mul()(np.float32([1.5]), np.int64([2])), np.float32([3])),
    "a power that is a constant": (lambda: Power(-1)(np.array([1, 2])), np.array([1, 0.5])),
    "Huber": (lambda: Huber(2.0)(np.float64([5.0]), np.float64([0.0])), np.float64(8.0)),
    "a function that is appended": (lambda: len(train(append=lambda trainer: None)), 1),
    "classes by position": (lambda: models.resnet20(7).dataShapeFrom((1, 3, 32, 32)), (1, 7)),
    "a postpad below the dilation": (
        lambda: Deconv2D(1, 1, 3, dilation=3, postpad=1)(X[None, None]).shape,
        (1, 1, 11, 10),
    ),
    "a reshape behind no rows": (lambda: Reshape((0, 3, 1))(X[:0]).shape, (0, 3, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_with_a_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mistake, words = REFUSED[name]
    with pytest.raises(PuregraphError, match=words):
        mistake()


@pytest.mark.parametrize("name", RIGHT)
def test_a_spelling_that_means_something_gives_it(name):
    make, wanted = RIGHT[name]
    found = make()
    assert np.array_equal(found, wanted)
    assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("HuberLoss", "it is called Huber"),
        ("MultiheadAttention", "it is called MultiHeadAttention"),
        ("SpatialDropout2D", "Dropout2D"),
        ("EmbeddingBag", "EmbedderBag"),
        ("CategoricalCrossentropy", "leave SoftMax out"),
        ("FBetaScore", "F1 is that of beta 1"),
    ],
)
def test_a_foreign_name_is_answered_by_what_computes_the_same(name, hint):
    assert hint in hintFor(name)
