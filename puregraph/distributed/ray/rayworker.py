"""Ray worker: what each worker of Ray does, which is to run one process of MPI, and to end with it.

The first one starts MPICH's mpiexec, which says by which command each process is to be started, and listens for them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from typing import Any

from puregraph.core.errors import PuregraphError
from puregraph.distributed.launch.launcher import LaunchedRun, isOpenMpi, mpiexecPath
from puregraph.distributed.worlds.startedby import endWithParent

PROXY = re.compile(r"HYDRA_LAUNCH: (.*)")
LISTENING = "HYDRA_LAUNCH_END"
SILENT = "the launcher has ended"


def runWorker(settings: dict[str, Any]) -> None:
    """Run this worker's process of the script to its end.

    Raises    PuregraphError if it fails, with the reason if that is known
    """
    import ray
    from ray.train.collective import broadcast_from_rank_zero

    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    with tempfile.TemporaryDirectory(prefix="puregraph-") as folder:
        environment = environmentFor(settings, folder)
        launcher = startLauncher(settings, size, environment) if rank == 0 else None
        command = broadcast_from_rank_zero(None if launcher is None else proxyCommand(launcher))
        child = startChild(shlex.split(ofRank(command, rank)), environment, settings["folder"])
        code = 0
        if launcher is not None:
            run = LaunchedRun(launcher, folder, size)
            code = run.wait()
            reason = run.reason(code) if code else ""
            if reason:
                raise PuregraphError(reason.rpartition("\n")[2].removeprefix("puregraph: "))
        code = child.wait() or code
    if code:
        raise PuregraphError(f"worker {rank} of {size}: the processes of MPI have ended with code {code}")


def environmentFor(settings: dict[str, Any], folder: str) -> dict[str, str]:
    """Return the environment of the processes."""
    environment = {**os.environ, "PUREGRAPH_RUN": folder, "PUREGRAPH_PATIENCE": str(settings["patience"])}
    # a process does not see the others on its machine
    environment.setdefault("PUREGRAPH_THREADS", str(settings["threads"]))
    return environment


def startLauncher(settings: dict[str, Any], size: int, environment: dict[str, str]) -> subprocess.Popen:
    """Start mpiexec, which waits for the proxies of `size` processes.

    Raises    PuregraphError if the mpiexec is not MPICH's
    """
    import ray

    mpiexec = mpiexecPath()
    if isOpenMpi(mpiexec):
        raise PuregraphError(f"RayRun takes MPICH's mpiexec, and {mpiexec} is Open MPI's: pip install mpich")
    names = ",".join(f"worker{rank}" for rank in range(size))
    placed = ["-launcher", "manual", "-localhost", ray.util.get_node_ip_address(), "-hosts", names, "-ppn", "1"]
    script = [sys.executable, "-m", "puregraph.distributed", settings["script"], *settings["arguments"]]
    return startChild(
        [str(mpiexec), *placed, "-n", str(size), *script],
        environment,
        settings["folder"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def proxyCommand(launcher: subprocess.Popen) -> str:
    """Return the command that starts the proxy of the first process, as mpiexec prints it.

    Raises    PuregraphError if mpiexec prints something else
    """
    said, command = [], ""
    for line in launcher.stdout or ():
        text = line.decode(errors="replace").strip()
        said.append(text)
        match = PROXY.fullmatch(text)
        command = command or (match[1] if match else "")
        if text.startswith(LISTENING) and command:
            return command
    raise PuregraphError(f"mpiexec does not start: {' '.join(said) or SILENT}")


def ofRank(command: str, rank: int) -> str:
    """Return the command for the proxy of a rank, from that of the first."""
    return re.sub(r"--proxy-id \d+", f"--proxy-id {rank}", command)


def startChild(command: list[str], environment: dict[str, str], folder: str, **options: Any) -> subprocess.Popen:
    """Start a process that gets a signal when this one ends, because Ray kills its workers."""
    return subprocess.Popen(command, env=environment, cwd=folder, preexec_fn=endWithParent, **options)
