"""Every example runs in its small setting and says what it is there to say."""

import re
import runpy
import struct
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from exampleruns import runExample
from source import ROOT

import puregraph

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path):
    """Run an example in a folder of its own."""
    return partial(runExample, tmp_path)


@pytest.fixture
def clothes(tmp_path):
    """A folder with the four files of Fashion-MNIST in small: kind k is a bright bar in row 2 k."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 600), ("t10k", 300)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        images[np.arange(count), 2 * labels + 4] = 255
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (tmp_path / name).write_bytes(head + array.tobytes())
    return tmp_path


def test_every_example_is_tested_here():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*examples.py"))
    assert [p.name for p in EXAMPLES.glob("*.py") if f'"{p.name}"' not in text] == []


def test_digits_trains_saves_loads_and_reads_as_well(run, tmp_path):
    pytest.importorskip("sklearn")
    code, text = run("digits.py", "--small")
    assert code == 0
    assert text.startswith(puregraph.core.device.reason())
    assert "1348 images to train, 449 held out" in text
    assert re.search(r"conv1 +Conv2D\(1, 16, 5, pad=2.*\(N, 16, 8, 8\)", text)
    assert len(re.findall(r"^epoch 2/2 .* val accuracy 0\.\d+", text, re.M)) == 2
    scores = [float(s) for s in re.findall(r"(?:seed \d|mean): ([\d.]+) %", text)]
    assert len(scores) == 3 and abs(np.mean(scores[:2]) - scores[2]) < 0.01
    assert re.search(r"449 digits read with it: \d+ are wrong", text) and "read as" in text and "@@" in text
    assert puregraph.load(tmp_path / "digits.h5").dataShapeFrom((5, 1, 8, 8)) == (5, 10)
    last = float(re.search(r"seed 1: ([\d.]+) %  mean", text)[1])
    wrong = int(re.search(r"(\d+) are wrong", text)[1])
    assert abs(100 * (1 - wrong / 449) - last) < 0.01  # what was loaded reads as well as what was trained


def test_fashion_learns_from_the_files_of_a_folder(run, clothes):
    code, text = run("fashion.py", "--small", PUREGRAPH_DATA=clothes)
    assert code == 0
    assert "512 pictures to train, 256 to test" in text
    assert len(re.findall(r"^  (?:t-shirt|boot|bag) +\d\.\d{3}$", text, re.M)) == 3
    assert re.search(r"test accuracy \d\.\d{4} with seed 0 after 1 epochs", text)
    assert puregraph.load(clothes / "fashion.h5").dataShapeFrom((5, 1, 28, 28)) == (5, 10)


def test_fashion_says_where_its_data_comes_from(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["puregraph.data.fashion"], "SYSTEM", str(tmp_path / "usr"))
    monkeypatch.setenv("PUREGRAPH_DATA", str(tmp_path / "nowhere"))
    assert runpy.run_path(str(EXAMPLES / "fashion.py"))["main"]() == 2
    text = capsys.readouterr().out
    assert "apt-get install dataset-fashion-mnist" in text and "PUREGRAPH_DATA" in text and "nowhere" in text


def test_shapes_names_both_mistakes_and_measures_a_huge_model(run):
    code, text = run("shapes.py")
    assert code == 0
    assert "at 'seen' (Linear): wanted (..., 4096), got (N, 3600) from 'flat'" in text
    assert "at 'read' (Linear): wanted (..., 20), got (N, 32) from 'mean'" in text
    assert "68,977,967,104 parameters, 0 faults" in text
    assert "(N, 16, (H - 3)//4, (W - 3)//4)" in text
    assert "grad:relu     gradient of Relu" in text


@pytest.mark.parametrize("name, code", [("wrong", 1), ("right", 0)])
def test_the_models_of_shapes_go_through_the_command_line(name, code, capsys):
    from puregraph import cli

    assert cli.main(["shapes", f"{EXAMPLES / 'shapes.py'}:{name}", "N,3,64,64", "N,20"]) == code
    assert (capsys.readouterr().out.count("wanted ") == 2) == (code == 1)


def test_custommodule_checks_trains_and_survives_a_file(run):
    code, text = run("custommodule.py", "--small")
    assert code == 0
    assert "RMSNorm keeps every promise of a module" in text
    assert re.search(r"Hasty does not: .*the gradient of 'x' along a random direction", text)
    assert "its outputs are the same, bit for bit" in text


def test_resume_is_killed_and_ends_where_the_undisturbed_run_ends(run):
    pytest.importorskip("sklearn")
    code, text = run("resume.py", "--small")
    assert code == 0
    assert "exit code -9" in text
    assert "arrays" in text and "equal bit for bit; the history of the loss is equal" in text


def test_prompt_improves_until_nothing_needs_to_change(run):
    code, text = run("prompt.py")
    assert code == 0
    scores = re.findall(r"^step (\d)  (\d) of 3 right", text, re.M)
    assert scores == [("1", "0"), ("2", "0"), ("3", "0"), ("4", "0"), ("5", "1"), ("6", "3")]
    assert text.count("feedback to the prompt: ") == 6 and "no feedback to the prompt: nothing needs to change" in text
    assert text.endswith("1932-05-05\n")


def test_quantise_reads_as_well_with_integers(run, tmp_path):
    pytest.importorskip("sklearn")
    code, text = run("quantise.py", "--small")
    assert code == 0
    assert "weights, int4" in text and "compared: the same" in text
    assert (tmp_path / "digits8.h5").stat().st_size < 126_200
