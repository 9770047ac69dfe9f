"""The page about PyTorch: its blocks run, and print what it shows."""

import contextlib
import io
import re

import pytest
from pages import ROOT

pytestmark = [pytest.mark.peers, pytest.mark.costly]


def test_the_blocks_of_the_page_print_what_it_shows():
    pytest.importorskip("torch")
    text = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python no-run\n(.*?)```", text, re.S)
    shown = "".join(re.findall(r"```text\n(.*?)```", text, re.S))
    printed, space = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, space)
    assert len(blocks) == 3 and printed.getvalue() == shown
