"""Embedder: rows by index, -1 as the zero vector, gradients added where rows were read."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph.core.errors import DataError, ShapeError
from puregraph.core.shape import asShape
from puregraph.modules import Embedder


def table():
    """Row i is (i, 10 i)."""
    embed = Embedder(4, 2).calcMode(np.float64)
    embed.W.data = np.arange(4.0)[:, None] * [1, 10]
    return embed


def test_rows_are_read_by_index_and_minus_one_is_the_zero_vector():
    y, gW = ours(table(), [np.array([[3, -1], [1, 3]])], np.arange(8.0).reshape(2, 2, 2))
    assert y.tolist() == [[[3, 30], [0, 0]], [[1, 10], [3, 30]]]
    assert gW.tolist() == [[0, 0], [4, 5], [0, 0], [0 + 6, 1 + 7]]


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 1, 3), (2, 0)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_any_rank_any_length_and_any_whole_numbers(shape, dtype):
    y = table()(np.full(shape, 2, dtype=dtype))
    assert y.shape == (*shape, 2) and (y == [2, 20]).all()
    assert Embedder(9, 5).dataShapeFrom(asShape(("N", "T"))) == ("N", "T", 5)


@pytest.mark.parametrize("wrong", [4, 100, -2])
def test_an_index_outside_is_named_with_the_size_of_the_vocabulary(wrong):
    with pytest.raises(DataError, match=f"the vocabulary has 4 words: wanted indices from 0 to 3.* got {wrong}"):
        table()(np.array([[0, wrong, 1]]))


def test_indices_are_whole_numbers_and_the_vocabulary_is_a_count():
    with pytest.raises(DataError, match=r"wanted whole numbers as indices, got float64"):
        table()(np.array([[0.0, 1.0]]))
    with pytest.raises(
        ShapeError, match="vocabulary as a whole number of at least 1, got .*; give the number of words"
    ):
        Embedder({"a": 0}, 3)


def test_many_gradients_of_one_word_are_added_the_same_each_time(rng):
    embed, x = Embedder(3, 4), rng.integers(-1, 3, (50, 40))
    grad = rng.standard_normal((50, 40, 4)).astype("f")
    runs = [embed.updateGrad(grad, x, embed.W.data, None)[1] for _ in range(2)]
    assert np.array_equal(*runs)
    wanted = [grad[x == i].sum(axis=0, dtype=np.float64) for i in range(3)]
    assert np.allclose(runs[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.peers
def test_it_is_pytorch_s_embedding(rng):
    import torch
    import torch.nn.functional as F

    x = rng.integers(-1, 11, (3, 8))

    def rule(x, W):
        return F.embedding(x % 12, torch.cat([W, torch.zeros(1, 5, dtype=W.dtype)]))  # -1 reads a row of zeros

    compare(Embedder(11, 5), rule, rng, x)
