"""Compiles, on any machine, the kernels and plans of a GPU, into a folder that is carried to it.

    python scripts/prebuild.py                          what benchmarks, modules and tests need, in .prebuilt/
    python scripts/prebuild.py benchmarks --arch sm_80  some of it, for another GPU
    python scripts/prebuild.py --properties device.json plans for the device that scripts/probe.py has described

Kernels need NVRTC. Plans need cuDNN with its frontend, and a C compiler; without them there are none, and the GPU's
minutes go into making them. The folder serves as PUREGRAPH_CACHE; `scripts/gpu.sh` takes .prebuilt/ for it by itself.
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import plans

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(1, str(ROOT))

from benchmarks import floors, gpu, workloads  # noqa: E402 - found through the line above
from benchmarks.contenders import puregraph as side  # noqa: E402
from puregraph import modules  # noqa: E402
from puregraph.compile import program  # noqa: E402
from puregraph.compile.backend import GPU  # noqa: E402
from puregraph.compile.gpu.lower.copylaunch import startsOf  # noqa: E402
from puregraph.core import device  # noqa: E402
from puregraph.core.storage import diskcache  # noqa: E402
from puregraph.graph import Graph  # noqa: E402
from puregraph.graph.input import Input  # noqa: E402
from puregraph.modules import costs  # noqa: E402
from puregraph.ops.cuda.libraries import cudnn  # noqa: E402
from puregraph.ops.cuda.runtime import compiler  # noqa: E402
from puregraph.ops.cuda.runtime.launch import Launch  # noqa: E402

BROKEN = ("_broken", "_dependent", "_emulator")  # files of tests whose kernels no GPU is asked to run


class Wanted:
    """What programs would start: texts of kernels, and tasks of cuDNN by their own text; `left` are calls for which
    there is neither."""

    def __init__(self):
        self.sources, self.tasks, self.left = set(), {}, []

    def take(self, starts):
        """Note launches and calls of libraries."""
        self.sources |= {each.source for each in starts if isinstance(each, Launch)}
        self.tasks |= {each.name: each.task for each in starts if isinstance(each, cudnn.CudnnCall)}


@contextmanager
def onPaper(wanted):
    """Have programs be made for a GPU that is not there, and noted; none can run."""

    class Noted:
        neverWarns, isStale, packing = True, False, None

        def __init__(self, plan, workspace, poison=False):
            self.plan = plan
            wanted.left += [call for call in plan.schedule.calls if not (call.kind.isNative or call.kind.isView)]
            wanted.take(startsOf(plan))

    before = program.backendFor
    program.backendFor = lambda graph, dtype: GPU._replace(build=Noted)
    try:
        yield
    finally:
        program.backendFor = before


# What is asked for ----------------------------------------------------------------------------------------------------


def benchmarks(wanted):
    """The steps that benchmarks/gpu.py compares, and its single kernels."""
    with onPaper(wanted):
        for case in filter(None, gpu.CASES.values()):
            workloads.resize(case.workload, case.settings)
            side.prepare(case.workload, "train", case.batch, None, compiled=True, precision=case.precision)
        floors.randoms = lambda precision, *shape: np.broadcast_to(np.zeros((), precision), shape)
        floors.words = lambda count, *shape: np.broadcast_to(np.int64(0), shape)
        for floor in floors.FLOORS:
            floor.make(floor.precision or "float16", *floor.sizes)


def examples(wanted):
    """Programs of the examples of every module and cost, as the suite has them on a GPU."""
    for package in (modules, costs):
        for found in map(package.__dict__.get, package.__all__):
            for dtype in (np.float32, np.float64):
                for train in (True, False):
                    exampleOf(wanted, found, dtype, train)


def exampleOf(wanted, found, dtype, train):
    """The examples of one class."""
    for module, shapes in found.examples():
        given = module.calcMode(dtype).sample(np.random.default_rng(0), *shapes)
        dtypes = [dtype if np.asarray(x).dtype.kind == "f" else np.asarray(x).dtype for x in given]
        nodes = [Input().node() for _ in given]
        with onPaper(wanted):
            Graph(nodes, module.node(*nodes)).compile([np.shape(x) for x in given], dtypes=dtypes, train=train)


def tests(wanted):
    """What the tests of kernels compile, which run for it."""
    import pytest  # only wanted here

    before, said = compiler.cubin, StringIO()

    def noted(source, arch):
        wanted.sources.add(source)
        return before(source, arch)

    compiler.cubin = noted
    files = [str(path) for path in sorted(ROOT.glob("tests/cuda/test_cuda_*.py")) if not path.stem.endswith(BROKEN)]
    try:
        with redirect_stdout(said):
            pytest.main(["-q", "-p", "no:cacheprovider", "-m", "emulator and not slow", *files])
    finally:
        compiler.cubin = before
    print(f"tests of kernels: {said.getvalue().splitlines()[-1].strip()}")


PARTS = {"benchmarks": benchmarks, "examples": examples, "tests": tests}


# Compiling ------------------------------------------------------------------------------------------------------------


def kernels(wanted, arch, folder):
    """Compile all texts into a folder: a line on it."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as other:
        tempfile.tempdir = other  # where else kernels might be found
        os.environ["PUREGRAPH_CACHE"] = str(folder)
        compiler.KNOWN.clear()
        compiler.compileAll(sorted(wanted.sources), arch)
        tempfile.tempdir = None
    return f"{len(wanted.sources)} texts of kernels for {arch} in {time.monotonic() - begun:.0f} s"


def planned(wanted, properties):
    """Plan all tasks of cuDNN into the folder of this process: a line on it."""
    begun = time.monotonic()
    planner = cudnn.CudnnPlanner(Path(properties).read_text())
    made = [planner.plan(task) for task in wanted.tasks.values()]
    missing = sum(plan is None for plan in made)
    return f"{len(made)} plans of cuDNN {planner.label} in {time.monotonic() - begun:.0f} s, {missing} without any"


def size(folder):
    """How much there is in a folder."""
    files = list(Path(folder).glob(f"*{diskcache.SUFFIX}"))
    return f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in {folder}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--arch", default="sm_90", help="which GPU's machine code (sm_90)")
    parser.add_argument("--folder", default=str(ROOT / ".prebuilt"), help="where it goes (.prebuilt)")
    parser.add_argument("--properties", default=str(plans.H200), metavar="FILE", help="what tells cuDNN the device")
    options = parser.parse_args()
    device.useDevice("cpu")
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    wanted = Wanted()
    if plans.STUB in os.environ:
        benchmarks(wanted)
        print(planned(wanted, options.properties))
        return 0
    for part in options.parts or PARTS:
        PARTS[part](wanted)
    print(compiler.missing() or kernels(wanted, options.arch, options.folder))
    if wanted.tasks:
        print(cudnn.missing() or "planning by cuDNN", flush=True)
        if cudnn.missing() is None:
            plans.again(options.folder)
    print(size(options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
