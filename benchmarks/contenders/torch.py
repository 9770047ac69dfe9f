"""PyTorch at its best settings: fused optimizers, inference mode or frozen weights, denormals flushed to zero.

On a GPU: channels last, float32 that is float32 (no tf32), bfloat16 by autocast, cuDNN's own search for algorithms.
"""

import os
from contextlib import nullcontext

import numpy as np
import torch

from benchmarks import workloads

LAST = torch.channels_last
ON = {"cuda": "cuda"}.get(os.environ.get("PUREGRAPH_DEVICE"), "cpu")  # where everybody computes
if ON == "cuda":
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def begin(threads):
    """One pool of `threads` threads, which flush denormal numbers: later threads inherit that from this one."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)


def wait():
    """Wait until a GPU has completed all launches."""
    if ON == "cuda":
        torch.cuda.synchronize()


def mark():
    """An event after a GPU's launches; None where there is none."""
    if ON != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(first, last):
    """Seconds from one event to another."""
    return None if first is None else first.elapsed_time(last) / 1000


def number(result):
    """The root mean square of a step's result."""
    return float(result.detach().double().square().mean().sqrt())


def costOf(name):
    """The cost as a function of output and target."""
    F = torch.nn.functional
    return {"crossentropy": F.cross_entropy, "mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits}[name]


def optimizerOf(name, params):
    """The optimizer, in its fused form."""
    if name == "adamw":
        return torch.optim.AdamW(params, lr=workloads.RATE, fused=True)
    return torch.optim.SGD(params, lr=workloads.RATE, momentum=0.9, fused=True)


def fill(net, arrays):
    """Give a network the weights of a puregraph Graph: matrices transposed, and the second bias of an LSTM zero."""
    given, seen = iter(arrays), set()
    for module in net.modules():
        params = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, params))
        if isinstance(module, torch.nn.LSTM):
            for i in range(0, len(params), 4):
                for p in params[i : i + 3]:
                    put(p, next(given).T)
                put(params[i + 3], np.zeros(params[i + 3].shape, np.float32))
        else:
            for p in params:
                array = next(given)
                put(p, array.T if isinstance(module, torch.nn.Linear) else array)
    rest = len(list(given))
    if rest:
        raise ValueError(f"wanted as many weights as the network has, got {rest} more")
    return net


def put(p, array):
    """Copy an array into a parameter of its shape."""
    if tuple(p.shape) != array.shape:
        raise ValueError(f"wanted a weight of shape {tuple(p.shape)}, got {array.shape}")
    with torch.no_grad():
        p.copy_(torch.from_numpy(np.array(array)))


def network(workload, weights):
    """The network, with the weights of a file where one is given."""
    net = workload.torch(torch)
    if weights is not None:
        with np.load(weights) as found:
            fill(net, (found[key] for key in found.files))
    return net


def prepare(name, mode, batch, weights, compiled=False, channelsLast=False, precision=None):
    """A step, and notes about it; `compiled` may be a mode of torch.compile."""
    if mode == "kernel":
        return kernel(name, channelsLast), {}
    workload = workloads.load(name)
    channelsLast = channelsLast or (ON == "cuda" and workload.IMAGES)
    net = network(workload, weights).to(ON)
    inputs, target = workloads.dataOf(workload, batch)
    inputs, target = [torch.from_numpy(x).to(ON) for x in inputs], torch.from_numpy(target).to(ON)
    if channelsLast:
        net = net.to(memory_format=LAST)
        inputs = [x.contiguous(memory_format=LAST) if x.ndim == 4 else x for x in inputs]
    if mode == "train":
        return train(net, inputs, target, workload, compiled, precision), {}
    step = frozen if compiled else infer
    return step(net, inputs, target, workload, compiled), {}


def train(net, inputs, target, workload, compiled, precision):
    """Forward, cost, backward and update."""
    cost, optimizer = costOf(workload.COST), optimizerOf(workload.OPTIMIZER, net.train().parameters())

    def forward(target, *inputs):
        with torch.autocast(ON, torch.bfloat16) if precision == "bfloat16" else nullcontext():
            return cost(net(*inputs), target)

    if compiled:
        forward = torch.compile(forward, **({} if compiled is True else {"mode": compiled, "dynamic": False}))

    def step():
        if ON == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = forward(target, *inputs)
        loss.backward()
        optimizer.step()
        return loss

    return step


def infer(net, inputs, target, workload, compiled):
    """The outputs alone."""
    net.eval()

    @torch.inference_mode()
    def step():
        return net(*inputs)

    return step


def frozen(net, inputs, target, workload, compiled):
    """The outputs from a compiled network whose weights are constants."""
    torch._inductor.config.freezing = True
    run = torch.compile(net.eval())

    @torch.no_grad()  # freezing refuses inference_mode
    def step():
        return run(*inputs)

    return step


# Single kernels -------------------------------------------------------------------------------------------------------


def kernel(name, channelsLast):
    """A function of torch on given arguments; and its gradients, for a kernel that goes backward."""
    case = workloads.load("kernels").KERNELS[name]
    if case.optimizer:
        return update(case)

    def tensor(x):
        if x is None:
            return None
        x = torch.from_numpy(x)
        return x.contiguous(memory_format=LAST) if channelsLast and x.ndim == 4 else x

    arguments = [tensor(x) for x in case.make()]
    function = case.torch(torch)
    if not case.backward:
        return torch.inference_mode()(lambda: function(*arguments))
    leaves = [x.requires_grad_() for x, needed in zip(arguments, case.needs()) if needed]
    grad = tensor(case.gradFor(function(*arguments).detach().numpy()))
    return lambda: torch.autograd.grad(function(*arguments), leaves, grad)[0]


def update(case):
    """An optimizer's update of one large parameter."""
    param, grad = case.make()
    p = torch.from_numpy(param).requires_grad_()
    p.grad = torch.from_numpy(grad)
    optimizer = torch.optim.AdamW([p], lr=workloads.RATE, fused=True)

    def step():
        optimizer.step()
        return p[:1]

    return step
