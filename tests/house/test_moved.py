"""Files that were moved are found under their old names, with a warning that says the new one."""

import subprocess
import sys

import pytest

import puregraph
from puregraph.core.moved import KEPT, NEW


@pytest.mark.parametrize("name", NEW)
def test_an_old_name_gives_the_file_that_it_is_now(name):
    sys.modules.pop(f"puregraph.{name}", None)
    with pytest.warns(DeprecationWarning, match=rf"puregraph\.{name} is now puregraph\.{NEW[name]}"):
        found = __import__(f"puregraph.{name}", fromlist=["x"])
    assert found is sys.modules[f"puregraph.{NEW[name]}"]
    assert found.__spec__.name == f"puregraph.{NEW[name]}"


@pytest.mark.parametrize("name", KEPT)
def test_a_short_name_gives_the_same_module_without_a_warning(name):
    assert __import__(f"puregraph.{name}", fromlist=["x"]) is sys.modules[f"puregraph.{KEPT[name]}"]
    assert getattr(puregraph, name) is sys.modules[f"puregraph.{KEPT[name]}"]


def test_a_module_in_a_package_of_an_old_name_is_not_loaded_twice():
    code = """if 1:
        import warnings
        warnings.simplefilter("ignore")
        import puregraph.text.template, puregraph.compat.text.template, puregraph.kernels.convolution
        import puregraph.errors.userwarning, puregraph.core.errors.userwarning, puregraph.ops.convolution.reference
        assert puregraph.text.template is puregraph.compat.text.template
        assert puregraph.errors.userwarning.warnUser is puregraph.core.errors.userwarning.warnUser
        assert puregraph.kernels.convolution is puregraph.ops.convolution.reference
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_of_an_old_name_runs_as_a_command():
    command = [sys.executable, "-m", "puregraph.many", "nothing.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "wanted a script to run" in done.stderr


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
    assert not [
        name
        for name in [*NEW, *KEPT]
        if (__import__("pathlib").Path(puregraph.__file__).parent / f"{name}.py").exists()
    ]
