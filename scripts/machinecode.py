"""Lists what the machine code of each kernel of a training step takes: no GPU is asked.

    python scripts/machinecode.py resnet50 gpt2
    python scripts/machinecode.py resnet50 --arch sm_80 --nvdisasm PATH

Registers and spilled bytes are those of the assembler's log. Occupancy is that of an H100's 132 processors, of 65,536
registers, 2,048 threads and 227 KB of shared memory each; it is of the largest launch, which may have fewer blocks
than there is room for. The last line has the least of the launches that are bound by memory: of those that take 3 us or
more for their bytes, no product and no cell that waits between time steps. With nvdisasm, on the path or in the wheel
nvidia-cuda-nvdisasm, also how many loads from global memory a kernel has of how many bytes. Kernels that touch less
than a thousandth of the step's bytes are left out, unless --all asks for them.
"""

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from math import prod
from pathlib import Path

HERE = Path(__file__).parent.parent
sys.path += [str(HERE), *(str(HERE / folder) for folder in ("tests/lib", "tests/compile", "scripts"))]

import roofline  # noqa: E402 - found through the line above
import test_traffic as traffic  # noqa: E402

from puregraph.compile.gpu.lower.copylaunch import startsOf  # noqa: E402
from puregraph.ops.cuda.runtime import compiler  # noqa: E402
from puregraph.ops.cuda.runtime.launch import Launch  # noqa: E402

PROCESSORS, REGISTERS, THREADS, BLOCKS, SHARED, RESERVED = 132, 65536, 2048, 32, 227 << 10, 1 << 10
LOAD = re.compile(r"\bLDG\.E([.\w]*)")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
LEAST = 1e-3  # of the bytes of a step
PRODUCT = "contract"  # bound by what it multiplies


def nvdisasm(path):
    """The disassembler: the one given, on the path, or of the wheel; None where there is none."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [f for root in spec.submodule_search_locations for f in Path(root).rglob("nvdisasm")] if spec else []
    return path or shutil.which("nvdisasm") or next(map(str, wheels), None)


def loads(tool, data, entry):
    """By their bytes how many loads from global memory the code of a kernel has."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        text = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\s*\.section\s+\.text\.(\S+?),", text, flags=re.M)
    body = dict(zip(parts[1::2], parts[2::2])).get(entry, "")
    return Counter(next((WIDTHS[w] for w in m[1].split(".") if w in WIDTHS), 4) for m in LOAD.finditer(body))


def occupancy(launch, used):
    """The part of a GPU's threads that blocks of a launch fill: as many as have resources, and as there are."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    whole = -(-threads // 32) * 32
    byRegisters = REGISTERS // (-(-used.registers // 8) * 8 * whole)
    blocks = min(byRegisters, THREADS // whole, BLOCKS, SHARED // (used.shared + launch.shared + RESERVED))
    return min(blocks, prod(launch.grid) / PROCESSORS) * whole / THREADS


def kernels(plan):
    """The distinct kernels of a plan: a launch, how many there are and the bytes of all, the most first."""
    found = {}
    for launch in startsOf(plan):
        if isinstance(launch, Launch):
            size = traffic.touched(launch)
            key = launch.source, launch.entry, launch.block, launch.shared
            one, count, before = found.get(key, (launch, 0, 0))
            found[key] = max(one, launch, key=lambda each: prod(each.grid)), count + 1, before + size
    return sorted(found.values(), key=lambda each: -each[2])


def boundByMemory(plan, arch):
    """The launches of a plan that take longer for their bytes than to start, each with these and its occupancy."""
    least = roofline.SHORT * roofline.BANDWIDTH
    for launch in startsOf(plan):
        if isinstance(launch, Launch) and launch.entry != PRODUCT and not launch.cooperative:
            size = traffic.touched(launch)
            if size >= least:
                used = compiler.cubin(launch.source, arch).resources[launch.entry]
                yield launch, size, occupancy(launch, used)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["resnet50", "gpt2"], help="of " + ", ".join(traffic.CASES))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvdisasm", metavar="PATH", help="the disassembler")
    parser.add_argument("--all", action="store_true", help="small kernels as well")
    options = parser.parse_args()
    tool = nvdisasm(options.nvdisasm)
    for name in options.workloads:
        plan = traffic.planOf(name)
        found = kernels(plan)
        step = sum(size for *_, size in found)
        found = [each for each in found if options.all or each[2] > LEAST * step]
        compiler.compileAll([launch.source for launch, *_ in found], options.arch)
        print(f"{name} {' '.join(map(str, traffic.CASES[name]))}, {options.arch}")
        print("launches       GB  registers  spilled  shared  occupancy  loads x bytes      kernel")
        for launch, count, size in found:
            cubin = compiler.cubin(launch.source, options.arch)
            used = cubin.resources[launch.entry]
            widths = sorted(loads(tool, cubin.data, launch.entry).items()) if tool else []
            text = " ".join(f"{n}x{width}" for width, n in widths) or "-"
            shared = used.shared + launch.shared
            print(f"{count:8} {size / 1e9:8.2f} {used.registers:10} {used.spills:8} {shared:7} "
                  f"{occupancy(launch, used):9.0%}  {text:>17}  {launch.entry}: {launch.name[:60]}")  # fmt: skip
        bound = [part for *_, part in boundByMemory(plan, options.arch)]
        if bound:
            print(f"{len(bound):8} launches are bound by memory, with at least {min(bound):.0%} occupancy")


if __name__ == "__main__":
    main()
