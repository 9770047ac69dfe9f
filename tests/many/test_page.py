"""The page about several processes: its script ends alike on one and on three of them."""

import subprocess
import sys

import pytest
from launched import launched
from pages import ROOT, blocks
from processes import environment


@pytest.mark.mpi
def test_the_script_of_the_page_ends_alike_on_one_and_three_processes(tmp_path):
    text = (ROOT / "docs" / "many.md").read_text(encoding="utf-8")
    script = next(block.text for block in blocks(text) if block.text.startswith("# train.py"))
    given = environment(PUREGRAPH_DEVICE="cpu")
    alone = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, timeout=100)
    hashes = {alone.stdout.splitlines()[-1]}
    done = launched(3, tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 3/3") == 1
    hashes |= {line for line in done.stdout.splitlines() if not line.startswith("epoch")}
    assert len(hashes) == 1, hashes
