"""Tables of what was found, and the summary of all of them."""

import datetime
import json
import math
import statistics
from pathlib import Path

from benchmarks import machine
from benchmarks.contenders import EAGER, isPeer
from benchmarks.lockstep import NOISE

RESULTS = Path(__file__).parent / "results"
AGREE = 1e-3  # of the value of the first step


def bestPeer(found):
    """The fastest of the other frameworks; None where none has run."""
    ran = [name for name in found if isPeer(name) and "seconds" in found[name]]
    return min(ran, key=lambda name: found[name]["seconds"], default=None)


def differs(found, agree=AGREE):
    """Contenders whose first step gave another value than most: name and value."""
    values = {name: one["value"] for name, one in found.items() if "value" in one}
    middle = sorted(values.values(), key=lambda v: (v != v, v))[len(values) // 2] if values else 0.0  # nan last
    return {name: v for name, v in values.items() if not abs(v - middle) <= agree * max(abs(middle), 1e-3)}


def head(command, cpus):
    """The command, the machine, the versions, and the date."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"$ {command}",
        f"{date}; {machine.processor()}, {machine.memory() / 2**30:.0f} GB; {len(cpus)} threads on processors {cpus}",
        machine.versions(),
    ]


def table(title, found):
    """One case: the fastest contender first."""
    best, eager = bestPeer(found), found.get(EAGER, {})
    hasStarts = any("warm" in one for one in found.values())
    columns = ["median ms", "min", "max", "vs torch", "vs best peer"]
    columns += ["warm s", "cold s", "peak MB"] if hasStarts else []
    lines = ["", title, f"{'contender':18}{''.join(f'{c:>13}' for c in columns)}{'retries':>9}"]
    notes = []
    for name, one in sorted(found.items(), key=lambda item: item[1].get("seconds", math.inf)):
        if "seconds" not in one:
            notes.append(f"{name}: {one['failed']}")
            continue
        own = one["seconds"]
        cells = [f"{1e3 * value:.3f}" for value in (own, min(one["blocks"]), max(one["blocks"]))]
        cells += [ratio(eager.get("seconds"), own), ratio(found[best]["seconds"] if best else None, own)]
        if hasStarts:
            cells += [f"{one[key]:.2f}" if key in one else "" for key in ("warm", "cold")]
            cells += [f"{one['bytes'] / 1e6:.1f}" if "bytes" in one else ""]
        lines.append(f"{name:18}{''.join(f'{c:>13}' for c in cells)}{one['retries']:9}")
        if max(one["foreign"]) > NOISE:
            notes.append(f"{name}: NOISY, others took up to {100 * max(one['foreign']):.0f} % of the processors")
        if "predicted" in one["notes"]:
            notes.append(f"{name}: predicted peak {one['notes']['predicted'] / 1e6:.1f} MB")
    notes += [f"{name}: ITS FIRST STEP GIVES {v:.6g}, others another number" for name, v in differs(found).items()]
    return lines + notes


def starts(title, found):
    """One case where only starts and memory were measured; who starts first with compiled code on disk comes first."""
    lines = ["", title, f"{'contender':18}{''.join(f'{c:>13}' for c in ('warm s', 'cold s', 'peak MB'))}"]
    for name, one in sorted(found.items(), key=lambda item: item[1].get("warm", math.inf)):
        if "warm" not in one:
            lines.append(f"{name}: {one['failed']}")
            continue
        cells = f"{one['warm']:.2f}", f"{one['cold']:.2f}", f"{one['bytes'] / 1e6:.1f}"
        lines.append(f"{name:18}{''.join(f'{c:>13}' for c in cells)}")
    return lines


def apart(distances):
    """How far apart the processors were, in a line."""
    if not distances:
        return []
    return [
        f"processors {min(distances)} to {max(distances)} ns apart, {statistics.median(distances):.0f} in the median"
    ]


def row(title, found, contenders, isFirst):
    """One kernel in one line: milliseconds of each contender, and puregraph against the best peer."""
    lines = [""] if isFirst else []
    if isFirst:
        lines.append(f"{'kernel, median ms':40}{''.join(f'{name:>18}' for name in contenders)}{'vs best peer':>14}")
    times = [found.get(name, {}).get("seconds") for name in contenders]
    best, own = found.get(bestPeer(found), {}), found.get("puregraph", {})
    cells = ["" if t is None else f"{1e3 * t:.3f}" for t in times]
    compared = ratio(best.get("seconds"), own["seconds"]) if "seconds" in own else ""
    lines.append(f"{title:40}{''.join(f'{cell:>18}' for cell in cells)}{compared:>14}")
    lines += [f"    {name}: {one['failed']}" for name, one in found.items() if "failed" in one]
    return lines + [f"    {name}: THE RESULT {value:.6g} IS ANOTHER" for name, value in differs(found).items()]


def ratio(theirs, own):
    """How many times faster than another."""
    return "" if theirs is None else f"{theirs / own:.2f}"


def save(name, lines, cases, folder=RESULTS):
    """Write the table, and the values behind it."""
    write(name, lines, folder)
    (Path(folder) / f"{name}.json").write_text(json.dumps({"head": lines[:3], "cases": cases}) + "\n")


def write(name, lines, folder=RESULTS):
    """Write a table."""
    Path(folder).mkdir(exist_ok=True, parents=True)
    (Path(folder) / f"{name}.txt").write_text("\n".join(lines) + "\n")


def summary(names, folder=RESULTS):
    """One line for each case that has been saved, and geometric means."""
    lines = [
        f"{'case':34}{'puregraph ms':>14}{'torch ms':>11}{'best peer ms':>14}  {'which':18}"
        f"{'vs torch':>9}{'vs best':>9}{'memory':>8}{'warm':>7}"
    ]
    means = {}
    for name in names:
        path = Path(folder) / f"{name}.json"
        cases = json.loads(path.read_text())["cases"] if path.exists() else {}
        for title, found in cases.items():
            best = bestPeer(found)
            own = next(
                (found[n] for n in ("puregraph", "puregraph-eager") if "failed" not in found.get(n, {"failed": ""})), {}
            )
            eager, peer = found.get(EAGER, {}), found.get(best, {})
            ratios = [over(eager, own, "seconds"), over(peer, own, "seconds")]
            ratios += [over(own, eager, "bytes"), over(own, eager, "warm")]
            times = [one.get("seconds") for one in (own, eager, peer)]
            cells = ["" if t is None else f"{1e3 * t:.3f}" for t in times]
            cells += ["" if r is None else f"{r:.2f}" for r in ratios]
            widths = (14, 11, 14, 9, 9, 8, 7)
            cells = [f"{cell:>{width}}" for cell, width in zip(cells, widths)]
            lines.append(f"{f'{name} {title}':34}{''.join(cells[:3])}  {best or '':18}{''.join(cells[3:])}")
            for kind, value in zip(("torch", "best"), ratios):
                if value is not None:
                    means.setdefault((title.split()[0], kind), []).append(value)
    for (mode, kind), values in means.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        whom = "torch eager" if kind == "torch" else "the best peer"
        lines.append(f"{mode}: {mean:.2f} times {whom} in the geometric mean of {len(values)}, least {min(values):.2f}")
    return lines


def over(first, second, key):
    """A ratio of two values that may be missing."""
    return first[key] / second[key] if key in first and key in second else None
