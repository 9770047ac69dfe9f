"""What a table and a drawing of a native program say: formulas by the names of values."""

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph import models
from puregraph.compile.program import Program
from puregraph.compile.report.steptable import near, short, table
from puregraph.ops.kernel import useFast
from puregraph.optimizers import AdamW

pytestmark = needsNative


def rowsOf(program):
    """The lines of a table without what is wrapped, by columns that are two spaces apart."""
    return [line.strip().split("  ") for line in program.table().splitlines()]


def lenet(**options):
    net = models.lenet()
    optimizer = AdamW(0.1, **options).setupOn(net)
    return net.compile([(4, 1, 28, 28), (4,)], cost=pg.CrossEntropy(), optimizer=optimizer)


def test_inference_reads_as_the_network_does():
    text = models.lenet().compile([(64, 1, 28, 28)], train=False).table()
    for wanted in (
        "relu1 = relu(convolve(image, W) + b)",
        "pool1, indices = maxPool(relu1)",
        "relu3 = relu((flat @ W) + b)",
        "fc3 = (relu4 @ W) + b",
        "64,6,28,28 nhwc",
        "int32 64,6,14,14 nhwc",
        "15.7M",
    ):
        assert wanted in text, wanted
    assert "t1" not in text and "v1" not in text  # every value has a name


def test_a_step_of_training_names_gradients_and_updates():
    text = " ".join(lenet().table().split())
    for wanted in (
        "m, v, param = AdamW(dW)",
        "AdamW: m = 0.9 * m + 0.1 * grad; v = 0.999 * v + 0.001 * grad ** 2; param = param - rate",
        "dW = relu4.T @ crossentropy.dx",
        "dx = convolveData(relu2.dx, W)",
        "rate, decay, bias1, bias2 of",
        "in place",
        "gradient",
    ):
        assert wanted in text, wanted


def test_nothing_is_carried_out_by_numpy_and_the_table_says_who_does_what():
    columns = [row for row in rowsOf(lenet(clipNorm=1.0)) if row[0].isdigit()]
    text = "\n".join("  ".join(row) for row in columns)
    assert " numpy " not in text and " direct " in text and " gemm " in text and " norm(" in text
    assert text.count("Python") == 2


@pytest.mark.parametrize("width", [80, 120, 200])
def test_lines_are_as_wide_as_is_asked_for(width):
    lines = table(lenet().plan, width).splitlines()
    assert max(map(len, lines)) <= max(width, 115)


def test_long_formulas_stand_below():
    x = pg.Input(name="x").node()
    net = pg.Graph(x, pg.Gelu(name="gelu").node(x))
    text = Program(net, [(3, 4)], grads=[True]).table()
    assert "gelu.dx = f(gelu.dy, x)" in text and "\nf(x, y) = " in text


def test_states_are_named():
    net = pg.Sequential(pg.BatchNorm(3, name="norm"), name="net")
    text = Program(net.trainMode(), [(4, 3)], grads=[True]).table()
    for wanted in ("norm.mean = ", "norm.var = ", "norm.count = ", "number", "int64 number"):
        assert wanted in text, wanted


def test_a_drawing_says_the_same():
    text = models.lenet().compile([(4, 1, 28, 28)], train=False).draw()
    assert "relu1\\nrelu1 = relu(convolve(image, W) + b)\\n" in text


@pytest.mark.parametrize(
    "number, text",
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (999_600, "1M"), (15_654_912, "15.7M"), (2e12, "2T")],
)
def test_numbers_in_three_digits(number, text):
    assert short(number) == text


@pytest.mark.parametrize(
    "path, text",
    [
        ("lenet.relu1", "lenet.relu1"),
        ("grad:sequential.gpt.block1.attn.attention", "grad:..attn.attention"),
        ("a" * 40, "a" * 40),
    ],
)
def test_paths_are_cut_at_their_front(path, text):
    assert near(path) == text


def test_every_step_of_every_kind_is_told():
    """Steps without native code are numpy's own; rules that cannot be read are named by their module."""
    rng = np.random.default_rng(0)
    net = pg.Sequential(pg.Conv2D(2, 3, 3), pg.BatchNorm(3), pg.MaxPool2D(2), pg.Flatten(), pg.Dropout(0.5))
    net.calcMode("float64")
    with useFast(False):
        program = net.trainMode().compile([(2, 2, 6, 6)])
        program.run(rng.standard_normal((2, 2, 6, 6)))
    assert " numpy " in program.table() and " nest " not in program.table()
