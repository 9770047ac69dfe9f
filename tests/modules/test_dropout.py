"""Dropout and noise: how much is kept, and that the stream of masks can be stopped and resumed."""

import copy

import numpy as np
import pytest
from peers import ours

from puregraph.core import initial
from puregraph.core.errors import ArgumentError
from puregraph.modules import (
    AlphaDropout,
    DropBlock,
    Dropout,
    Dropout2D,
    FeatureAlphaDropout,
    NoiseInjector,
    RRelu,
    StochasticDepth,
)
from puregraph.ops.random.reference import uniform

ONES = np.ones((50, 40), dtype="f")


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_it_keeps_one_minus_p_and_the_expectation(p):
    y = Dropout(p)(np.ones((400, 500)))
    assert abs((y > 0).mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / y.size)
    assert np.allclose(y[y > 0], 1 / (1 - p), rtol=1e-12)


def test_the_gradient_passes_where_the_value_did():
    y, gx = ours(Dropout(0.3), [np.ones((20, 30))], np.ones((20, 30)))
    assert np.array_equal(y, gx) and 0 < (gx == 0).sum() < gx.size


def test_what_is_left_out_leaves_nothing_behind():
    y = Dropout(0.5)(np.full((10, 10), np.inf))
    assert set(np.unique(y)) == {0.0, np.inf}


def test_evaluation_gives_the_input_itself():
    drop = Dropout().evalMode()
    y, mask = drop.updateData(ONES, *drop.ruleValues())
    assert y is ONES and drop.count.data == 0
    assert mask.shape == ONES.shape and mask.dtype == bool and mask.all() and mask.base.size == 1


def test_each_call_has_its_own_mask_and_each_module_its_own_stream():
    drop, other = Dropout(), Dropout()
    first, second = drop(ONES), drop(ONES)
    assert not np.array_equal(first, second) and not np.array_equal(first, other(ONES))
    assert drop.count.data == 2 and drop.key.data != other.key.data


def test_restored_states_continue_the_stream():
    drop = Dropout(0.4)
    drop(ONES)
    saved = {name: state.data.copy() for name, state in drop.states.items()}
    rest = [drop(ONES) for _ in range(3)]
    resumed = Dropout(0.4)
    for name, values in saved.items():
        getattr(resumed, name).data = values
    assert all(np.array_equal(resumed(ONES), y) for y in rest)


def test_a_copy_goes_on_as_its_original():
    drop = Dropout()
    drop(ONES)
    twin = copy.deepcopy(drop)
    assert np.array_equal(drop(ONES), twin(ONES))


def test_the_seed_makes_the_stream_repeat():
    before = initial.SEED.entropy, initial.SEED.count
    try:
        runs = []
        for _ in range(2):
            initial.seed(7)
            runs.append(Dropout()(ONES))
        assert np.array_equal(*runs)
    finally:
        initial.SEED.entropy, initial.SEED.count = before


def test_the_mask_does_not_depend_on_the_dtype():
    drop = Dropout()
    drop.key.data = np.array(5, dtype=np.uint64)
    masks = []
    for dtype in (np.float16, np.float32, np.float64):
        drop.count.data = np.array(3)
        y = drop(ONES.astype(dtype))
        assert y.dtype == dtype
        masks.append(y > 0)
    assert np.array_equal(masks[0], masks[1]) and np.array_equal(masks[1], masks[2])


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan")])
def test_no_other_probability_is_taken(p):
    with pytest.raises(ValueError, match="Dropout: wanted p as a probability with 0 <= p < 1"):
        Dropout(p)


@pytest.mark.parametrize(("module", "shape"), [(Dropout2D(0.4), (60, 50, 1, 1)), (StochasticDepth(0.4), (60, 1, 1, 1))])
def test_a_mask_of_maps_or_samples_drops_all_of_one(module, shape):
    y = module(np.ones((60, 50, 3, 2)))
    kept = np.broadcast_to(y[tuple(slice(0, n) for n in shape)], y.shape)
    assert np.array_equal(y, kept) and set(np.unique(y)) == {0.0, 1 / 0.6}
    assert abs((y > 0).mean() - 0.6) < (0.05 if shape[1] == 50 else 0.3)


