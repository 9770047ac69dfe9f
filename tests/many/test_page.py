"""The page about several processes: its script ends alike on one and on three of them."""

import pytest
from pages import ROOT, blocks
from rankpool import ran, ranAlone


@pytest.mark.mpi
def test_the_script_of_the_page_ends_alike_on_one_and_three_processes(tmp_path):
    text = (ROOT / "docs" / "many.md").read_text(encoding="utf-8")
    script = next(block.text for block in blocks(text) if block.text.startswith("# train.py"))
    alone, done = (run(3, tmp_path, script) for run in (ranAlone, ran))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 3/3") == alone.stdout.count("epoch 3/3") == 1
    hashes = [line for each in (alone, done) for line in each.stdout.splitlines() if not line.startswith("epoch")]
    assert len(hashes) == 4 and len(set(hashes)) == 1, hashes
