"""Compare puregraph with other frameworks on the same work.

python benchmarks/run.py list                            what there is
python benchmarks/run.py resnet18                        one comparison: printed, and saved in results/
python benchmarks/run.py all                             every one, then the summary
python benchmarks/run.py mlp --quick --only torch jax    fewer and shorter blocks, some contenders; not saved
"""

import argparse
import compileall
import os
import shlex
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # this checkout is what is measured

from benchmarks import lockstep, report, workloads
from benchmarks.contenders import CONTENDERS, fits

SPECIAL = ("list", "all", "summary")


def parsed(arguments):
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="+", metavar="NAME", choices=[*SPECIAL, *workloads.NAMES, "kernels"], help="see list")
    add("--only", nargs="+", metavar="CONTENDER", choices=list(CONTENDERS), help=f"of {', '.join(CONTENDERS)}")
    add("--mode", choices=["train", "infer"], help="only this")
    add("--match", default="", metavar="TEXT", help="only cases whose title holds this text")
    add("--rounds", type=int, help="blocks of each contender (7; 3 with --quick); 0: starts and memory alone")
    add("--seconds", type=float, help="length of a block (0.3; 0.15 with --quick)")
    add("--threads", type=int, help="processors that everybody is pinned to (all that this process may use)")
    add("--starts", type=int, help="warm starts of each contender (3; 1 with --quick); 0: neither starts nor memory")
    add("--quick", action="store_true", help="few and short blocks, nothing saved unless --out says where")
    add("--cache", metavar="FOLDER", help="keep compiled code here, instead of in a folder that is removed")
    add("--out", metavar="FOLDER", help="where to save (benchmarks/results)")
    options = parser.parse_args(arguments)
    usual = {"rounds": 3, "seconds": 0.15, "starts": 1} if options.quick else {"rounds": 7, "seconds": 0.3, "starts": 3}
    for name, value in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if not options.rounds and not options.starts:
        parser.error("--rounds 0 and --starts 0 leave nothing to measure")
    if options.out is None and not options.quick:
        options.out = report.RESULTS
    return options


def casesOf(name, options):
    """Titles and commands of a comparison."""
    workload = workloads.load(name)
    if name == "kernels":
        found = {kernel: {"workload": kernel, "mode": "kernel", "batch": 0} for kernel in workload.KERNELS}
    else:
        found = {f"{mode} b{b}": {"workload": name, "mode": mode, "batch": b} for mode, b in workload.CASES}
    kept = {title: case for title, case in found.items() if options.mode in (None, case["mode"])}
    return {title: case for title, case in kept.items() if options.match in title}


def say(text):
    """A progress line, which replaces the one before, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def compare(name, setting, options):
    """All cases of a network: lines of its tables, and the values."""
    workload, lines, cases = workloads.load(name), [], {}
    weights = str(setting.folder / f"{name}.npz")
    setting.script("weights", name, weights)
    for title, case in casesOf(name, options).items():
        chosen = [c for c in options.only or CONTENDERS if fits(c, case["mode"], workload.IMAGES)]
        label, startup, failed = f"{name} {title}", {}, {}
        for contender in chosen:
            try:
                if contender == "onnxruntime":
                    export(setting, name, case["batch"], weights)
                    export(setting, "tiny", 2)
                if options.starts:
                    say(f"{label}: {contender} starts")
                    startup[contender] = lockstep.starts(contender, setting, label, case, options.starts)
            except lockstep.FailedError as reason:
                failed[contender] = {"failed": str(reason)}
        if options.rounds:
            able = [c for c in chosen if c not in failed]
            with lockstep.Contest(able, setting, label, lambda text, p=label: say(f"{p}: {text}")) as contest:
                found = contest.run({**case, "weights": weights}, able, options.rounds, options.seconds)
            for contender, numbers in startup.items():
                found[contender].update(numbers)
            cases[title] = {**found, **failed}
            table = report.table(f"{workload.TITLE}: {title}", cases[title]) + report.apart(contest.distances)
        else:
            cases[title] = {**startup, **failed}
            table = report.starts(f"{workload.TITLE}: {title}", cases[title])
        say("")
        lines += shown(table)
    return lines, cases


def export(setting, name, batch, *weights):
    """Put the network where onnxruntime looks for it."""
    setting.script("export", name, batch, setting.folder / f"{name}-{batch}.onnx", *weights)


def compareKernels(name, setting, options):
    """All single kernels, in processes that stay."""
    workload, lines, cases = workloads.load(name), [], {}
    chosen = [c for c in options.only or CONTENDERS if fits(c, "kernel", True)]
    with lockstep.Contest(chosen, setting, name, lambda text: None) as contest:
        for title, case in casesOf(name, options).items():
            say(title)
            able = [c for c in chosen if fits(c, "kernel", workload.KERNELS[title].images)]
            cases[title] = contest.run(case, able, options.rounds, options.seconds)
            say("")
            lines += shown(report.row(title, cases[title], chosen, isFirst=not lines))
    return lines, cases


def shown(lines):
    """The lines, printed as soon as they are there."""
    print("\n".join(lines), flush=True)
    return lines


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parsed(arguments)
    if "list" in options.names:
        for name in (*workloads.NAMES, "kernels"):
            titles = list(casesOf(name, options))
            text = ", ".join(titles) if name != "kernels" else f"{len(titles)} of them"
            print(f"{name:12} {workloads.load(name).TITLE}: {text}")
        return
    every = [*workloads.NAMES, *["kernels"] * bool(options.rounds)]
    names = every if "all" in options.names else [n for n in options.names if n != "summary"]
    cpus = sorted(os.sched_getaffinity(0))
    cpus = cpus[: options.threads] if options.threads else cpus
    command = f"python benchmarks/run.py {shlex.join(arguments)}"
    compileall.compile_dir(lockstep.ROOT / "puregraph", quiet=2)  # as an installation does
    with tempfile.TemporaryDirectory(prefix="benchmark") as temporary:
        setting = lockstep.Setting(cpus, options.cache or temporary)
        setting.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            lines = shown(report.head(command, cpus))
            more, cases = (compareKernels if name == "kernels" else compare)(name, setting, options)
            if options.out:
                report.save(name, lines + more, cases, options.out)
    if set(options.names) & {"all", "summary"}:
        rows = report.summary(workloads.NAMES, options.out or report.RESULTS)
        lines = shown([*report.head(command, cpus), "", *rows])
        if options.out:
            report.write("summary", lines, options.out)


if __name__ == "__main__":
    main()
