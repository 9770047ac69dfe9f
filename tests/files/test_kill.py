"""Whatever kills a process while it saves, and whenever: the last good checkpoint loads, and nothing is left behind."""

import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from processes import environment
from saving import net

from puregraph.core.errors import CheckpointError
from puregraph.core.storage import atomicwrite
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.serialize.checkpoint import load, save

EVERYDAY, MANY = 5, 200

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kill -9 and file size limits are those of POSIX systems")


def start(*arguments, limit=None):
    """A process that saves; `limit` is the largest file that it may write."""
    code = "import sys, resource; " + (
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); " if limit else ""
    )
    code += "import saving; saving.main(sys.argv[1])"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def parts(folder):
    """The temporary files in a folder."""
    return [p for p in folder.iterdir() if p.name.endswith(atomicwrite.SUFFIX)]


def killOften(times, folder, seed):
    """Kill a saving process at random moments; how many temporary files that left behind."""
    rng, path, left, last = random.Random(seed), folder / "net.h5", 0, 0
    for _ in range(times):
        process = start(path)
        said = [process.stdout.readline()]  # it has saved at least once, and is saving now
        timer = threading.Timer(rng.uniform(0.0, 0.08), process.send_signal, [signal.SIGKILL])
        timer.start()
        said += process.stdout.readlines()
        process.wait()
        timer.join()
        process.stdout.close(), process.stderr.close()
        assert process.returncode == -signal.SIGKILL
        found = load(path)
        number, finished = found.extra["number"], int([line for line in said if line.endswith("\n")][-1])
        assert number in (finished, finished + 1), "the last good checkpoint is there, or the one after it"
        assert (found.graph["fc"].W.data == number).all()
        last = len(parts(folder))
        assert last <= 1, "an orphan is removed by the next save"
        left += last
    save(path, net(0))
    assert [p.name for p in folder.iterdir()] == ["net.h5"]
    return left


def test_a_killed_save_never_costs_a_checkpoint(tmp_path, seed):
    killOften(EVERYDAY, tmp_path, seed)


@pytest.mark.slow
def test_two_hundred_kills_never_cost_a_checkpoint(tmp_path, seed):
    left = killOften(MANY, tmp_path, seed)
    print(f"{MANY} kills, 0 checkpoints lost, {left} temporary files left behind, all removed")
    assert left > 0, "no kill hit a save: the test tests nothing"


def test_an_orphan_of_a_dead_process_is_removed_and_a_living_one_stays(tmp_path):
    path = tmp_path / "net.h5"
    (orphan := tmp_path / f"{atomicwrite.prefix('net.h5')}999999.0{atomicwrite.SUFFIX}").write_text("half a checkpoint")
    (other := tmp_path / f"{atomicwrite.prefix('other.h5')}999999.0{atomicwrite.SUFFIX}").write_text("of another file")
    (stranger := tmp_path / ".net.h5.part").write_text("of another program")
    with atomicwrite.whole(path) as file:
        assert not orphan.exists() and other.exists() and stranger.exists()
        file.write(b"being written")
        save(path, net(1))
        assert len(parts(tmp_path)) == 3, "the file being written by the outer block is no orphan"
        assert load(path).extra is None
    assert path.read_bytes() == b"being written"


def test_two_threads_may_save_to_one_path(tmp_path):
    path = tmp_path / "net.h5"
    nets = [net(i) for i in range(4)]
    threads = [threading.Thread(target=lambda n=n: [save(path, n) for _ in range(20)]) for n in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = load(path).graph["fc"].W.data
    assert (values == values[0, 0]).all() and [p.name for p in tmp_path.iterdir()] == ["net.h5"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "net.h5"
    save(path, net(7))
    before = path.read_bytes()
    process = start(path, limit=300_000)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "CheckpointError: cannot save" in errors and "File too large; the file that was there is as it was" in errors
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["net.h5"]


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_disk_that_fails_at_any_step_leaves_the_old_file(step, tmp_path, monkeypatch):
    path = tmp_path / "net.h5"
    save(path, net(7))
    before = path.read_bytes()
    if step == "write":
        with pytest.raises(CheckpointError, match="No space left on device"), atomicwrite.whole(path) as file:
            file.write(b"half")
            raise OSError(28, os.strerror(28))
    else:
        monkeypatch.setattr(os, step, lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(CheckpointError, match="Input/output error; the file that was there is as it was"):
            save(path, net(8))
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["net.h5"]


def test_what_is_saved_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    events = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (events.append(name), real(*a))[1])
    Sequential(Linear(2, 2)).save(tmp_path / "net.h5")
    assert events == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("moment", ["before the lock", "while it is locked"])
def test_a_file_that_was_taken_for_an_orphan_is_made_again(moment, tmp_path, monkeypatch):
    taken = []
    real = atomicwrite.fcntl.flock

    def flock(descriptor, kind):
        if not taken:
            taken.append(parts(tmp_path)[0])
            if moment == "before the lock":
                taken[0].unlink()
            else:
                raise BlockingIOError
        real(descriptor, kind)

    monkeypatch.setattr(atomicwrite.fcntl, "flock", flock)
    save(tmp_path / "net.h5", net(3))
    assert taken and (load(tmp_path / "net.h5").graph["fc"].W.data == np.float32(3)).all()
    monkeypatch.undo()
    save(tmp_path / "net.h5", net(3))
    assert len(list(tmp_path.iterdir())) == 1
