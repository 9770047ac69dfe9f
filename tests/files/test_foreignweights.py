"""Damaged and forged weight files: each is read or refused within its limits and opens nothing but itself."""

import os

import badweights
import limited
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

START, COUNT, DAILY = int(os.environ.get("PUREGRAPH_TEST_FIRST", 0)), 3000, 300


def check(cases, folder):
    """Read files of {name: (file name, bytes or function)} one after the other in watched processes."""
    path = folder / "here"
    path.mkdir()
    (folder / "secret").write_bytes(b"secret")
    for name, data in badweights.goodFiles().items():
        (path / name).write_bytes(data)
        badweights.readAll(path / name)  # which must be sound, and imports what it takes

    def write(item):
        for other in path.iterdir():
            other.unlink()
        name, data = item
        (path / name).write_bytes(data() if callable(data) else data)
        return path / name

    names = {path / name for name, _ in cases.values()}
    results = limited.outcomes(badweights.readAll, list(cases.values()), names, write)
    limited.check(cases, results)
    return [result.text for result in results]


def damaged(seeds, folder):
    """Check the damaged files of some seeds, of which many must be refused."""
    texts = check({f"weights {seed}": badweights.badFile(seed) for seed in seeds}, folder)
    assert texts.count("refused") > len(texts) / 4


@pytest.mark.costly
def test_damaged_files_are_read_or_refused_within_their_limits(tmp_path):
    damaged(range(DAILY), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_3000_damaged_files_are_read_or_refused_within_their_limits(tmp_path):
    """PUREGRAPH_TEST_FIRST is the first seed."""
    damaged(range(START, START + COUNT), tmp_path)


@pytest.mark.costly
def test_forged_files_are_read_or_refused_within_their_limits(tmp_path):
    cases = {name: (f"forged{suffix}", data) for name, (suffix, data) in badweights.forgedFiles().items()}
    assert len(cases) >= 150
    texts = check(cases, tmp_path)
    assert texts.count("refused") > len(texts) / 2
