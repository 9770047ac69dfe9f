"""The disk cache of compiled kernels: nothing that somebody else can have written is executed, and nothing hangs."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest
from processes import environment

from puregraph.core.errors import GraphWarning
from puregraph.core.storage import diskcache

if os.name == "nt":
    pytest.skip("owners and modes are those of POSIX", allow_module_level=True)

NAME = "0123456789abcdef" * 2 + "01234567"
OTHER = NAME[::-1]
HEADER = {"names": ["x"], "scratch": 0}
needsRoot = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "nowhere"))
    diskcache.refuse.cache_clear()
    diskcache.sweep.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def file(folder):
    """A kernel that was stored."""
    assert diskcache.write(NAME, HEADER, b"object")
    assert diskcache.read(NAME) == (HEADER, b"object")
    return folder / (NAME + diskcache.SUFFIX)


def isRefused(match):
    """A block in which a folder is refused, which is said once."""
    return pytest.warns(GraphWarning, match=match)


# Folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used_and_this_is_said_once(monkeypatch, file, mode):
    monkeypatch.setattr(diskcache, "isPrivate", lambda path, found: False)
    file.parent.chmod(mode)
    with isRefused(f"not kept in {file.parent}: others may write to {file.parent}") as told:
        assert diskcache.read(NAME) is None
        assert not diskcache.write(OTHER, HEADER, b"object")
    assert len(told) == 1
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@needsRoot
def test_a_folder_of_another_user_is_not_used(file):
    os.chown(file.parent, 1000, 1000)
    with isRefused(f"others may write to {file.parent},"):
        assert diskcache.read(NAME) is None


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_a_folder_inside_one_that_others_may_write_to_is_not_used(monkeypatch, tmp_path, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.delenv("PUREGRAPH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "within"))
    assert diskcache.write(NAME, HEADER, b"object")
    shared.chmod(mode)
    with isRefused(f"not kept in {shared}/within/puregraph: others may write to {shared},"):
        assert diskcache.read(NAME) is None


@needsRoot
def test_root_uses_and_makes_nothing_in_the_home_of_a_user(monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1000, 1000)
    monkeypatch.delenv("PUREGRAPH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    with isRefused(f"others may write to {home},"):
        assert diskcache.read(NAME) is None
        assert not diskcache.write(NAME, HEADER, b"object")
    assert not list(home.iterdir())


@needsRoot
def test_a_user_uses_what_is_the_users_or_roots(monkeypatch, tmp_path, file):
    monkeypatch.setattr(diskcache.os, "geteuid", lambda: 1000)
    assert diskcache.read(NAME) == (HEADER, b"object")
    os.chown(file.parent, 1000, 1000)
    os.chown(file, 1000, 1000)
    assert diskcache.read(NAME) == (HEADER, b"object")
    os.chown(file, 1001, 1001)
    assert diskcache.read(NAME) is None


def test_a_folder_under_one_with_the_sticky_bit_is_used(monkeypatch, tmp_path):
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1777)
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "public" / "mine"))
    assert diskcache.write(NAME, HEADER, b"object")
    assert diskcache.read(NAME) == (HEADER, b"object")
    assert stat.S_IMODE((tmp_path / "public" / "mine").stat().st_mode) == 0o700


def test_links_are_followed_where_nobody_else_can_change_them(monkeypatch, tmp_path, file):
    (tmp_path / "absolute").symlink_to(file.parent)
    (tmp_path / "relative").symlink_to("cache/../absolute")
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "relative"))
    assert diskcache.read(NAME) == (HEADER, b"object")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "loop"))
    with isRefused("loop"):
        assert diskcache.read(NAME) is None


def test_a_link_through_a_folder_that_others_may_write_to_is_not_followed(monkeypatch, tmp_path, file):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "hop").symlink_to(file.parent)
    (tmp_path / "start").symlink_to(shared / "hop")
    shared.chmod(0o777)
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "start"))
    with isRefused(f"others may write to {shared},"):
        assert diskcache.read(NAME) is None


@needsRoot
def test_a_link_of_another_user_is_not_followed(monkeypatch, tmp_path, file):
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    (public / "link").symlink_to(file.parent)
    monkeypatch.setenv("PUREGRAPH_CACHE", str(public / "link"))
    assert diskcache.read(NAME) == (HEADER, b"object")
    os.chown(public / "link", 1000, 1000, follow_symlinks=False)
    with isRefused(f"others may write to {public / 'link'},"):
        assert diskcache.read(NAME) is None


@needsRoot
def test_code_that_another_user_plants_is_not_run(tmp_path):
    """Another user seals code of theirs under the right name, in each kind of folder that was believed."""
    pytest.importorskip("llvmlite")
    script = (
        "import numpy as np, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from kernels import call, scale, slots\n"
        "from puregraph.ops.native.llvm import jit as machine\n"
        "x, y = np.ones(4, np.float32), np.zeros(4, np.float32)\n"
        "call(machine.load('planted', lambda: (scale(float(sys.argv[1])), [], 0)), slots(x, y), 4)\n"
        "print(y[0])\n"
    )

    def run(factor, **variables):
        command = [sys.executable, "-c", script, str(factor)]
        done = subprocess.run(command, env=cleared | variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    kinds = {
        "PUREGRAPH_CACHE": (tmp_path / "shared", ""),
        "XDG_CACHE_HOME": (tmp_path / "xdg", "puregraph"),
        "HOME": (tmp_path / "home", ".cache/puregraph"),
    }
    cleared = {k: v for k, v in environment(TMPDIR=str(tmp_path)).items() if k not in kinds}
    for variable, (place, below) in kinds.items():
        assert run(666, **{variable: str(place)}) == 666
        for path in (place, *place.rglob("*")):
            os.chown(path, 1000, 1000)
        assert run(2, **{variable: str(place)}) == 2, variable
        assert (place / below).is_dir()
        for path in tmp_path.glob("puregraph-*/*"):
            path.unlink()


# Files ------------------------------------------------------------------------------------------------------------


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def directory(path):
    path.unlink()
    path.mkdir()


def link(path):
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def renamed(path):
    path.write_bytes(diskcache.pack(OTHER, HEADER, b"object"))


def sealed(text):
    """Writes a header that is not one, under a checksum that is right."""
    return lambda path: path.write_bytes(diskcache.MAGIC + diskcache.checksum(NAME, text) + text)


WRONG = {
    "fifo": fifo,
    "directory": directory,
    "link": link,
    "device": lambda path: (path.unlink(), os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))),
    "renamed": renamed,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "world can write": lambda path: path.chmod(0o646),
    "other owner": lambda path: os.chown(path, 1000, 1000),
    "no json": sealed(b"{names\nobject"),
    "no header": sealed(b"\nobject"),
    "a list": sealed(b"[1, 2]\nobject"),
    "no utf-8": sealed(b"\xff\xfe\nobject"),
    "deep": sealed(b"[" * 100_000 + b"\nobject"),
    "other fields": sealed(json.dumps({"names": "x", "scratch": "many"}).encode() + b"\nobject"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_as_if_it_were_not_there(file, kind):
    if kind in ("device", "other owner") and os.geteuid() != 0:
        pytest.skip("only root can make that")
    WRONG[kind](file)
    assert diskcache.read(NAME, names=list, scratch=int) is None
    isReplaced = diskcache.write(NAME, HEADER, b"object")
    assert isReplaced == (kind != "directory")
    assert diskcache.read(NAME, names=list, scratch=int) == ((HEADER, b"object") if isReplaced else None)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_what_is_stored_is_the_users_alone_whatever_the_umask(folder, umask):
    before = os.umask(umask)
    try:
        assert diskcache.write(NAME, HEADER, b"object")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / (NAME + diskcache.SUFFIX)).stat().st_mode) == 0o600
    assert diskcache.read(NAME) == (HEADER, b"object")


def test_only_files_that_are_named_as_ours_are_removed(folder):
    names = [
        NAME + ".kernel",
        f"{NAME}.kernel.77.0.part",
        "mine.kernel",
        "film.part",
        f"x{NAME}.kernel",
        NAME[:-1] + ".kernel",
    ]
    folder.mkdir(mode=0o700)
    for name in names:
        (folder / name).write_bytes(b"old")
        os.utime(folder / name, (time.time() - 100 * 86400,) * 2)
    (folder / (OTHER + ".kernel")).mkdir()
    os.utime(folder / (OTHER + ".kernel"), (time.time() - 100 * 86400,) * 2)
    diskcache.sweep(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names[2:], OTHER + ".kernel"])


def test_a_kernel_whose_header_or_object_is_wrong_is_compiled_anew(folder):
    pytest.importorskip("llvmlite")
    from kernels import scale

    from puregraph.ops.native.llvm import jit

    for case, (header, data) in enumerate([({"key": "x"}, b""), ({"names": [], "scratch": 0}, None)]):
        key = f"wrong header or object {case}"
        name = jit.nameOf(key, "")
        strange = jit.objectFrom(scale(3), f"another_symbol_{case}") if data is None else data
        assert diskcache.write(name, header, strange)
        assert jit.load(key, lambda: (scale(2), ["x", "y"], 5)).scratch == 5
