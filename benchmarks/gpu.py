"""Compare training steps on a GPU with other frameworks, within a number of minutes.

python benchmarks/gpu.py                        everything, the most telling first: printed, and saved in results/gpu/
python benchmarks/gpu.py mlp-64 gpt2-16         some cases
python benchmarks/gpu.py --minutes 4            what fits into four minutes
python benchmarks/gpu.py --dry                  all of it in a tiny form on the CPU: it shows that it works, no more
"""

import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # this checkout is what is measured

from benchmarks import lockstep, machine, report, workloads
from benchmarks.contenders import EAGER, ONGPU

SLOWEST = "torch-max-autotune"  # to make ready
LEAST = 8  # seconds that somebody needs to make ready
AGREE = {"float32": 1e-3, "bfloat16": 3e-2}  # of the value of the first step, which is a cost


class Case(NamedTuple):
    """A training step.

    `seconds`   the most that may be spent on it; what is not ready by then is left out, and said so
    `settings`  constants of the workload that are others here
    `items`     what is counted in a sample: images, or positions of texts
    `tuned`     whether torch may search for its fastest kernels, which takes minutes
    """

    workload: str
    batch: int
    precision: str
    seconds: int
    settings: dict = {}
    items: int = 1
    unit: str = "samples"
    tuned: bool = True


FLOORS = "kernels"  # single kernels, next to what memory and arithmetic allow
CASES = {
    "mlp-64": Case("mlp", 64, "float32", 60),
    "lenet-64": Case("lenet", 64, "float32", 60),
    "gpt2-16": Case("gpt2", 16, "bfloat16", 130, items=1024, unit="tokens"),
    "resnet50-64": Case("resnet50", 64, "bfloat16", 150, unit="images"),
    FLOORS: None,
    "resnet50-256": Case("resnet50", 256, "bfloat16", 100, unit="images", tuned=False),
    "vit-64": Case("vit", 64, "bfloat16", 80, unit="images", tuned=False),
    "unet-16": Case("unet", 16, "bfloat16", 60, {"SIDE": 256}, unit="images", tuned=False),
    "lstm-32": Case("lstm", 32, "float32", 40, unit="sequences", tuned=False),
}
FLOORSECONDS = 40


KEPT = "PUREGRAPH_CACHE", "PUREGRAPH_TUNE", "PUREGRAPH_DETERMINISTIC"  # variables that are as outside


class Setting(lockstep.Setting):
    """A GPU, or, with `dry`, the CPU in its place; compiled code of one contender serves the next."""

    worker = "OnGpu"

    def __init__(self, cpus, folder, dry):
        super().__init__(cpus, folder)
        self.device = "cpu" if dry else "cuda"

    def environment(self, home):
        given = {
            "PUREGRAPH_TUNE": "1",
            "PUREGRAPH_DETERMINISTIC": "0",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torch"),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
        }
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {**super().environment(home), **given, **kept}

    def distance(self):
        """It is the GPU's time that counts."""


class Contest(lockstep.Contest):
    """Processes that take turns on a GPU; `end` is when the time for a case is used up, by time.monotonic."""

    def __init__(self, contenders, setting, title, say, end):
        super().__init__(contenders, setting, title, say)
        self.end = end

    def ready(self, process, case, seconds):
        """The first step, how long one takes, and how long it takes to start one."""
        left = self.end - time.monotonic()
        if left < LEAST:
            return {"failed": f"skipped: {max(left, 0):.0f} s were left of the time for this case"}
        try:
            first = process.ask("setup", limit=left, **case)
            per = process.ask("warm", limit=60, seconds=seconds)["seconds"]
            host = process.ask("host", limit=60, calls=20)["seconds"]
        except lockstep.FailedError as reason:
            return {"failed": str(reason)}
        return {**first, "per": per, "host": host, "blocks": [], "events": []}

    def block(self, name, seconds):
        """One block; everybody else sleeps. A contender that fails here leaves the others their times."""
        found = self.found[name]
        if "failed" in found:
            return
        calls = max(2, min(20_000, round(seconds / found["per"])))
        try:
            now = self.processes[name].ask("block", limit=60, calls=calls)
        except lockstep.FailedError as reason:
            found["failed"] = str(reason)
            return
        found["blocks"] += now["times"]
        found["events"] += [now["events"]] if now["events"] is not None else []


