"""Contenders take turns: each in its own process, one at a time, so that slow drift of the machine meets all."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks import machine

ROOT = Path(__file__).parent.parent
NOISE, RETRIES = 0.06, 6  # the share of the processors that others may take during a block, and how often it is redone
REST = 0.05  # seconds in which the threads of the one before fall asleep


class FailedError(Exception):
    """A contender that cannot go on: the reason."""


class Setting:
    """Where contenders run: on these processors, with one folder for what they all read and one for each of them."""

    device = "cpu"  # on which they compute
    worker = "Worker"

    def __init__(self, cpus, folder):
        self.cpus, self.folder = cpus, Path(folder).absolute()

    def home(self, contender, title):
        """Where this contender keeps what it compiles for this case."""
        return self.folder / title.replace(" ", "-") / contender

    def environment(self, home):
        """The same for everybody: number of threads, compiled code kept at home, bytecode where Python looks."""
        threads = str(len(self.cpus))
        pools = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "NUMBA_NUM", "PUREGRAPH")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        given = {
            **{f"{pool}_THREADS": threads for pool in pools},
            "PUREGRAPH_DEVICE": self.device,
            "PUREGRAPH_CACHE": str(home / "puregraph"),
            "XDG_CACHE_HOME": str(home),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "torch"),
            "TRITON_CACHE_DIR": str(home / "triton"),
            "JAX_PLATFORMS": self.device,
            "JAX_COMPILATION_CACHE_DIR": str(home / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "BENCHMARK_CACHE": str(self.folder),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **given}

    def distance(self):
        """How many nanoseconds the first two processors are apart now; None where there is one, or no native code."""
        try:
            return int(self.script("distance")) if len(self.cpus) > 1 else None
        except FailedError:
            return None

    def script(self, name, *arguments, limit=None):
        """Run a file of this folder to its end, with a limit of seconds: what it printed."""
        try:
            found = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)],
                cwd=ROOT,
                env=self.environment(self.folder),
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise FailedError(f"{name} has taken more than {limit:.0f} s") from None
        if found.returncode:
            raise FailedError(f"{name} failed: {(found.stderr.strip().splitlines() or ['no word'])[-1]}")
        return found.stdout


class Process:
    """A worker, and its answers."""

    def __init__(self, contender, setting, title):
        home = setting.home(contender, title)
        home.mkdir(parents=True, exist_ok=True)
        self.log = open(home / "log.txt", "a")
        settings = json.dumps({"contender": contender, "cpus": setting.cpus, "worker": setting.worker})
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", settings],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=setting.environment(home),
            text=True,
        )

    def ask(self, do, limit=None, **details):
        """Send a command and wait for its answer; after `limit` seconds the process is killed."""
        try:
            self.process.stdin.write(json.dumps({"do": do, **details}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words are still to be read
        begun = time.perf_counter()
        watch = threading.Timer(limit or threading.TIMEOUT_MAX, self.process.kill)
        watch.daemon = True
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        late = limit is not None and time.perf_counter() - begun >= limit
        why = f"no answer in {limit:.0f} s" if late else f"ended without a word, see {self.log.name}"
        found = json.loads(line) if line else {"error": why}
        if "absent" in found or "error" in found:
            raise FailedError(found.get("absent") or found["error"])
        return found

    def close(self):
        """End the process: the processor time in seconds that it took."""
        before = os.times()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system


# Starts ---------------------------------------------------------------------------------------------------------------


def startOnce(contender, setting, title, case):
    """A fresh process: seconds to the end of its first step, and who else was busy."""
    taken = machine.busy(setting.cpus)
    process = Process(contender, setting, title)
    try:
        process.ask("setup", **case)
        seconds = time.perf_counter() - process.started
    finally:
        own = process.close()
    wall = time.perf_counter() - process.started
    foreign = (machine.busy(setting.cpus) - taken - own) / (len(setting.cpus) * wall)
    return {"seconds": seconds, "foreign": foreign}


def startQuietly(*arguments):
    """The quietest of a few starts, the first one if it was quiet."""
    found = startOnce(*arguments)
    for _ in range(2):
        if found["foreign"] < 2 * NOISE:
            break
        found = min(found, startOnce(*arguments), key=lambda start: start["foreign"])
    return found


def starts(contender, setting, title, case, count):
    """A cold start with nothing kept, warm starts with what that one left, and the memory of a step."""
    shutil.rmtree(setting.home(contender, title), ignore_errors=True)
    cold = startOnce(contender, setting, title, case)
    warm = [startQuietly(contender, setting, title, case) for _ in range(count)]
    return {
        "cold": cold["seconds"],
        "warm": statistics.median(start["seconds"] for start in warm),
        "bytes": growth(contender, setting, title, case),
    }


def growth(contender, setting, title, case):
    """The peak memory of a step in a fresh process."""
    process = Process(contender, setting, title)
    try:
        process.ask("rehearse", mode=case["mode"])
        process.ask("setup", **case)
        return process.ask("memory")["bytes"]
    finally:
        process.close()


# Blocks ---------------------------------------------------------------------------------------------------------------


class Contest:
    """Processes that take turns, one block of steps each.

    found       what is known of each contender
    distances   how far apart the processors were before each round
    """

    def __init__(self, contenders, setting, title, say):
        self.setting, self.say, self.found, self.distances = setting, say, {}, []
        self.processes = {name: Process(name, setting, title) for name in contenders}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.close()

    def run(self, case, names, rounds, seconds):
        """All rounds of a case; a contender that cannot take part has a reason in place of times."""
        self.found, self.distances = {}, []
        self.readyAll(case, names, seconds)
        able = [name for name in names if "failed" not in self.found[name]]
        for turn in range(rounds):
            self.say(f"round {turn + 1} of {rounds}")
            self.distances += filter(None, [self.setting.distance()])
            for name in able if turn % 2 == 0 else reversed(able):
                self.block(name, seconds)
        for name in able:
            if self.found[name]["blocks"]:
                self.found[name]["seconds"] = statistics.median(self.found[name]["blocks"])
        return self.found

    def readyAll(self, case, names, seconds):
        """Have everybody make ready, one after the other."""
        for name in names:
            self.say(f"{name} makes ready")
            self.found[name] = self.ready(self.processes[name], case, seconds)

    def ready(self, process, case, seconds):
        """The first step, and how long one takes."""
        try:
            first = process.ask("setup", **case)
            per = process.ask("warm", seconds=seconds)["seconds"]
        except FailedError as reason:
            return {"failed": str(reason)}
        return {**first, "per": per, "blocks": [], "foreign": [], "retries": 0}

    def block(self, name, seconds):
        """One block, again where others were too busy."""
        found, best = self.found[name], None
        calls = max(1, min(5000, round(seconds / found["per"])))
        for retry in range(RETRIES):
            time.sleep(REST + 0.4 * retry)
            now = self.processes[name].ask("block", calls=calls)
            best = now if best is None or now["foreign"] < best["foreign"] else best
            if best["foreign"] < NOISE:
                break
            found["retries"] += 1
        found["blocks"].append(statistics.median(best["times"]))
        found["foreign"].append(best["foreign"])
