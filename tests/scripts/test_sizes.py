"""scripts/sizes.py names what is longer than the guides ask for, and refuses nothing."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "sizes.py"


@pytest.fixture
def sizes(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("sizes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "puregraph" / "wide").mkdir(parents=True)
    return module


@pytest.mark.parametrize(("head", "limit"), [("class A:", 250), ("def f():", 60)])
def test_a_class_or_function_beyond_its_guide_is_named_with_its_lines(sizes, tmp_path, head, limit):
    path = tmp_path / "puregraph" / "a.py"
    path.write_text(head + "\n    x = 1" * (limit - 1))
    assert sizes.report() == []
    path.write_text(head + "\n    x = 1" * limit)
    assert sizes.report() == [f"puregraph/a.py:1: {head.split()[1].strip('():')} has {limit + 1} lines"]


def test_a_folder_with_more_files_than_the_guide_is_named(sizes, tmp_path):
    for i in range(16):
        (tmp_path / "puregraph" / "wide" / f"f{i}.py").write_text("")
    assert sizes.report() == ["puregraph/wide: 16 files"]