def test_alpha_dropout_keeps_mean_and_variance():
    x = np.random.default_rng(0).standard_normal((500, 500))
    y = AlphaDropout(0.3)(x)
    assert abs(y.mean()) < 0.01 and abs(y.std() - 1) < 0.01
    assert len(np.unique(y)) < 0.75 * x.size  # all dropped elements have one value


def test_feature_alpha_dropout_drops_maps_as_alpha_dropout_drops_elements():
    x = np.random.default_rng(0).standard_normal((300, 400, 3, 2))
    y, gx = ours(FeatureAlphaDropout(0.3), [x], np.ones(x.shape))
    isDropped = (y == y[..., :1, :1]).all((2, 3))
    assert abs(isDropped.mean() - 0.3) < 0.01 and len(np.unique(y[isDropped])) == 1
    assert np.allclose(y[~isDropped], FeatureAlphaDropout(0.3).factor * (x[~isDropped] - 0.3 * AlphaDropout.LEAST))
    assert abs(y.mean()) < 0.01 and abs(y.std() - 1) < 0.01
    assert np.array_equal(
        gx, np.where(isDropped, 0, FeatureAlphaDropout(0.3).factor)[..., None, None] * np.ones((3, 2))
    )


def test_noise_has_its_mean_and_deviation_and_is_none_in_evaluation():
    for module, mean, deviation in (
        (NoiseInjector("add", "uniform", (2, 5)), 4.5, 3 / 12**0.5),
        (NoiseInjector("add", "gaussian", (2, 0.5)), 3.0, 0.5),
        (NoiseInjector("mul", "gaussian", (2, 0.5)), 2.0, 0.5),
    ):
        y = module(np.ones((500, 500)))
        assert abs(y.mean() - mean) < 0.01 and abs(y.std() - deviation) < 0.01
        assert module.evalMode()(ONES) is ONES or np.array_equal(module(ONES), ONES)
    with pytest.raises(ArgumentError, match="wanted params as two numbers, got"):
        NoiseInjector(params=(1,))


def test_slopes_at_random_are_between_both_and_their_mean_in_evaluation():
    module = RRelu(0.2, 0.4)
    y, gx = ours(module, [-np.ones((50, 40))], np.ones((50, 40)))
    assert np.array_equal(-y, gx) and 0.2 < gx.min() < 0.21 and 0.39 < gx.max() < 0.4
    assert np.allclose(module.evalMode()(np.array([-1.0, 2.0])), [-0.3, 2.0])
    with pytest.raises(ArgumentError, match="RRelu: wanted lower <= upper, got 0.4 and 0.2"):
        RRelu(0.4, 0.2)


@pytest.mark.parametrize(("size", "shape"), [(1, (9, 8)), (3, (9, 8)), (2, (16,)), (2, (5, 6, 4))])
def test_blocks_are_dropped_from_their_first_elements(size, shape):
    drop = DropBlock(0.2, size).calcMode(np.float64)
    x = np.ones((6, 5, *shape))
    key, count = drop.key.data, int(drop.count.data)
    y, gx = ours(drop, [x], 2 * np.ones(x.shape))
    starts = [n - size + 1 for n in shape]
    chance = 0.2 * np.prod(shape) / (size ** len(shape) * np.prod(starts))
    mask = np.ones(x.shape, bool)
    for n, c, *at in np.argwhere(uniform((6, 5, *starts), key, np.int64(count)) < chance):
        mask[(n, c, *(slice(i, i + size) for i in at))] = False
    scale = mask[0].size / mask.sum(axis=tuple(range(1, mask.ndim)), keepdims=True)
    assert np.allclose(y, mask * scale, rtol=1e-13) and np.allclose(gx, 2 * mask * scale, rtol=1e-13)
    assert np.allclose(y.mean(axis=tuple(range(1, y.ndim))), 1) and 0 < (~mask).sum()


def test_the_share_of_dropped_elements_is_about_p():
    y = DropBlock(0.1, 3)(np.ones((40, 10, 20, 20), "f"))
    assert 0.07 < (y == 0).mean() < 0.11  # blocks overlap, so that it is somewhat below p


def test_a_block_is_no_longer_than_a_map_and_evaluation_changes_nothing():
    x = np.ones((200, 1, 2, 4))
    y = DropBlock(0.4, 7)(x)
    assert (y == 0).any() and DropBlock(0.4).evalMode()(x) is not None
    assert np.array_equal(DropBlock(0.4).evalMode()(x), x)
