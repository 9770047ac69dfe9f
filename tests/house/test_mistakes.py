"""Mistakes of users, thousands of them: each is refused with a sentence that says what was wanted, or is right."""

import re
from functools import cache

import mistakes
import pytest
from source import ROOT

ADVISES = re.compile(r"wanted|must|give|make|convert|pass it|there is no|has no|nothing|more than")
OTHERWISE = {  # what an argument is called in the messages about it
    "text": "expression|number|formula",
    "parents": "parent",
    "inputs": "input",
    "outputs": "output",
    "index": "module",
    "moduleType": "class of a module",
    "validation": "batch|data|target",
    "data": "arrays|batch",
    "x": "arrays|input",
    "labels": "arrays|label",
    "target": "arrays|target",
    "gradShape": "gradient",
    "slc": "axis",
    "cost": "input",
    "train": "input",
    "grad": "gradient",
    "path": "cannot load",
}


@cache
def told():
    """The tables of the page by the callable they are about."""
    text = (ROOT / "tests" / "house" / "refusals.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    return {owner: table.strip().split("\n")[2:] for owner, table in zip(parts[1::2], parts[2::2])}


@pytest.mark.parametrize("owner", mistakes.owners())
def test_a_wrong_argument_is_refused_in_a_sentence_or_is_right(owner):
    if owner == "TensorBoard":
        pytest.importorskip("tensorboardX")
    found = mistakes.of(owner)
    for each in found:
        if each.error is None:
            continue
        assert mistakes.isOurs(each.error), f"{each}: an error that is not puregraph's"
        assert ADVISES.search(each.message), f"{each}: it does not say what was wanted"
        names = rf"{each.argument}|{OTHERWISE.get(each.argument, each.argument)}|{owner}|wanted \(|wanted a"
        assert re.search(names, each.message, re.I), f"{each}: it does not name the argument"
    assert list(mistakes.rows(found)) == told()[owner], "run python scripts/refusals.py, and read what changed"


def test_the_page_tells_of_every_callable_that_is_tried():
    assert list(told()) == mistakes.owners()


def test_thousands_of_mistakes_are_tried():
    arguments = sum(len(table) for table in told().values())
    assert arguments * len(mistakes.WRONG) > 4000
