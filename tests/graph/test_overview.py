"""The table of a graph, as it is printed."""

import copy
import re

import pytest

from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.graph.analysis.collapsedlines import collapsedLines
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import bytesText, countText, render, summary
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.models import lenet, resnet50
from puregraph.modules import Add, Conv2D, GlobalAvgPool, Identity, Linear, Relu
from puregraph.modules.block import RecurrentLayers, TransformerEncoderLayer
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

LENET = """\
node   module                   from   data shape       gradient shape   params     bytes   flops
-------------------------------------------------------------------------------------------------
conv1  Conv2D(1, 6, 5, pad=2)   image  (N, 6, 28, 28)   (N, 1, 28, 28)      156  18.4 KiB   240 k
relu1  Relu                     conv1  (N, 6, 28, 28)   (N, 6, 28, 28)           18.4 KiB  4.70 k
pool1  MaxPool2D(2)             relu1  (N, 6, 14, 14)   (N, 6, 28, 28)           9.19 KiB  4.70 k
conv2  Conv2D(6, 16, 5, pad=0)  pool1  (N, 16, 10, 10)  (N, 6, 14, 14)    2,416  6.25 KiB   482 k
relu2  Relu                     conv2  (N, 16, 10, 10)  (N, 16, 10, 10)          6.25 KiB  1.60 k
pool2  MaxPool2D(2)             relu2  (N, 16, 5, 5)    (N, 16, 10, 10)          3.12 KiB  1.60 k
flat   Flatten                  pool2  (N, 400)         (N, 16, 5, 5)
fc1    Linear(400, 120)         flat   (N, 120)         (N, 400)         48,120     480 B  96.1 k
relu3  Relu                     fc1    (N, 120)         (N, 120)                    480 B     120
fc2    Linear(120, 84)          relu3  (N, 84)          (N, 120)         10,164     336 B  20.2 k
relu4  Relu                     fc2    (N, 84)          (N, 84)                     336 B      84
fc3    Linear(84, 10)           relu4  (N, 10)          (N, 84)             850      40 B  1.69 k
-------------------------------------------------------------------------------------------------

(N, 1, 28, 28) -> (N, 10)
61,706 parameters, 241 KiB of float32

                                  N = 1     N = 32    N = 256
flops forward                     852 k     27.3 M      218 M
kept for backward              41.6 KiB   1.30 MiB   10.4 MiB
training step, peak             540 KiB   2.29 MiB   15.0 MiB
training step, nothing freed    605 KiB   4.32 MiB   31.3 MiB

In the table, bytes and flops are for N = 1.
Optimizer state is not included."""


def faulty():
    x = Input(name="x").node()
    wrong = Linear(7, 2, name="wrong")(x)
    return Graph(x, [Add(name="sum")(wrong, Relu(name="relu")(x)), Conv2D(3, 2, 3, name="conv")(x)])


def test_the_table_of_lenet():
    assert summary(lenet(), ("N", 1, 28, 28)) == LENET


