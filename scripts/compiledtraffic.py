"""Counts what a training step of torch.compile launches, reads and writes on a GPU; nothing is computed or generated.

    python scripts/compiledtraffic.py resnet50 gpt2     launches, GB and estimated ms, as scripts/roofline.py has ours

PyTorch's build for CPUs makes no code for a GPU, but what decides which operations share a kernel runs in Python:
AOTAutograd with Inductor's decompositions and its partitioner, Inductor's lowering, and its scheduler with the rules of
its backend for Triton. The step of benchmarks/contenders/torch.py goes through them, and of each kernel that the
scheduler would have generated the buffers are counted that it reads and writes, each once; products, convolutions and
attention as in scripts/eagertraffic.py, and so the fused optimizer, which torch.compile leaves as it is. Left out are
the second stages of reductions that are split, rows that a kernel reads again as registers cannot hold them, and
what attention computes, of which the bytes alone are counted: its estimated time is too short.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
sys.path += [str(HERE), str(HERE / "scripts")]

import eagertraffic  # noqa: E402 - found through the line above
import roofline  # noqa: E402
import torch  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._functorch.aot_autograd import make_boxed_func  # noqa: E402
from torch._functorch.partitioners import min_cut_rematerialization_partition  # noqa: E402
from torch._inductor import compile_fx, config, graph, scheduler  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.contenders import torch as side  # noqa: E402


class ScheduledError(Exception):
    """What ends Inductor once a graph is scheduled."""


class BothKnown(BaseException):
    """What ends the step once forward and backward are scheduled."""


def rowsOf(node):
    """The rows (name, launches, bytes, seconds) of a node of the scheduler."""
    size, seconds, name = node.get_read_write_buffers_sizes(), 0.0, node.get_name()
    if isinstance(node, scheduler.NopKernelSchedulerNode) or not size:  # one of several results of a call
        return []
    if isinstance(node, scheduler.ExternKernelSchedulerNode):
        origin = node.node.get_origin_node()
        name = str(node.node.get_name() if origin is None else origin.target)
        if origin is not None and hasattr(origin.target, "overloadpacket"):
            args, options = (
                torch.fx.node.map_arg(each, lambda n: n.meta["val"]) for each in (origin.args, origin.kwargs)
            )
            seconds = eagertraffic.TrafficCounter().computing(origin.target, args, options, origin.meta["val"])
    seconds = max(seconds, size / roofline.BANDWIDTH)
    return [(name, 1, size, seconds + roofline.BETWEEN + roofline.EXTRA * (seconds < roofline.SHORT))]


def emptied(x):
    """A tensor of the same layout, whose memory nobody touches."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) if isinstance(x, torch.Tensor) else x


def step(name):
    """The rows of a training step."""
    batch, precision = roofline.traffic.CASES[name]
    workload, found = workloads.load(name), []

    def codegen(self):
        self.init_wrapper_code()
        self._update_scheduler()
        found.extend(row for node in self.scheduler.nodes for row in rowsOf(node))
        raise ScheduledError

    def compiler(isBackward):
        def compiled(module, inputs):
            try:
                compile_fx.compile_fx_inner(module, inputs, is_backward=isBackward)
            except Exception as error:
                if not isinstance(getattr(error, "inner_exception", error), ScheduledError):
                    raise
            if isBackward:
                raise BothKnown
            results = [
                each.meta["val"] if hasattr(each, "meta") else each for each in module.graph.output_node().args[0]
            ]
            return make_boxed_func(lambda *inputs: [emptied(each) for each in results])

        return compiled

    backend = aot_autograd(
        fw_compiler=compiler(False),
        bw_compiler=compiler(True),
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
    )
    graph.GraphLowering.codegen, config.cpu_backend, config.force_disable_caches = codegen, "triton", True
    arrays, target = workloads.dataOf(workload, 1)
    net = workload.torch(torch).train()
    inputs = [torch.empty((batch * x.shape[0], *x.shape[1:]), dtype=eagertraffic.kindOf(x)) for x in arrays]
    goal = torch.zeros((batch * target.shape[0], *target.shape[1:]), dtype=eagertraffic.kindOf(target))
    if workload.IMAGES:
        net = net.to(memory_format=side.LAST)
        inputs = [x.contiguous(memory_format=side.LAST) if x.ndim == 4 else x for x in inputs]
    cost = side.costOf(workload.COST)

    def forward(target, *inputs):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return cost(net(*inputs), target)

    try:
        torch.compile(forward, backend=backend, dynamic=False)(goal, *inputs).backward()
    except BothKnown:
        pass
    return found + [row for row in eagertraffic.step(name) if row[0].startswith("_fused")]


if __name__ == "__main__":
    eagertraffic.main(step, __doc__)
