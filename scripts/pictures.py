"""The pictures of docs/pictures.md, drawn anew: `python scripts/pictures.py`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))

from picturenets import NETS  # noqa: E402

import puregraph as pg  # noqa: E402
from puregraph import models  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
SHOWN = {"lenet": {}, "unet": {"depth": 0}, "gpt2": {}, "lengths": {}, "faulty": {}}


def drawings():
    """Each picture of a graph by the name of its file."""
    for name, options in SHOWN.items():
        graph, shapes = NETS[name]()
        yield name, graph.draw(None, *shapes, **options)
    yield "backward", models.lenet().backwardGraph().draw(None, ("N", 1, 28, 28))


def main():
    """Write all of them; those of a program too, which depend on the machine."""
    for name, drawing in drawings():
        drawing.save(FOLDER / f"{name}.svg")
    step = models.lenet().compile([(8, 1, 28, 28), (8,)], cost=pg.CrossEntropy(), optimizer=pg.Adam())
    step.draw(FOLDER / "step.svg", heat="flops")
    step.plot(FOLDER / "arena.svg")


if __name__ == "__main__":
    main()
