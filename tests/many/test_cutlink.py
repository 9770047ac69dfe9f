"""A connection that is cut between two machines: whoever is on the other side is named, and nobody is left behind."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from launched import areGone, isNamedInTime, pidsIn, waited, written
from processes import environment

from puregraph.distributed.launch.launcher import STARTUP_TIMEOUT_CODE
from puregraph.distributed.launch.watch import CODE

ADDRESSES = ("10.78.0.1", "10.78.0.2")
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in %s) host=%s;; *) host=%s;; esac
shift
exec ip netns exec $host sh -c "$*"
"""  # what mpiexec takes for ssh: OPTIONS HOST COMMAND
CUT = """
import subprocess, sys, recipes
from launched import tellPauses, tellPid
from puregraph.distributed import world
from puregraph.train import FunctionCallback
tellPid()
tellPauses(world().watch)
def act(trainer):
    if trainer.step == 7:  # all have compiled: until here, who compiles for long is not late
        world().watch.patience /= 20
        world().barrier()
        if world().rank == 1:
            subprocess.run(["ip", "link", "set", sys.argv[1], "down"], check=True)
            open("cut", "w").close()
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)])
trainer.train(data, target, epochs=50)
"""


def ip(*words):
    """Run `ip`; whether it has worked, and what it says."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def hosts():
    """The names of two network namespaces, joined by one link."""
    if shutil.which("ip") is None:
        pytest.skip("there is no ip, which makes network namespaces")
    names = [f"pg{os.getpid()}{letter}" for letter in "ab"]
    try:
        works, said = ip("netns", "add", names[0])
        if not works:
            pytest.skip(f"network namespaces cannot be made here: {said.strip()}")
        steps = [["netns", "add", names[1]]]
        steps += [["link", "add", names[0], "netns", names[0], "type", "veth", "peer", names[1], "netns", names[1]]]
        for name, address in zip(names, ADDRESSES):
            steps += [["-n", name, "addr", "add", f"{address}/24", "dev", name]]
            steps += [["-n", name, "link", "set", each, "up"] for each in (name, "lo")]
        for step in steps:
            works, said = ip(*step)
            if not works:
                pytest.skip(f"two network namespaces cannot be joined here: {said.strip()}")
        assert waited(lambda: all("state UP" in ip("-n", name, "link", "show", name)[1] for name in names), 10)
        yield names
    finally:
        for name in names:
            works, pids = ip("netns", "pids", name)
            for pid in pids.split() if works else ():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)  # mpiexec's own process on the far side, which nobody reaches
            ip("netns", "del", name)


def environmentOver(hosts, folder):
    """Variables with which processes of two namespaces meet over their link."""
    if (Path(sys.executable).parent / "prterun").exists():
        pytest.skip("Open MPI takes no stand-in for ssh that knows addresses of namespaces")
    ssh = folder / "ssh"
    ssh.write_text(SSH % (ADDRESSES[0], *hosts))
    ssh.chmod(0o755)
    return environment(
        PUREGRAPH_DEVICE="cpu", PUREGRAPH_PATIENCE="50", HYDRA_LAUNCHER="ssh", HYDRA_LAUNCHER_EXEC=str(ssh),
        UCX_TLS="tcp", UCX_NET_DEVICES=",".join(hosts), MPIR_CVAR_NOLOCAL="1",  # not the loopback of each
    )  # fmt: skip


def launchedOn(hosts, *arguments, **named):
    """What comes of `puregraph launch` with a process on each host."""
    where = ",".join(f"{address}:1" for address in ADDRESSES)
    run = ["ip", "netns", "exec", hosts[0], sys.executable, "-m", "puregraph", "launch", "--hosts", where, *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=100, **named)


@pytest.mark.mpi
def test_a_run_ends_if_a_process_on_another_machine_cannot_begin(tmp_path, hosts):
    given = environmentOver(hosts, tmp_path) | {"UCX_NET_DEVICES": hosts[0]}  # the other one has none of this name
    script = written(tmp_path, "print('began')")
    done = launchedOn(hosts, "--patience", "1", str(script), env=given, cwd=tmp_path)
    assert done.returncode == STARTUP_TIMEOUT_CODE, done.stdout + done.stderr
    assert "the 2 processes have not begun together within 5 s (5 times --patience)" in done.stderr
    assert "began" not in done.stdout


@pytest.mark.mpi
def test_who_is_behind_a_cut_connection_is_named_and_ends_as_well(tmp_path, hosts):
    given = environmentOver(hosts, tmp_path)
    done = launchedOn(hosts, str(written(tmp_path, CUT)), hosts[1], env=given, cwd=tmp_path)
    assert (tmp_path / "cut").exists(), done.stdout + done.stderr
    assert done.returncode == CODE, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    late = [f"rank {own} of 2 has waited" in last and f": rank {other} has been silent" in last
            for own, other in [(0, 1), (1, 0)]]  # fmt: skip
    assert any(late) and "(epoch 2, batch 3, bucket 1: linear.b)" in last, last
    assert isNamedInTime(tmp_path, last, 2.5), last
    assert len(pidsIn(tmp_path)) == 2
    assert areGone(tmp_path), "a process is left behind"
