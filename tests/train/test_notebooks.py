"""In a notebook training shows a live line, and what cells end with is a table or a picture."""

import re
import sys

import pytest

SETUP = """
import numpy as np
from puregraph import Adam, CrossEntropy, Linear, Relu, Sequential, ShapeError, Trainer, summary

net = Sequential(Linear(4, 3, name="fc"), Relu(), Linear(3, 2))
trainer = Trainer(net, CrossEntropy(), Adam(1e-2), batchsize=4)
history = trainer.train(np.ones((8, 4), np.float32), np.zeros(8, int), epochs=2)
program = net.compile([(8, 4), (8,)], cost=CrossEntropy(), optimizer=Adam())
try:
    net.dataShapeFrom(("N", 5))
except ShapeError as error:
    fault = error
"""
CELLS = {
    "net": ("<img", "svg"),
    "net.nodes[0]": ("<table>", "Linear(4, 3"),
    "net.trainMode().backwardGraph()": ("<img", "svg"),
    "summary(net, ('N', 4))": ("<pre", "gradient shape"),
    "history": ("<table>", "loss"),
    "program": ("<pre", "fc"),
    "fault": ("<table>", "wanted"),
}


@pytest.fixture(scope="module")
def outputs():
    """What a notebook of these cells shows: one list of outputs a cell."""
    nbformat = pytest.importorskip("nbformat", reason="the extra puregraph[notebook] brings nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (SETUP, *CELLS)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": sys.version, "language": "python"}
    nbclient.NotebookClient(book, timeout=120).execute()
    return [cell.outputs for cell in book.cells]


def test_the_outputs_of_cells_are_tables_and_pictures(outputs):
    for (code, wanted), shown in zip(CELLS.items(), outputs[1:], strict=True):
        (output,) = shown
        found = output.data["text/html"]
        assert all(part in found for part in wanted), code


def test_training_shows_a_line_for_each_epoch_and_leaves_no_live_line(outputs):
    text = "".join(output.text for output in outputs[0] if output.output_type == "stream" and output.name == "stdout")
    lines = [line for line in text.splitlines() if not line.startswith("compiling")]  # said where that takes a second
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    live = [output for output in outputs[0] if output.output_type == "display_data"]
    assert [output.data for output in live] == [{"text/html": ""}]


def test_an_error_shows_the_lines_of_the_cell_alone():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = "from puregraph import Linear\nLinear(4, 3).dataShapeFrom(('N', 5))"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": sys.version, "language": "python"}
    nbclient.NotebookClient(book, timeout=120, allow_errors=True).execute()
    (output,) = book.cells[0].outputs
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
    assert output.ename == "ShapeError"
    assert "dataShapeFrom(('N', 5))" in plain and "wanted (..., 4), got (N, 5)" in plain
    assert "module.py" not in plain and "frames within puregraph are not shown" in plain


def test_ctrl_c_shows_a_line_and_no_traceback():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = f"""{SETUP}
import signal
Trainer(net, CrossEntropy(), Adam(), batchsize=4, callbacks=[lambda trainer: signal.raise_signal(signal.SIGINT)]).train(
    np.ones((8, 4), np.float32), np.zeros(8, int))
"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": sys.version, "language": "python"}
    nbclient.NotebookClient(book, timeout=120, allow_errors=True).execute()
    (shown,) = [output for output in book.cells[0].outputs if output.output_type == "error"]
    assert shown.ename == "KeyboardInterrupt" and len(shown.traceback) == 1 and "File" not in shown.traceback[0]


def test_nothing_is_written_to_stderr(outputs):
    assert not [output for shown in outputs for output in shown if output.get("name") == "stderr"]


def test_a_live_line_is_shown_where_ipython_has_a_kernel(monkeypatch):
    import types

    from puregraph.train.callbacks.progress import Lines, NotebookLine, progressFrom

    fake = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert type(progressFrom("auto")) is NotebookLine
    fake.get_ipython = lambda: types.SimpleNamespace()  # IPython in a terminal or in a script
    assert type(progressFrom("auto")) is Lines


def test_the_live_line_says_epoch_position_and_cost(monkeypatch):
    import types

    import numpy as np

    from puregraph import MSE, SGD, Linear, Trainer
    from puregraph.train.callbacks.progress import NotebookLine

    shown = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=lambda *a, **k: handle))
    trainer = Trainer(Linear(4, 3), MSE(), SGD(), batchsize=4, progress=NotebookLine())
    trainer.train(np.ones((8, 4), np.float32), np.ones((8, 3), np.float32))
    assert shown[0]["text/plain"].startswith("epoch 1/1  0/2") and shown[-1] == {"text/html": ""}
    assert any("2/2" in data.get("text/plain", "") and "loss" in data["text/plain"] for data in shown[:-1])
