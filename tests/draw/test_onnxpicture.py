"""The picture of a network that another program wrote: flat, long, and without a crossing."""

from pathlib import Path

import pytest
from picturefile import PictureFile

onnx = pytest.importorskip("onnx")

from puregraph.onnx import fromOnnx  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.mark.slow
def test_a_densenet_of_1746_onnx_nodes_is_drawn_narrow_and_without_a_crossing():
    net = fromOnnx(LIGHT / "light_densenet121.onnx")
    drawing = net.draw(None, (1, 3, 224, 224))
    file = PictureFile(drawing.svg())
    assert len(file.boxes) == len(drawing.whole.boxes) > 900
    assert file.width < 1000 and file.crossings() == 0
    for found in (file.labelsOnLabels, file.labelsOnBoxes, file.linesThroughBoxes, file.boxesOnBoxes, file.outside):
        assert found() == []
    assert len(drawing.html()) < 2_000_000