@pytest.mark.parametrize("make, shape", [(resnet50, ("N", 3, 224, 224)), (lenet, ("N", 1, 28, 28)), (faulty, ("N", 3))])
def test_no_line_is_wider_than_asked_for(make, shape):
    found = Footprint(make(), shape)
    for width in (120, 100, 80, 60, 40):
        lines = render(found, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("node")
        assert "data shape" in lines[0]


def test_columns_left_out_are_named():
    text = summary(lenet(), ("N", 1, 28, 28), width=80)
    assert "not shown in 80 columns: gradient shape\n" in text
    assert "pool1  MaxPool2D(2)             relu1  (N, 6, 14, 14)           9.19 KiB  4.70 k" in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_columns_that_show_the_graph_are_left_out_last(width):
    assert summary(lenet(), ("N", 1, 28, 28), width=width).split("\n")[0].split()[-1] != "from"
    first = summary(lenet(), ("N", 1, 28, 28), width=width).split("\n")[0]
    assert ("from" in first) >= ("module" in first) >= ("flops" in first) >= ("gradient" in first)


def test_a_narrow_table_cuts_no_number_and_no_remark():
    text = summary(lenet(), ("N", 1, 28, 28), width=44)
    total = text[text.index("61,706 parameters") :]
    assert "..." not in total and "N = 1 " not in total.replace("N = 1\n", "")
    assert "training step, nothing freed    605 KiB\n" in total
    assert "\nOptimizer state is not included." in total
    assert "not shown in 44 columns: gradient shape,\n" in text


def test_numbers_without_symbols_have_one_column():
    text = summary(Sequential(Linear(8, 3)), (4, 8))
    assert "kept for backward              128 B\n" in text
    assert "N = 1" not in text


def test_in_eval_mode_the_overview_says_why_it_knows_no_training_step():
    net = Sequential(Linear(3, 4), Relu(), Linear(4, 2)).evalMode()
    asleep = str(summary(net, (8, 3)))
    assert "In evalMode, as after training." in asleep and "kept for backward" not in asleep
    assert "kept for backward" in str(summary(net.trainMode(), (8, 3)))
    assert "kept for backward" in str(summary(Sequential(Relu()).evalMode(), (8, 3)))
    assert "In evalMode" not in str(summary(net.freeze(), (8, 3)))  # which trainMode would not change


def test_sizes_of_several_symbols_are_shown_while_they_read_well():
    net = Sequential(Conv2D(3, 8, 3), Relu(), Conv2D(8, 8, 3, stride=2), GlobalAvgPool(), Linear(8, 3))
    text = summary(net, ("N", 3, "H", "W"))
    assert "(N, 8, (H - 1)//2 - 1, (W - 1)//2 - 1)" in text
    assert "12*N B" in text
    assert "..." in text
    assert "Give N, H, W sizes to see what a training step takes." in text


def test_every_fault_is_told_in_full():
    text = summary(faulty(), ("N", 3))
    assert text.count("DOES NOT FIT") == 2
    assert "2 nodes do not fit their inputs:" in text
    assert "  wrong (Linear)\n    wanted  (..., 7)\n    got     (N, 3) from 'x'\n" in text
    assert "  conv (Conv2D)\n" in text
    assert re.search(r"^sum +Add +wrong, relu +unknown$", text, re.M)
    assert "(N, 3) -> unknown" in text


def test_faults_are_red_where_there_are_colours_and_only_there():
    found = Footprint(faulty(), ("N", 3))
    assert "\x1b" not in render(found)
    red = re.findall(r"\x1b\[1;31m(.*?)\x1b\[0m", render(found, color=True))
    assert [line.split()[0] for line in red] == ["wrong", "conv", "2", "wrong", "conv"]
    assert re.sub(r"\x1b\[[\d;]*m", "", render(found, color=True)) == render(found)


def test_sources_are_named_as_seen_from_their_neighbours():
    block = Sequential(Linear(3, 3, name="fc"), Relu(name="relu"), name="block")
    text = summary(Sequential(Identity(name="start"), block, Relu(name="end")), ("N", 3))
    assert re.search(r"^start +Identity +\(input\) ", text, re.M)
    assert re.search(r"^block.fc +Linear\(3, 3\) +start ", text, re.M)
    assert re.search(r"^block.relu +Relu +fc ", text, re.M)
    assert re.search(r"^end +Relu +block.relu ", text, re.M)


def encoder():
    return Sequential(Linear(8, 16, name="words"), TransformerEncoderLayer(16, 4, 32, name="encoder"), Relu(name="end"))


def test_a_block_is_one_line_with_its_totals_and_unfolds_by_depth():
    net = encoder()
    text = summary(net, ("N", 5, 8), depth=0)
    totals = sum(param.size for param in net["encoder"].params.values())
    assert re.search(rf"^encoder +TransformerEncoderLayer +words +\(N, 5, 16\) +\(N, 5, 16\) +{totals:,} ", text, re.M)
    assert re.search(r"^end +Relu +encoder +\(N, 5, 16\)", text, re.M)
    deeper = summary(net, ("N", 5, 8), depth=1)
    assert re.search(r"^encoder.attn +MultiHeadAttention +words ", deeper, re.M) and "encoder.attn.qkv" not in deeper
    assert text != deeper != summary(net, ("N", 5, 8), depth=2) == summary(net, ("N", 5, 8))


def test_lines_of_every_depth_have_the_totals_of_the_graph():
    found = Footprint(encoder(), ("N", 5, 8))
    for depth in range(3):
        lines = collapsedLines(found, depth)
        assert sum(line.params for line in lines) == found.params
        assert sum(line.flops for line in lines) == found.flops


def test_a_faulty_node_marks_the_line_of_its_graph():
    inner = Sequential(Linear(7, 2, name="fc"), name="inner")
    text = summary(Sequential(Relu(name="relu"), inner), ("N", 3), depth=0)
    assert re.search(r"^inner +Sequential +relu +DOES NOT FIT", text, re.M) and "inner.fc (Linear)" in text


def test_a_block_keeps_its_name_in_copies_and_blueprints():
    net = encoder()
    for again in (net, copy.deepcopy(net), fromBlueprint(toBlueprint(net))):
        assert repr(again["encoder"]).startswith("<TransformerEncoderLayer 'encoder': ")


def test_a_graph_of_several_outputs_is_one_line_with_the_shapes_of_all():
    layers = RecurrentLayers("LSTM", 3, 4, layers=2, states=True, name="layers")
    x = Input(("N", "T", 3), name="x").node()
    line = collapsedLines(Footprint(Graph(x, layers.node(x)), ("N", "T", 3)), 0)[-1]
    assert line.shapes == layers.dataShapeFrom(("N", "T", 3)) and line.source == ["x"]


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (99_949, "99.9 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),
        (10**21, "1000 E"),
    ],
)
def test_counts_have_three_digits(number, text):
    assert countText(number) == text


@pytest.mark.parametrize(
    "number, text", [(1, "1 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1.00 KiB"), (10 * 1024**3, "10.0 GiB")]
)
def test_bytes_have_three_digits(number, text):
    assert bytesText(number) == text


def test_without_shapes_the_overview_takes_those_that_the_inputs_declare():
    x = Input(("N", 3)).node()
    net = Graph(x, Linear(3, 4)(x))
    assert str(summary(net)) == str(summary(net, ("N", 3)))
    words = r"summary: wanted a shape for each input \(linear\), such as summary\(net, \('N', 3\)\), got none"
    with pytest.raises(ArgumentError, match=words):
        summary(Sequential(Linear(3, 4)))
