"""Files that are damaged at random: each is read or refused within two seconds and 200 MB, and opens itself alone."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL.Image")

import badfiles
import hostileonnx
import hostileoperators
import limited
from test_onnx_damaged import forms

from puregraph.onnx import fromOnnx

DAILY = 150
COUNT = int(os.environ.get("PUREGRAPH_TEST_GRAPHS", "10000"))
START = int(os.environ.get("PUREGRAPH_TEST_FIRST", str(DAILY)))
KINDS = ("models", "checkpoints", "data")


class BadFiles:
    """Writes and reads the damaged files of one kind, each in its turn under one of a few names."""

    def __init__(self, kind, folder, standard=()):
        self.kind, self.folder = kind, folder / "set" / "a"
        self.forms, self.standard = list(forms().values()) if kind == "models" else [], standard
        self.folder.mkdir(parents=True)
        self.names = {"models": ["net.onnx"], "checkpoints": ["net.h5"], "data": list(badfiles.READERS)}[kind]

    def file(self, seed):
        """The name of the file of a seed, its bytes, and what reads it."""
        if self.kind == "models":
            return "net.onnx", badfiles.modelFile(seed, self.forms, self.standard), badfiles.readModel
        if self.kind == "checkpoints":
            data, form = badfiles.checkpointFile(seed)
            return "net.h5", data, lambda path: badfiles.readCheckpoint(path, form)
        name, data = badfiles.dataFile(seed)
        return name, data, badfiles.READERS[name]

    def write(self, seed):
        """Write the file of a seed, and nothing else into its folder."""
        name, data, read = self.file(seed)
        for other in self.folder.iterdir():
            other.unlink()
        (self.folder / name).write_bytes(data)
        return self.folder / name, read

    def outcomes(self, seeds):
        """What becomes of the file of each seed."""
        for seed in seeds[:40]:  # imports what it takes
            path, read = self.write(seed)
            try:
                read(path)
            except Exception:  # seen again below
                pass
        return limited.outcomes(lambda made: made[1](made[0]), seeds, map(self.folder.joinpath, self.names), self.write)


def check(kind, seeds, folder, standard=()):
    """Read the files of some seeds; those that fail are kept in a folder."""
    files = BadFiles(kind, folder, standard)
    results = files.outcomes(seeds)
    for seed, result in zip(seeds, results, strict=True):
        if limited.fault(result):
            kept = Path(os.environ.get("PUREGRAPH_TEST_KEPT", folder)) / f"{kind}-{seed}-{files.file(seed)[0]}"
            kept.write_bytes(files.file(seed)[1])
            print(f"{kind} {seed}: {limited.fault(result)}", file=sys.stderr, flush=True)
    assert [result.text for result in results].count("refused") > len(seeds) / 10
    limited.check([f"{kind} {seed}" for seed in seeds], results)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_within_its_limits_and_opens_itself_alone(kind, tmp_path):
    check(kind, range(DAILY), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
def test_of_10000_damaged_files_each_is_read_or_refused_within_its_limits_and_opens_itself_alone(kind, tmp_path):
    """PUREGRAPH_TEST_GRAPHS sets how many, PUREGRAPH_TEST_FIRST the first seed, PUREGRAPH_TEST_KEPT where they stay."""
    check(kind, range(START, START + COUNT), tmp_path, badfiles.standardModels() if kind == "models" else ())


def checkForged(cases, folder):
    """Read forged models from files in a folder of their own."""
    path, makers = folder / "set" / "net.onnx", list(cases.values())
    path.parent.mkdir()
    (folder / "secret").write_bytes(b"secret")

    def write(make):
        path.write_bytes(make().SerializeToString())
        return path

    path.write_bytes(makers[0]().SerializeToString())
    for each in forms().values():
        fromOnnx(each)  # imports what it takes
    limited.check(cases, limited.outcomes(fromOnnx, makers, [path], write))


@pytest.mark.costly
@pytest.mark.parametrize("part", range(8))
def test_a_forged_model_is_read_or_refused_within_its_limits_and_opens_itself_alone(part, tmp_path):
    names = list(hostileoperators.CASES)[part::8]
    checkForged({name: hostileoperators.CASES[name] for name in names}, tmp_path)


def test_there_are_400_forged_models_of_different_kinds():
    assert len(hostileoperators.CASES) + len(hostileonnx.FILES) >= 400
