"""The notebooks of examples/ run in a kernel: what their cells show are pictures and tables, and nothing is left over."""

import re

import pytest
from source import ROOT

NOTEBOOKS = ROOT / "examples" / "notebooks"
RESULTS = {  # what the last cell that prints prints
    "autoencoder": None,  # it ends with pictures
    "churn": r"\[0\.[89]\d* +0\.[01]\d*\]",
    "letters": "to be or not to be that is the question",
    "sequences": "True",
    "twoinputs": r"(9\d|100)% of the forms are right",
}


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Run a notebook in a folder and a kernel of its own: its code cells, with their outputs."""
    nbformat = pytest.importorskip("nbformat", reason="the extra puregraph[notebook] brings nbclient and ipykernel")
    client = pytest.importorskip("nbclient", reason="the extra puregraph[notebook] brings nbclient and ipykernel")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))

    def run(name):
        book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        options = {"timeout": 600, "startup_timeout": 600, "resources": {"metadata": {"path": str(tmp_path)}}}
        client.NotebookClient(book, kernel_name="python3", **options).execute()
        return [cell for cell in book.cells if cell.cell_type == "code"]

    return run


def shown(cell, kind):
    """The outputs of a cell of one kind."""
    return [output for output in cell.outputs if output.output_type == kind]


def test_every_notebook_is_listed_here_and_has_no_output_in_the_repository():
    assert sorted(path.stem for path in NOTEBOOKS.glob("*")) == sorted(RESULTS)
    for path in NOTEBOOKS.glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert '"output_type"' not in text and re.findall(r'"execution_count": (?!null)', text) == [], path.name


@pytest.mark.parametrize("name", [each if each == "sequences" else pytest.param(each, marks=pytest.mark.slow) for each in RESULTS])  # fmt: skip
def test_a_notebook_shows_pictures_and_tables(execute, name):
    cells = execute(name)
    streams = [output for cell in cells for output in shown(cell, "stream")]
    assert [output.text for output in streams if output.name == "stderr"] == []
    results = [output.data for cell in cells for output in shown(cell, "execute_result")]
    assert len(results) >= 3 and [data["text/plain"] for data in results if not data.get("text/html")] == []
    (training,) = [cell for cell in cells if ".train(" in cell.source]
    assert shown(training, "execute_result") == []  # the lines of the epochs, and no table of them once more
    assert [output.data for output in shown(training, "display_data")] == [{"text/html": ""}]  # the live line is gone
    assert re.search(r"^epoch +1/\d+  loss ", "".join(output.text for output in shown(training, "stream")), re.M)
    assert RESULTS[name] is None or re.search(RESULTS[name], streams[-1].text)
