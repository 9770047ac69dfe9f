"""Mean and variance of a batch in one pass on a GPU: how many passes there are, and how exact they are."""

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator

from puregraph.compile.gpu.passes import shiftvariance
from puregraph.core import device
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, LayerNorm

pytestmark = [needsEmulator]
ROWS, CHANNELS = 2400, 8


def sources(program):
    """The names of the launches of a program."""
    calls = [call for call in program.executable.schedule.calls if call.kind.isNative]
    return [task.what.name for call in calls for task in call.function.works]


def statisticsOf(monkeypatch, x, precision="float32"):
    """Mean and variance of each channel, as the running ones follow them, and the program."""
    useGpu(monkeypatch)
    norm = BatchNorm(x.shape[1], momentum=1.0)
    net = Sequential(norm).calcMode(precision).trainMode()
    program = net.compile([x.shape], train=True)
    program.run(x, np.zeros_like(x))
    mean, variance = (np.asarray(device.toHost(s.data), float) for s in (norm.mean, norm.var))
    return mean, variance * (len(x) - 1) / len(x), program


def exactly(x):
    """Mean and variance in float64."""
    wide = x.astype(np.float64)
    return wide.mean(0), wide.var(0)


def shifted(rng, offset, scale=1.0):
    return (offset + scale * rng.standard_normal((ROWS, CHANNELS))).astype(np.float32)


@pytest.mark.parametrize("offset", [0, 1e3, -1e4])
def test_a_mean_and_a_variance_far_from_zero_are_as_exact_as_in_two_passes(monkeypatch, rng, offset):
    x = shifted(rng, offset)
    mean, variance, program = statisticsOf(monkeypatch, x)
    assert any("minimum(maximum" in name for name in sources(program))
    assert not any(name.startswith("y0 = sum x0; y1 = y0 /") for name in sources(program))
    wantedMean, wanted = exactly(x)
    assert (abs(mean - wantedMean) <= 1e-7 * abs(offset) + 1e-6).all()
    error = abs(variance / wanted - 1).max()
    monkeypatch.setattr(shiftvariance, "isHeld", lambda call: True)
    mean, variance, program = statisticsOf(monkeypatch, x)
    assert any(name.startswith("y0 = sum x0; y1 = y0 /") for name in sources(program))
    assert error <= max(2e-6, 4 * abs(variance / wanted - 1).max())


SAMPLED = [0, ROWS // 4 - 1, ROWS // 2 - 1, 3 * ROWS // 4 - 1, ROWS - 1]


@pytest.mark.peers
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_sampled_elements_far_from_the_others_cost_no_more_bits_than_in_pytorch(monkeypatch, rng, precision):
    import torch

    x = shifted(rng, 50)
    x[SAMPLED[0]], x[SAMPLED[3]] = 3000, 2800
    rounded = torch.from_numpy(x).to(getattr(torch, precision))
    x = rounded.float().numpy()
    wantedMean, wanted = exactly(x)
    theirs, other = torch.zeros(CHANNELS), torch.ones(CHANNELS)
    torch.nn.functional.batch_norm(rounded, other, theirs, training=True, momentum=1.0)
    error = abs(theirs.double().numpy() * (ROWS - 1) / ROWS / wanted - 1).max()
    mean, variance, _ = statisticsOf(monkeypatch, x, precision)
    assert (abs(variance / wanted - 1) <= 4 * max(error, np.finfo("f4").eps)).all()
    assert (abs(mean / wantedMean - 1) <= 1e-6).all()


def test_the_error_grows_with_the_square_of_the_distance_of_the_pivot_and_no_faster(monkeypatch, rng):
    for distance in (10, 1000):
        x = shifted(rng, 5)
        x[SAMPLED[1:4]] = 5 + distance
        _, variance, _ = statisticsOf(monkeypatch, x)
        _, wanted = exactly(x)
        bound = 1 + (distance / np.sqrt(wanted)) ** 2
        assert (abs(variance / wanted - 1) <= 4 * np.finfo("f4").eps * bound).all()


def test_equal_elements_have_no_variance_and_what_is_not_finite_stays_so(monkeypatch, rng):
    x = shifted(rng, 0)
    x[:, 0], x[:, 1] = 1.1, -3e4
    x[17, 2], x[0, 3], x[5, 4] = np.inf, np.nan, -np.inf
    mean, variance, _ = statisticsOf(monkeypatch, x)
    assert (variance[:2] == 0).all() and (mean[:2] == x[0, :2]).all()
    assert not np.isfinite(variance[2:5]).any() and not np.isfinite(mean[2:5]).any()
    assert np.isfinite(variance[5:]).all()


def test_rows_in_registers_keep_two_passes(monkeypatch, rng):
    useGpu(monkeypatch)
    program = Sequential(LayerNorm(64)).trainMode().compile([(40, 64)], train=True)
    x = rng.standard_normal((40, 64)).astype("f4")
    program.run(x, x)
    assert not any("minimum(maximum" in name for name in sources(program))
