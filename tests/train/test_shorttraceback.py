"""An error of puregraph that nobody catches shows the lines of the user; whoever catches it sees every frame."""

import statistics
import subprocess
import sys
import traceback

import numpy as np
import pytest

import puregraph as pg
from puregraph import MSE, SGD, Adam, CrossEntropy, Graph, Input, Linear, Relu, Sequential, Trainer
from puregraph.core.errors.shorttraceback import PACKAGE, chain, shortened

X, Y = np.ones((8, 5), "f4"), np.zeros((8, 3), "f4")


def net():
    return Sequential(Relu(), Linear(4, 3, name="fc"))


MISTAKES = {
    "data that does not fit": lambda: net()(X),
    "shapes that do not fit": lambda: net().dataShapeFrom(("N", 5)),
    "a wrong size": lambda: Linear(4, "3"),
    "an unknown argument": lambda: Linear(4, 3, bias=False),
    "a graph without its input": lambda: Graph(Input(name="x").node(), Linear(3, 2).node(Input(name="y").node())),
    "training on data that does not fit": lambda: Trainer(net(), MSE(), SGD(0.1), progress="none").train(X, Y),
    "a wrong optimizer": lambda: Trainer(net(), MSE(), "adam"),
    "labels out of range": lambda: Trainer(net(), CrossEntropy(), Adam(), progress="none").train(X[:, :4], Y[:, 0] + 9),
    "a file that is not there": lambda: pg.load("nothing.h5"),
    "a formula that cannot be read": lambda: pg.Pointwise(formula="x +* 2"),
    "compiling for shapes that do not fit": lambda: net().compile([(8, 5)], train=False),
    "backward without forward": lambda: net().backward(Y),
}


def frames(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def caught(mistake):
    with pytest.raises(pg.PuregraphError) as found:
        mistake()
    return found.value


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_shown_of_a_mistake_are_lines_of_the_user(name):
    error = caught(MISTAKES[name])
    before = frames(error)
    with shortened(error) as left:
        shown = frames(error)
    assert shown and not any(name.startswith(PACKAGE) for name in shown)
    assert left >= len(before) - len(shown) > 0
    assert frames(error) == before, "whoever catches an error sees every frame"


def test_a_traceback_has_at_most_three_frames_in_the_median():
    depths = []
    for mistake in MISTAKES.values():
        error = caught(mistake)
        with shortened(error):
            depths.append(len(frames(error)))
    assert statistics.median(depths) <= 3  # of the test: caught, and the mistake itself


def test_frames_of_a_users_own_module_are_shown():
    class Own(pg.Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return self.helped(x)

        def helped(self, x):
            raise pg.DataError("wanted more, got less")

    error = caught(lambda: Own()(X))
    with shortened(error):
        named = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert named[-2:] == ["updateData", "helped"]


def test_the_error_that_another_came_from_is_shortened_too():
    def mistake():
        try:
            Linear(4, "3")
        except pg.PuregraphError as error:
            raise pg.DataError("given up") from error

    error = caught(mistake)
    with shortened(error):
        assert not any(name.startswith(PACKAGE) for name in frames(error.__cause__))
    assert any(name.startswith(PACKAGE) for name in frames(error.__cause__))


SCRIPT = """
from puregraph import Linear, Sequential

def build():
    return Sequential(Linear(4, 3, name="fc")).dataShapeFrom(("N", 5))

build()
"""


@pytest.mark.parametrize("wanted", ["", "1"])
def test_a_script_shows_its_own_lines_and_how_to_see_the_rest(wanted, tmp_path, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_TRACEBACK", wanted)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    files = [line.split('"')[1] for line in found.stderr.splitlines() if line.startswith("  File ")]
    assert found.returncode == 1 and found.stdout == "" and "puregraph.core.errors.ShapeError: at " in found.stderr
    if wanted:
        assert len(files) > 2 and "not shown" not in found.stderr
    else:
        assert files == [str(script)] * 2
        assert "frames within puregraph are not shown: PUREGRAPH_TRACEBACK=1 shows them" in found.stderr


def test_errors_of_others_are_shown_as_ever(tmp_path):
    script = tmp_path / "script.py"
    other = "import puregraph\ntry:\n    puregraph.Linear(4, '3')\nexcept puregraph.PuregraphError:\n    pass\n1 / 0\n"
    script.write_text(other, encoding="utf-8")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert "ZeroDivisionError" in found.stderr and "not shown" not in found.stderr


class EqualError(Exception):
    """An error that equals any other, as errors do that are dataclasses without fields."""

    def __eq__(self, other):
        return True

    __hash__ = Exception.__hash__


def test_errors_that_are_equal_are_each_shortened():
    first, second = EqualError("first"), EqualError("second")
    second.__cause__ = first
    assert [id(each) for each in chain(second)] == [id(second), id(first)]
    first.__cause__ = second  # a circle ends
    assert len(chain(second)) == 2


def test_an_error_that_came_from_within_alone_is_not_shown():
    error = caught(MISTAKES["a file that is not there"])
    cause = error.__cause__
    with shortened(error) as left:
        assert chain(error) == [error] and left >= len(frames(cause))
    assert error.__cause__ is cause and chain(error) == [error, cause]


def test_an_error_that_came_from_a_users_line_is_shown():
    class Own(pg.Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x[10]

    with pytest.raises(IndexError) as found:
        Own()(X)
    error = pg.DataError("given up")
    error.__cause__ = found.value.with_traceback(found.value.__traceback__.tb_next)  # as if puregraph had caught it
    with shortened(error):
        assert chain(error) == [error, found.value]


def test_in_a_notebook_ctrl_c_shows_a_line():
    from puregraph.train.interrupt import endQuietly

    error = KeyboardInterrupt()
    endQuietly(error, "stopped in epoch 1")
    assert error._render_traceback_() == ["stopped in epoch 1"]
