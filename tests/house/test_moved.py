"""Files that were moved are found under their old names, with a warning that says the new one."""

import subprocess
import sys

import pytest

import puregraph
from puregraph.core.moved import LATE, NEW


@pytest.mark.parametrize("name", NEW)
def test_an_old_name_gives_the_file_that_it_is_now(name):
    sys.modules.pop(f"puregraph.{name}", None)
    with pytest.warns(DeprecationWarning, match=rf"puregraph\.{name} is now puregraph\.{NEW[name]}"):
        found = __import__(f"puregraph.{name}", fromlist=["x"])
    assert found is sys.modules[f"puregraph.{NEW[name]}"]
    assert found.__spec__.name == f"puregraph.{NEW[name]}"


def test_an_old_name_is_an_attribute_of_the_package_too():
    sys.modules.pop("puregraph.initial", None)
    vars(puregraph).pop("initial", None)
    with pytest.warns(DeprecationWarning, match="is now puregraph.core.initial"):
        assert puregraph.initial.Normal is puregraph.core.initial.Normal


def test_a_name_that_never_was_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'initials'"):
        _ = puregraph.initials
    with pytest.raises(ModuleNotFoundError):
        __import__("puregraph.initials")


def test_no_old_name_is_that_of_a_file():
    assert not [name for name in NEW if (__import__("pathlib").Path(puregraph.__file__).parent / f"{name}.py").exists()]


@pytest.mark.parametrize("name", LATE)
def test_a_package_that_is_not_imported_at_the_start_is_an_attribute_all_the_same(name):
    code = f"import sys, puregraph; assert 'puregraph.{name}' not in sys.modules; print(puregraph.{name}.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f"puregraph.{name}\n"
