"""The picture of what depends on what is that of today's imports."""

import sys

from source import ROOT

if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import architecture


def test_the_picture_of_imports_is_current():
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page(), "run: python scripts/architecture.py"


def test_the_picture_names_every_file_and_folder_once():
    first = [line.split()[0] for line in architecture.picture().splitlines() if "-->" in line]
    assert sorted(first) == sorted(architecture.links())


def test_what_follows_from_other_imports_is_left_out():
    assert architecture.direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