# What is compared -----------------------------------------------------------------------------------------------------


def compare(title, case, setting, options, end):
    """A case: what was found of each contender."""
    names = [n for n in options.only or ONGPU if takesPart(n, case)]
    weights = str(setting.folder / f"{title}.npz")
    say(f"{title}: weights")
    setting.script("weights", case.workload, weights, json.dumps(case.settings))
    order = {"workload": case.workload, "mode": "train", "batch": case.batch, "weights": weights}
    order |= {"precision": case.precision, "settings": case.settings}
    with Contest(names, setting, title, lambda text: say(f"{title}: {text}"), end) as contest:
        return contest.run(order, names, options.rounds, options.seconds)


def tiny(case):
    """A case that takes seconds on a CPU."""
    return case and case._replace(batch=2, settings=getattr(workloads.load(case.workload), "TINY", {}), items=1)


def takesPart(name, case):
    """Whether a contender has a part in a case."""
    return case.precision == "float32" if name == "jax" else case.tuned or name != SLOWEST


def say(text):
    """What is going on, with the time of day: a run that is cut off shows where."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def table(title, case, found):
    """Lines on a case, the fastest contender first."""
    best, eager = report.bestPeer(found), found.get(EAGER, {})
    columns = ["median ms", "GPU ms", "min", "max", f"{case.unit}/s", "vs torch", "vs best peer", "host us", "ready s"]
    head = f"{workloads.load(case.workload).TITLE}, training, {case.batch} at a time, {case.precision}"
    lines = ["", f"{title}: {head}", f"{'contender':24}{''.join(f'{c:>13}' for c in columns)}"]
    notes = []
    for name, one in sorted(found.items(), key=lambda item: item[1].get("seconds", math.inf)):
        if "failed" in one:
            notes.append(f"{name}: {one['failed']}")
        if "seconds" not in one:
            continue
        own, events = one["seconds"], statistics.median(one["events"]) if one["events"] else None
        cells = [f"{1e3 * own:.4g}", "" if events is None else f"{1e3 * events:.4g}"]
        cells += [f"{1e3 * pick(one['blocks']):.4g}" for pick in (min, max)]
        cells += [f"{case.batch * case.items / own:,.0f}", report.ratio(eager.get("seconds"), own)]
        cells += [report.ratio(found[best]["seconds"] if best else None, own)]
        cells += [f"{1e6 * one['host']:.1f}", f"{one['ready']:.1f}"]
        lines.append(f"{name:24}{''.join(f'{c:>13}' for c in cells)}")
        if "predicted" in one["notes"]:
            notes.append(f"{name}: predicted peak {one['notes']['predicted'] / 1e6:.1f} MB")
    wrong = report.differs(found, AGREE[case.precision])
    return [
        *lines,
        *notes,
        *(f"{name}: ITS FIRST STEP GIVES {v:.6g}, others another number" for name, v in wrong.items()),
    ]


def floors(setting, options, end):
    """Single kernels: lines, and values."""
    path = setting.folder / "floors.json"
    arguments = ["--seconds", f"{max(end - time.monotonic(), 1):.0f}", "--numbers", path, *["--dry"] * options.dry]
    text = setting.script("floors", *arguments, limit=max(end - time.monotonic(), 1) + 30)
    return ["", *text.splitlines()], json.loads(path.read_text())


def summary(cases, isDry):
    """A line for each case: puregraph, and how many times faster it is than others."""
    lines = ["", f"{'case':16}{'puregraph ms':>14}{'a second':>16}{'host us':>9}  times faster than"]
    for title, found in cases.items():
        one = found.get("puregraph", {})
        if CASES[title] is None or "seconds" not in one:
            continue
        own, case = one["seconds"], tiny(CASES[title]) if isDry else CASES[title]
        ratios = [
            f"{n} {other['seconds'] / own:.2f}" for n, other in found.items() if other is not one and "seconds" in other
        ]
        count = f"{case.batch * case.items / own:,.0f} {case.unit}"
        lines.append(f"{title:16}{1e3 * own:>14.4g}{count:>16}{1e6 * one['host']:>9.1f}  {', '.join(ratios)}")
    return lines


# The run --------------------------------------------------------------------------------------------------------------


def parsed(arguments):
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    add("--only", nargs="+", metavar="CONTENDER", choices=list(ONGPU), help=f"of {', '.join(ONGPU)}")
    add("--minutes", type=float, default=9.0, help="what does not fit is left out, and said so (9)")
    add("--rounds", type=int, default=5, help="blocks of each contender (5)")
    add("--seconds", type=float, default=0.3, help="length of a block (0.3)")
    add("--out", metavar="FOLDER", default=str(report.RESULTS / "gpu"), help="where to save (benchmarks/results/gpu)")
    add("--dry", action="store_true", help="tiny, on the CPU")
    options = parser.parse_args(arguments)
    wrong = [name for name in options.names if name not in CASES]
    if wrong:
        parser.error(f"there is no case {', '.join(wrong)}: there are {', '.join(CASES)}")
    return options


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parsed(arguments)
    begun = time.monotonic()
    cpus = sorted(os.sched_getaffinity(0))
    lines = report.head(f"python benchmarks/gpu.py {shlex.join(arguments)}", cpus)[:2]
    lines += [machine.versions(machine.GPUPACKAGES), machine.gpu()]
    lines += ["A DRY RUN: tiny networks on the CPU, whose times say nothing"] if options.dry else []
    cases, done = {}, 0
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark", ignore_cleanup_errors=True) as folder:
            setting = Setting(cpus, folder, options.dry)
            if not options.dry:
                say("what contenders import is read from the disk")
                readOnce(setting)
            for title in options.names or CASES:
                now = time.monotonic()
                left = begun + 60 * options.minutes - now
                wanted = CASES[title].seconds if CASES[title] else FLOORSECONDS
                if left < wanted / 2:
                    lines += ["", f"{title}: skipped: {max(left, 0):.0f} s are left, and it may take {wanted}"]
                else:
                    more, cases[title] = tried(title, setting, options, now + min(left, wanted))
                    lines += [*more, f"({time.monotonic() - now:.0f} s)"]
                done = shown(lines, done)
                save(lines, cases, options.out)
    finally:  # also where somebody cuts it off
        lines += summary(cases, options.dry)
        shown(lines, done)
        save(lines, cases, options.out)


def readOnce(setting, names=("torch._inductor.compile_fx", "jax"), limit=60):
    """Import what takes long the first time, so that it is no part of the time for the first case."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", f"import {name}"], env=setting.environment(setting.folder), stderr=subprocess.DEVNULL
        )
        for name in names
    ]
    end = time.monotonic() + limit
    for process in started:
        try:
            process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tried(title, setting, options, end):
    """A case, or why there is none: lines, and values."""
    case = tiny(CASES[title]) if options.dry else CASES[title]
    try:
        if case is None:
            return floors(setting, options, end)
        found = compare(title, case, setting, options, end)
        return table(title, case, found), found
    except lockstep.FailedError as reason:
        return ["", f"{title}: FAILED: {reason}"], {}
    except Exception as error:  # of this code: it hides no other case
        traceback.print_exc()
        return ["", f"{title}: FAILED: {type(error).__name__}: {error}"], {}


def shown(lines, done):
    """Print what is new among the lines; how many there are."""
    print("\n".join(lines[done:]), flush=True)
    return len(lines)


def save(lines, cases, folder):
    """Write the tables, and the values behind them, so far."""
    report.write("benchmarks", lines, folder)
    (Path(folder) / "benchmarks.json").write_text(json.dumps({"head": lines[:4], "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
