"""Lines cross at most a fifth more often than in what Graphviz makes of the same boxes and edges."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from picturefile import PictureFile
from picturenets import NETS

import puregraph as pg
from puregraph import models
from puregraph.draw.layout.ordering import crossings

MOST = 1.2


def network(name):
    """The picture of one of the networks."""
    graph, shapes = NETS[name]()
    return graph.draw(None, *shapes)


def step(net, *shapes, path):
    """The picture of a training step."""
    return net.compile(list(shapes), cost=pg.CrossEntropy(), optimizer=pg.Adam()).draw(path)


def densenet():
    """The picture of an ONNX model of 1,746 nodes."""
    onnx = pytest.importorskip("onnx")
    from puregraph.onnx import fromOnnx

    file = Path(onnx.__file__).parent / "backend/test/data/light/light_densenet121.onnx"
    return fromOnnx(file).draw(None, (1, 3, 224, 224))


STEPS = {
    "step of lenet": (lambda path: step(models.lenet(), (8, 1, 28, 28), (8,), path=path), 6),
    "step of mlp": (lambda path: step(models.mlp(64, (32, 16), 10), (8, 64), (8,), path=path), 5),
    "step of lstm": (lambda path: step(models.lstm(4, 8, 1, 3), (8, 5, 4), (8,), path=path), 11),
}
OTHERS = {
    **{name: (lambda path, name=name: network(name), 0) for name in NETS},
    "backward": (lambda path: models.lenet().backwardGraph().draw(None, ("N", 1, 28, 28)), 0),
    "step of lenet with norms": (
        lambda path: step(models.lenet(norm=True, dropout=0.1), (8, 1, 28, 28), (8,), path=path),
        12,
    ),
    "densenet": (lambda path: densenet(), 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_lines_of_a_training_step_cross_about_as_often_as_graphvizs(name, tmp_path):
    draw, graphvizs = STEPS[name]
    assert PictureFile(draw(tmp_path / "step.svg").svg()).crossings() <= MOST * graphvizs


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS | OTHERS)
def test_graphviz_makes_as_many_crossings_as_are_written_here(name, tmp_path):
    dot = shutil.which("dot") or pytest.skip("Graphviz is not installed")
    draw, graphvizs = (STEPS | OTHERS)[name]
    drawing = draw(tmp_path / "step.svg")
    told = subprocess.run([dot, "-v", "-Tplain"], input=drawing.dot(), capture_output=True, text=True).stderr
    assert sum(map(int, re.findall(r"^mincross .*: (\d+) crossings", told, re.M))) == graphvizs
    assert PictureFile(drawing.svg()).crossings() <= MOST * graphvizs


def test_lines_of_one_box_cross_no_other_of_it():
    asked = [{"source": 0}, {"source": 0}, {"source": 1}]
    corners = ([(0, 0), (0, 9)], [(-5, 3), (5, 3)], [(-5, 6), (5, 6)])
    drawn = [{"points": [{"x": float(x), "y": float(y)} for x, y in line]} for line in corners]
    assert crossings(asked, drawn) == 1
    assert crossings([], []) == 0
