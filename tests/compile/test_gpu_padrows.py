"""Wide products of an odd width are stored in rows that begin at aligned addresses, and so are their gradients."""

import numpy as np
import pytest
from fakecupy import useGpu
from gpunets import close, trained
from launches import needsEmulator

from puregraph import models
from puregraph.core import device
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Reshape, Transpose
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.product.cuda.librarygemm import GemmTask
from puregraph.optimizers import SGD

pytestmark = [needsEmulator]
CLASSES, PADDED = 1031, 1088


def rowsOfWords():
    """GPT, and all positions of all texts as one batch of scores."""
    return Sequential(models.gpt(CLASSES, 4, 1, 2, 8), Reshape((-1, CLASSES)))


def columnsOfWords():
    """GPT, and the classes on the axis behind that of texts."""
    return Sequential(models.gpt(CLASSES, 4, 1, 2, 8), Transpose((0, 2, 1)))


def withBias():
    return Sequential(models.gpt(11, 4, 1, 2, 8), Linear(11, CLASSES), Reshape((-1, CLASSES)))


def works(program):
    calls = [call for call in program.executable.schedule.calls if call.kind.isNative]
    return [task.what for call in calls for task in call.function.works]


@pytest.mark.parametrize(
    ("make", "precision", "libraries"),
    [
        (rowsOfWords, "bfloat16", True),
        (columnsOfWords, "float32", True),
        (withBias, "float32", True),
        pytest.param(rowsOfWords, "float32", False, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_scores_of_an_odd_number_of_classes_begin_at_aligned_addresses(monkeypatch, rng, make, precision, libraries):
    batches = [
        (rng.integers(0, 11, (3, 4)), rng.integers(0, CLASSES, (3, 4) if make is columnsOfWords else 12))
        for _ in range(2)
    ]
    with device.useDevice("cpu"):
        _, near, wanted = trained(make, batches, SGD(), wanted=[True, False])
    useGpu(monkeypatch, libraries)
    program, far, got = trained(lambda: make().calcMode(precision), batches, SGD(), wanted=[True, False])
    tolerance = 2e-5 if precision == "float32" else 3e-2
    for each, other in zip(got, wanted, strict=True):
        close(each[0], other[0], tolerance)
    for name, param in near.params.items():
        close(far.params[name].data, param.data, tolerance)
    tasks = [each.task for each in works(program) if not isinstance(each, Launch) and isinstance(each.task, GemmTask)]
    weights = {CLASSES} if make is withBias else set()  # which stay as they are
    assert {m.ld for task in tasks for m in (task.a, task.b, task.d) if m.rows == CLASSES} - weights == (
        {PADDED} if libraries else set()
    )
    if make is not withBias:  # the gradient of words is added to that of scores
        assert not [
            each for each in works(program) if each.name == "x0 + x1" and each.slots[0][1].shape == (CLASSES, 8)
        ]
        assert any("#define BASE" in each.source for each in works(program) if isinstance(each, Launch))
    (slope,) = [each for each in works(program) if isinstance(each, Launch) and "exp(x - peak)" in each.name]
    assert "loadMany<v>" in slope.source and "run<" in slope.source


def test_scores_that_are_read_after_the_step_have_no_gaps(monkeypatch, rng):
    batch = rng.integers(0, 11, (3, 4)), rng.integers(0, CLASSES, 12)
    useGpu(monkeypatch)
    program, _, ((_, scores),) = trained(rowsOfWords, [batch], SGD())
    assert device.toHost(scores).flags.c_contiguous and np.isfinite(device.toHost(scores)).all()
