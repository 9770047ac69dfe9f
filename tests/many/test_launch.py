"""`puregraph launch`: processes that end together, and say why once."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launched import (
    areGone,
    command,
    isRunning,
    launched,
    missingOpenMpi,
    namedAsKilled,
    pidsIn,
    waited,
    written,
)
from processes import environment

from puregraph.cli import main
from puregraph.distributed.launch import launcher
from puregraph.distributed.launch.launcher import STARTUP_TIMEOUT_CODE, LaunchedRun
from puregraph.distributed.launch.rankfile import endedIn, finish, ranksIn
from puregraph.distributed.launch.watch import CODE
from puregraph.distributed.worlds.world import BEGUN


def refusal(capsys, *arguments):
    """What the command says of arguments that it refuses."""
    assert main(["launch", *map(str, arguments)]) != 0
    return capsys.readouterr().err


def test_what_cannot_be_launched_is_refused_in_a_sentence(capsys, tmp_path, monkeypatch):
    script = written(tmp_path, "print('never')")
    assert "-n: wanted a number of processes of at least 1" in refusal(capsys, script)
    assert "got 0" in refusal(capsys, "-n", 0, script)
    assert "a:8,b:8, got 'a;b'" in refusal(capsys, "--hosts", "a;b", script)
    assert "from 1 to the 4 that a:2,b:2 have, got 5" in refusal(capsys, "-n", 5, "--hosts", "a:2,b:2", script)
    assert "there is no script 'nowhere.py'" in refusal(capsys, "-n", 2, "nowhere.py")
    monkeypatch.setattr(launcher.shutil, "which", lambda *names, **paths: None)
    assert "pip install 'puregraph[mpich]'" in refusal(capsys, "-n", 2, script)


def test_hosts_and_scripts_options_are_passed_on(monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "mpiexecPath", lambda: tmp_path / "mpiexec")
    found = launcher.commandOf(16, "a:8,b:8", ["train.py", "-n", "3"])
    assert found == [str(tmp_path / "mpiexec"), "-hosts", "a:8,b:8", "-n", "16", sys.executable, "-m",
                     "puregraph.distributed", "train.py", "-n", "3"]  # fmt: skip


def test_windows_of_ucx_are_for_several_machines(monkeypatch, tmp_path):
    (tmp_path / "prterun").touch()  # Open MPI's
    monkeypatch.setattr(launcher, "mpiexecPath", lambda: tmp_path / "mpiexec")
    assert "--mca osc ^ucx" in " ".join(launcher.commandOf(2, None, ["train.py"]))
    assert "--mca" not in launcher.commandOf(2, "a:1,b:1", ["train.py"])


@pytest.mark.mpi
def test_an_exception_of_one_process_ends_all_and_is_printed_once(tmp_path):
    text = """
        from puregraph.distributed import world
        w = world()
        if w.rank == 1:
            raise ValueError("no such thing")
        w.barrier()
    """
    done = launched(3, tmp_path, text)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert 'script.py", line 5' in done.stderr and "runpy" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last == "puregraph: rank 1 of 3 has ended the run: ValueError: no such thing"
    assert "Abort" not in done.stderr and done.stdout == ""


@pytest.mark.mpi
def test_an_exception_of_all_processes_is_printed_once(tmp_path):
    done = launched(3, tmp_path, "from puregraph.distributed import world\nworld()\nraise OSError('full')")
    assert done.returncode == 1
    assert done.stderr.count("OSError: full") == 2  # the traceback's last line, and the sentence
    assert done.stderr.count("has ended the run") == 1


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("code", "wanted"),
    [("'a reason'", 1), *[pytest.param(*each, marks=pytest.mark.slow) for each in [("3", 3), ("0", 0)]]],
)
def test_the_exit_code_is_that_of_the_processes(tmp_path, code, wanted):
    done = launched(2, tmp_path, f"import sys\nsys.exit({code})")
    assert done.returncode == wanted
    assert ("SystemExit" in done.stderr) == bool(wanted)


@pytest.mark.mpi
def test_a_killed_process_ends_all_and_is_named_before_anybody_is_missed(tmp_path):
    text = """
        import os, signal, time
        from pathlib import Path
        from launched import tellPid
        from puregraph.distributed import world
        from puregraph.distributed.collectives.sharedmemory import made
        w = world()
        tellPid()
        w.barrier()
        if w.rank == 2:
            Path("shared").write_bytes(made(w.folder, 4096))
            os.kill(os.getpid(), signal.SIGKILL)
        w.barrier()
    """
    done = launched(3, tmp_path, text)
    assert done.returncode not in (0, CODE), done.stderr  # the watch of the others has not ended the run
    assert 2 in namedAsKilled(done, 3), done.stderr
    pids = pidsIn(tmp_path)
    assert len(pids) == 3
    assert not any(map(isRunning, pids))
    shared = (tmp_path / "shared").read_text()
    assert shared.startswith("/dev/shm/puregraph-") or not sys.platform.startswith("linux")
    assert not shared or not Path(shared).exists()  # memory of nobody any more


FOUND = """
import json, os, sys, warnings
from neighbour import WORD
from puregraph import Linear, device
from puregraph.distributed import world
warnings.warn("once")
children = [name for name in os.environ if name.startswith(("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "MPI_LOCAL"))]
found = {"word": WORD, "arguments": sys.argv[1:], "name": __name__, "weights": Linear(3, 3).W.data.tolist(),
         "threads": device.threads(), "inherited": children, "size": world().size}
print(json.dumps(found), flush=True)
sys.exit()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What came of a script that says what it finds, and what each process has said."""
    folder = tmp_path_factory.mktemp("found")
    (folder / "neighbour.py").write_text("WORD = 'beside'")
    done = launched(2, folder, FOUND, "-n", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    return done, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.mpi
def test_a_script_finds_its_arguments_and_the_files_beside_it(found):
    rows = [(row["word"], row["arguments"], row["name"], row["size"]) for row in found[1]]
    assert rows == [("beside", ["-n", "7"], "__main__", 2)] * 2


@pytest.mark.mpi
def test_a_warning_that_all_processes_have_is_printed_once(found):
    assert (found[0].stdout + found[0].stderr).count("UserWarning: once") == 1


@pytest.mark.mpi
def test_weights_that_nobody_has_seeded_start_alike(found):
    one, two = (row["weights"] for row in found[1])
    assert one == two


@pytest.mark.mpi
def test_processes_share_the_cores_and_their_children_are_no_ranks(found):
    assert all(row["threads"] <= max(1, os.cpu_count() // 2) and not row["inherited"] for row in found[1])


@pytest.mark.mpi
def test_a_machine_that_cannot_be_reached_ends_the_run_with_a_sentence(tmp_path):
    if missingOpenMpi() is None:
        pytest.skip("Open MPI says so at length itself")
    run = [sys.executable, "-m", "puregraph", "launch", "--hosts", "nowhere.invalid:2", str(written(tmp_path, "1"))]
    given = environment(HYDRA_LAUNCHER="ssh", HYDRA_LAUNCHER_EXEC=shutil.which("false"))
    done = subprocess.run(run, env=given, capture_output=True, text=True, timeout=100)
    assert done.returncode not in (0, STARTUP_TIMEOUT_CODE)
    assert done.stdout == ""
    assert done.stderr == (
        "puregraph: one of the machines of --hosts could not be reached; does `ssh HOST python -m puregraph --version` "
        "work for each of them?\n"
    )


@pytest.mark.mpi
@pytest.mark.slow
def test_shared_memory_that_is_full_is_said_in_a_sentence(tmp_path):
    script = written(tmp_path, "from puregraph.distributed import world\nworld().barrier()")
    full = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", full, "sh", "true"], capture_output=True).returncode:
        pytest.skip("no other shared memory can be mounted here")
    run = ["unshare", "-m", "sh", "-c", full, "sh", *command(2, script)]
    done = subprocess.run(run, env=environment(PUREGRAPH_DEVICE="cpu"), capture_output=True, text=True, timeout=100)
    if missingOpenMpi() is None:  # which sends over something else, and says so itself
        assert (done.returncode, done.stderr) == (0, "") and "Space Available" in done.stdout
        return
    assert done.returncode != 0
    assert (
        "as happens when shared memory is full, over which processes of one machine exchange: /dev/shm has"
        in done.stderr
    )
    assert len(done.stderr.splitlines()) == 1 and "BAD TERMINATION" not in done.stdout


ASLEEP = """
    import time
    from puregraph.distributed import world
    from launched import tellPid
    world()
    tellPid()
    time.sleep(600)
"""


@pytest.mark.mpi
def test_ending_the_launcher_ends_all(tmp_path):
    run = subprocess.Popen(command(2, written(tmp_path, ASLEEP)), env=environment(), cwd=tmp_path)
    assert waited(lambda: len(pidsIn(tmp_path)) == 2, 60)
    run.terminate()
    assert run.wait(60) != 0
    assert areGone(tmp_path)


@pytest.mark.mpi
@pytest.mark.skipif(missingOpenMpi() is None, reason="processes of Open MPI end by themselves")
def test_processes_go_with_those_that_have_started_them_whatever_kills_these(tmp_path):
    run = subprocess.Popen(command(2, written(tmp_path, ASLEEP)), env=environment(), cwd=tmp_path)
    assert waited(lambda: len(pidsIn(tmp_path)) == 2, 60)
    proxy = parentOf(pidsIn(tmp_path)[0])
    for each in (run.pid, parentOf(proxy), proxy):
        os.kill(each, signal.SIGKILL)
    run.wait(60)
    assert areGone(tmp_path)


def parentOf(pid):
    """The process that has started another one."""
    return int(re.search(r"PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def test_a_script_that_is_not_there_is_refused_by_each_process():
    run = [sys.executable, "-m", "puregraph.distributed", "nowhere.py"]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "wanted a script to run" in done.stderr and "'nowhere.py'" in done.stderr


SLEEPER = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from rankfile import writeRankFile  # alone: to import the package takes as long as all the rest
held = writeRankFile(sys.argv[2], int(sys.argv[3]))
signal.signal(signal.SIGUSR1, lambda number, frame: os.close(held))
while True:
    time.sleep(60)
"""


@pytest.fixture
def sleepers(tmp_path):
    """Three processes that sleep, each of which has left its number for the launcher."""
    beside = Path(launcher.__file__).parent
    processes = [subprocess.Popen([sys.executable, "-c", SLEEPER, beside, tmp_path, str(rank)]) for rank in range(3)]
    assert waited(lambda: len(ranksIn(tmp_path)) == 3, 60)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def killed(*processes):
    """Kill processes, and wait until they are gone, though nobody has waited for them."""
    for process in processes:
        process.kill()
    assert waited(lambda: not any(isRunning(process.pid) for process in processes), 10)


def toldEnd(process, folder, capsys):
    """What a launcher says of a run of three processes that ends with code 9."""
    run = LaunchedRun(process, str(folder), 3)
    run.watch()
    run.tellEnd(9)
    return capsys.readouterr().err


def test_what_another_process_has_printed_without_an_end_of_line_hides_no_begin(tmp_path, capfdbinary):
    run = LaunchedRun(None, str(tmp_path), 3, 1000.0)
    run.beginning.start()
    run.passOn(b"half a line" + BEGUN)
    run.beginning.join(10)
    assert not run.beginning.is_alive() and capfdbinary.readouterr().out == b"half a line"
    run.passOn(b"Abort(1) on node 2 (rank 2 in comm 0): application called MPI_Abort\n")
    run.passOn(b"the restAbort(1) on node 2 (rank 2 in comm 0): application called MPI_Abort\n")
    assert capfdbinary.readouterr().out == b"the rest\n"


def test_who_ends_by_itself_before_the_others_have_come_to_their_end_is_named(tmp_path, capfd):
    for rank in range(3):
        (tmp_path / f"rank-{rank}").write_text("1")
    for rank in (0, 2):
        finish(str(tmp_path), rank)
    codes = []
    for survives in (False, True):
        with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
            codes.append(LaunchedRun(process, str(tmp_path), 3, survives=survives).wait())
    assert codes == [1, 0]
    assert "puregraph: rank 1 of 3 has ended by itself before the script did, as by os._exit" in capfd.readouterr().err


def test_of_processes_that_end_at_once_none_alone_is_named(tmp_path, capsys, sleepers):
    killed(sleepers[0], sleepers[2])
    assert "puregraph: rank 0 or 2 of 3 was killed (exit code 9)" in toldEnd(sleepers[1], tmp_path, capsys)


def test_a_process_that_began_and_ended_between_two_looks_is_named_beside_the_one_that_was_seen(
    tmp_path, capsys, sleepers, monkeypatch
):
    looks = []

    def seen(folder):
        looks.append(1)
        found = ranksIn(folder)
        if len(looks) == 1:
            killed(sleepers[2], sleepers[0])  # while the launcher has not yet seen that process 2 is there
            del found[2]
        return found

    monkeypatch.setattr(launcher, "ranksIn", seen)
    assert "puregraph: rank 0 or 2 of 3 was killed (exit code 9)" in toldEnd(sleepers[1], tmp_path, capsys)


def test_who_has_closed_its_files_is_named_though_its_last_thread_lives_longer_than_those_it_has_ended(
    tmp_path, capsys, sleepers
):
    sleepers[2].send_signal(signal.SIGUSR1)  # gives its lock back, as a process does whose threads are still ending
    assert waited(lambda: endedIn(tmp_path) == [2], 10)
    killed(sleepers[0])
    assert "puregraph: rank 0 or 2 of 3 was killed (exit code 9)" in toldEnd(sleepers[1], tmp_path, capsys)


def test_a_process_that_ends_between_the_last_two_looks_is_named_though_mpiexec_has_ended_as_well(
    tmp_path, capsys, sleepers
):
    class Mpiexec:
        """What is asked whether it has ended: the second time it has, and has just killed a process."""

        asked = 0

        def poll(self):
            self.asked += 1
            if self.asked == 1:
                return None
            killed(sleepers[1])
            return 9

    assert "puregraph: rank 1 of 3 was killed (exit code 9)" in toldEnd(Mpiexec(), tmp_path, capsys)
