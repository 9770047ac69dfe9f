"""How close the simulator of collectives comes to real ones: rings among hosts that are network namespaces.

    python benchmarks/clocks.py [--rate 50mbit] [--hosts 3,4,8] [--json]        as root, on Linux, under MPICH

Each host has a process and a link to one switch, limited both ways by `tc tbf`. A link is fitted to all-reduces between
two of them; `Clocks` then says what those of more hosts take. Each figure is the fastest of some turns, on the host
where that takes longest, in milliseconds. Prints a table, and saves it to benchmarks/results/clocks.txt.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "clocks.txt"
SIZES = (300_000, 600_000, 1_000_000, 2_000_000, 3_000_000)  # bytes
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec pgc%d-${host##*.} sh -c "$*"
"""  # what mpiexec takes for ssh: OPTIONS HOST COMMAND


def worker():
    """What each process does: the first prints the seconds of each size."""
    from puregraph.distributed import world
    from puregraph.distributed.plan import measure

    here, found = world(), {}
    for size in SIZES:
        array = np.ones(size // 4, np.float32)
        found[size] = measure.fastest(here, lambda array=array: here.allReduce(array))
    if here.rank == 0:
        print(json.dumps(found), flush=True)


def sh(*words):
    """Run a command, which must work."""
    subprocess.run([*words], check=True)


@contextmanager
def switched(count, rate):
    """So many namespaces, each with a link of this rate to one switch: their addresses."""
    own, names = os.getpid(), [f"pgc{os.getpid()}-{i + 1}" for i in range(count)]
    switch = f"pgs{own}"
    limit = ["root", "tbf", "rate", rate, "burst", "64kb", "limit", "4mb"]
    try:
        sh("ip", "link", "add", switch, "type", "bridge")
        sh("ip", "link", "set", switch, "up")
        for i, name in enumerate(names):
            outer = f"pgv{own}x{i}"
            sh("ip", "netns", "add", name)
            sh("ip", "link", "add", outer, "type", "veth", "peer", "eth0", "netns", name)
            sh("ip", "link", "set", outer, "master", switch, "up")
            sh("ip", "-n", name, "addr", "add", f"10.80.0.{i + 1}/24", "dev", "eth0")
            for each in ("eth0", "lo"):
                sh("ip", "-n", name, "link", "set", each, "up")
            sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", *limit)
            sh("tc", "qdisc", "add", "dev", outer, *limit)
        time.sleep(2)  # a link is up only then, and MPI takes no other
        yield names, [f"10.80.0.{i + 1}" for i in range(count)]
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                sh("ip", "netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            sh("ip", "link", "del", switch)


def measured(count, rate):
    """The seconds of an all-reduce by its bytes, among so many hosts."""
    with switched(count, rate) as (names, addresses), tempfile.TemporaryDirectory() as folder:
        ssh = Path(folder) / "ssh"
        ssh.write_text(SSH % os.getpid())
        ssh.chmod(0o755)
        given = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(ssh), "UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"}
        given |= {"MPIR_CVAR_NOLOCAL": "1", "PUREGRAPH_DEVICE": "cpu", "PUREGRAPH_THREADS": "1"}
        given |= {"MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring"}
        where = ",".join(f"{address}:1" for address in addresses)
        run = ["ip", "netns", "exec", names[0], sys.executable, "-m", "puregraph", "launch", "--hosts", where]
        done = subprocess.run([*run, __file__, "--worker"], env={**os.environ, **given}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {int(size): seconds for size, seconds in json.loads(done.stdout.splitlines()[-1]).items()}


def compared(rate, hosts):
    """The link that fits two hosts, and for more of them rows of hosts, bytes, seconds measured and predicted."""
    from puregraph.distributed import Clocks
    from puregraph.distributed.plan.measure import linkFrom

    link, rows = linkFrom(measured(2, rate)), []
    for count in hosts:
        for size, seconds in measured(count, rate).items():
            clocks = Clocks(count, link)
            clocks.allReduce(size, "ring")
            rows.append((count, size, seconds, float(clocks.times.max())))
    return link, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="50mbit")
    parser.add_argument("--hosts", default="3,4,8")
    parser.add_argument("--json", action="store_true", help="print rows, and save nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker()
        return
    link, rows = compared(options.rate, [int(each) for each in options.hosts.split(",")])
    if options.json:
        print(json.dumps(rows))
        return
    errors = [abs(found / seconds - 1) for _, _, seconds, found in rows]
    lines = [
        f"{' '.join(['python', 'benchmarks/clocks.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        f"links of {options.rate}; fitted on two hosts: {8 * link.bandwidth / 1e6:.1f} Mbit/s, "
        f"{1e3 * link.latency:.2f} ms",
        "",
        f"{'hosts':>5} {'bytes':>9} {'measured ms':>11} {'clocks ms':>9} {'error':>7}",
        *(f"{n:5} {size:9,} {1e3 * t:11.1f} {1e3 * p:9.1f} {100 * (p / t - 1):+6.1f} %" for n, size, t, p in rows),
        "",
        f"error: {100 * np.median(errors):.1f} % in the median, {100 * max(errors):.1f} % at most",
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
