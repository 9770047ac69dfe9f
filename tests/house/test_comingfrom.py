"""What the tables of docs/comingfrom.md say can be written, there and here."""

import re

import pytest
from pages import ROOT

import puregraph
from puregraph import Linear, Sequential, autodiff

TEXT = (ROOT / "docs" / "comingfrom.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.+?) \| (.+) \|$", TEXT, re.M)


def codes(cell):
    """The pieces of code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_what_is_made_in_the_right_columns_can_be_made():
    space = {name: getattr(puregraph, name) for name in puregraph.__all__}
    space |= {
        "net": Sequential(Linear(4, 16, name="fc"), Linear(16, 2)),
        "cost": puregraph.MSE(),
        "inputs": [],
        "outputs": [],
    }
    made = 0
    for _, right in ROWS:
        for code in codes(right):
            isWhole = "..." not in code and not re.search(
                r"[a-z]\)|\(a, b\)|\.(train|calculate|validate)\(|inputs", code
            )
            if re.match(r"[A-Z]\w+\(", code) and isWhole:
                eval(code, space)
                made += 1
    assert made > 30, made


def test_names_of_the_right_columns_exist():
    known = {*puregraph.__all__, *autodiff.__all__}
    calls = {name for _, right in ROWS for code in codes(right) for name in re.findall(r"(?<![\w.])([A-Z]\w+)\(", code)}
    assert calls <= known, sorted(calls - known)


@pytest.mark.peers
def test_what_is_made_in_the_column_of_pytorch_can_be_made():
    torch = pytest.importorskip("torch")
    space = {"nn": torch.nn, "torch": torch, "params": list(torch.nn.Linear(2, 2).parameters())}
    found = [code for left, _ in ROWS for code in codes(left) if code.startswith(("nn.", "torch.optim."))]
    for code in found:
        eval(code, space)
    assert len(found) > 20
