"""Pictures of backward graphs, of graphs with their backward pass, of programs, and of the memory of a program."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from picturefile import PictureFile

import puregraph as pg
from puregraph import models
from puregraph.autodiff import ForwardGraph, Variable, add_backward_pass


def tidy(drawing):
    """The file of a drawing on which nothing lies on anything else."""
    file = PictureFile(drawing.svg())
    assert set(file.boxes) == {box.name for box in drawing.picture.boxes}
    for found in (file.labelsOnLabels, file.labelsOnBoxes, file.linesThroughBoxes, file.boxesOnBoxes, file.outside):
        assert found() == []
    return file


def training():
    """The training step of LeNet."""
    return models.lenet().compile([(8, 1, 28, 28), (8,)], cost=pg.CrossEntropy(), optimizer=pg.Adam())


@pytest.mark.parametrize("name", ["lenet", "resnet50", "gpt2", "unet"])
def test_backward_graphs_are_as_tidy(name):
    shape = {"gpt2": ("N", 64), "lenet": ("N", 1, 28, 28), "resnet50": ("N", 3, 224, 224), "unet": (1, 1, 64, 64)}[name]
    net = models.unet(depth=3) if name == "unet" else getattr(models, name)()
    drawing = net.backwardGraph().draw(None, shape)
    file = tidy(drawing)
    assert {box.kind for box in drawing.whole.boxes} >= {"input", "gradient"}
    assert name not in ("lenet", "gpt2") or file.crossings() == 0  # as Graphviz makes


def test_what_a_gradient_keeps_of_the_forward_pass_stands_in_its_box():
    drawing = models.lenet().backwardGraph().draw(None, ("N", 1, 28, 28))
    boxes = {box.name: box for box in drawing.picture.boxes}
    assert boxes["grad:conv2"].lines[:3] == ("gradient of Conv2D(6, 16, 5, pad=0)", "keeps x, W", "gives dW, db")
    assert boxes["grad:conv2"].matches == "conv2" and boxes["grad:conv2"].kind == "gradient"
    assert [box.name for box in drawing.picture.boxes if box.kind in ("input", "output")] == ["input d:fc3", "output 0"]


def test_equal_blocks_of_a_backward_graph_are_drawn_once():
    drawing = models.gpt2().backwardGraph().draw(None, ("N", 64))
    assert max(group.repeats for group in drawing.picture.groups.values()) == 11  # the last one begins otherwise


def test_the_page_of_a_backward_graph_shows_its_forward_graph_beside_it():
    text = models.lenet().backwardGraph().draw(None, ("N", 1, 28, 28)).html()
    assert text.count('<div class="pane">') == 2
    assert '"grad:conv2": "conv2"' in text


def test_a_graph_with_its_backward_pass_is_drawn_with_what_is_kept_dotted():
    x = pg.Input((4, 3), name="x").node()
    net = pg.Graph(x, pg.Sum(name="total")(pg.Tanh(name="act")(pg.Linear(3, 2, name="fc")(x))))
    joint = add_backward_pass(net, ["total"], ["x", "fc.W"])
    drawing = joint.draw()
    tidy(drawing)
    kinds = {edge.kind for edge in drawing.picture.edges}
    assert "kept" in kinds and "gradient" in {box.kind for box in drawing.picture.boxes}
    assert '<g class="edge kept"' in drawing.svg()
    assert not any("value:" in box.name for box in drawing.picture.boxes)  # parameters have no boxes


def test_a_program_is_drawn_with_what_each_step_does_takes_and_is_carried_out_by(tmp_path):
    program = training()
    drawing = program.draw(tmp_path / "step.svg", heat="flops")
    file = tidy(drawing)
    boxes = {box.title: box for box in drawing.picture.boxes}
    conv = next(box for title, box in boxes.items() if "lenet.relu1" in title)
    assert "relu1 = relu(convolve(image, W) + b)" in conv.lines and "FLOP" in conv.lines[-1]
    assert {"input", "output", "gradient", "update", "module"} <= {box.kind for box in drawing.picture.boxes}
    assert sum(element.get("class") == "heat" for element in file.root.iter()) > 10
    calls = [call for call in program.plan.schedule.calls if not call.kind.isView]
    assert drawing.picture.notes[0].startswith(f"{len(calls)} steps, ")
    assert (tmp_path / "step.svg").read_text() == drawing.svg()


def test_a_program_without_a_path_is_text_for_graphviz():
    text = training().draw()
    assert text.startswith("digraph {") and text.count("{") == text.count("}")


def test_a_program_that_is_not_compiled_says_why_it_is_not_drawn(tmp_path):
    program = pg.Sequential(pg.NonZero(), name="found").compile([(2, 3)], train=False)
    with pytest.raises(pg.PuregraphError, match="not compiled"):
        program.draw(tmp_path / "step.svg")


def test_the_arena_is_drawn_as_lifetimes_against_offsets_that_do_not_meet(tmp_path):
    program = training()
    program.plot(tmp_path / "arena.svg")
    text = (tmp_path / "arena.svg").read_text()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    areas = []
    for group in root.iter(f"{space}g"):
        rect = group.find(f"{space}rect")
        x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert w > 0 and group.find(f"{space}title").text
        areas.append((x, y, x + w, y + h))
    assert len(areas) == len(program.plan.buffers)
    for i, a in enumerate(areas):
        for b in areas[:i]:
            wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert min(wide, high) < 0.25, "two buffers in use at once share memory"
    assert re.search(r"\d+ buffers over \d+ steps", text)
    program.plot(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text
    with pytest.raises(pg.ArgumentError, match="ends in .svg, .png"):
        program.plot(tmp_path / "arena.html")


def test_the_programs_of_larger_networks_are_drawn(tmp_path):
    net = models.resnet20()
    program = net.compile([(2, 3, 32, 32)], train=False)
    drawing = program.draw(tmp_path / "step.svg")
    assert PictureFile(drawing.svg()).boxesOnBoxes() == []
    program.run(np.zeros((2, 3, 32, 32), np.float32))
    program.plot(tmp_path / "arena.svg")


def test_graphs_of_callables_are_drawn():
    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, np.tanh, in_arg=0)
    graph.add_node(np.tanh, "say <tanh>")
    graph.add_connection(np.tanh, pg.Relu(name="r"), graph.OUTPUT)
    drawing = graph.draw()
    file = tidy(drawing)
    assert set(file.boxes) == {"INPUT", "say <tanh>", "OUTPUT", "r"}
    assert {box.kind for box in drawing.picture.boxes} == {"input", "module", "output"}
    assert [text for text, _ in file.labels] == ["[0] -> []"]
    assert graph._repr_html_().startswith("<img ")


def test_the_tape_of_a_variable_is_drawn(tmp_path):
    x = Variable(np.ones((2, 3)), requires_grad=True)
    y = (x * x + x).sum()
    drawing = y.grad_fn.draw(tmp_path / "tape.svg")
    file = tidy(drawing)
    assert len(file.boxes) == 4 and sum("AccumulateGrad" in name for name in file.boxes) == 1
    assert len(file.lines) == 5  # of sum, of both sides of +, twice of x * x
    assert (tmp_path / "tape.svg").read_text() == y.grad_fn.draw().svg()
