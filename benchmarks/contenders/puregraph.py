"""puregraph: a compiled Program where this version compiles, and the eager path."""

import numpy as np

import puregraph as pg
from benchmarks import workloads
from benchmarks.contenders import AbsentError
from puregraph import device
from puregraph.optimizers import AdamW, MomentumSGD
from puregraph.rules import gradientRule

COSTS = {"crossentropy": pg.CrossEntropy, "mse": pg.MSE, "bce": pg.BCE}
OPTIMIZERS = {"sgd": lambda: MomentumSGD(workloads.RATE, 0.9), "adamw": lambda: AdamW(workloads.RATE)}


def begin(threads):
    """The number of threads is in the environment."""


def number(result):
    """The root mean square of what a step gave."""
    return float(np.sqrt(np.mean(np.square(device.toHost(result), dtype=np.float64))))


def wait():
    """Until a GPU has done all that it was given."""
    device.synchronize()


def mark():
    """An event behind what a GPU has been given; None where there is none."""
    if device.name() != "cuda":
        return None
    event = device.arrays().cuda.Event()
    event.record()
    return event


def between(first, last):
    """Seconds from one event to another."""
    return None if first is None else device.arrays().cuda.get_elapsed_time(first, last) / 1000


def writeWeights(name, path):
    """The starting values of all parameters, in the order in which the graph has them."""
    np.savez(path, *[device.toHost(p.data) for p in network(name, None).params.values()])


def network(name, weights):
    """The graph, with the weights of a file where one is given."""
    pg.seed(0)
    net = workloads.load(name).ours()
    if weights is not None:
        with np.load(weights) as found:
            for p, key in zip(net.params.values(), found.files, strict=True):
                p.data[...] = found[key]
    return net


def prepare(name, mode, batch, weights, compiled, precision=None):
    """A step, and what there is to say of it; its inputs lie where it computes."""
    if compiled and not hasattr(pg.Graph, "compile"):
        raise AbsentError("this version does not compile")
    if mode == "kernel":
        return kernel(name), {}
    workload = workloads.load(name)
    net = network(name, weights)
    if precision is not None:
        net.calcMode(precision)
    inputs, target = workloads.dataOf(workload, batch)
    inputs, target = [device.toDevice(x) for x in inputs], device.toDevice(target)
    arguments = net, inputs, target, workload
    make = {"train": (eagerTrain, compiledTrain), "infer": (eagerInfer, compiledInfer)}[mode][compiled]
    return make(*arguments)


def compiledTrain(net, inputs, target, workload):
    """One step of training as a Program."""
    net.trainMode()
    cost, optimizer = COSTS[workload.COST](), OPTIMIZERS[workload.OPTIMIZER]()
    shapes = [*(x.shape for x in inputs), target.shape]
    wanted = [True, *[False] * len(net.outputNames)]  # as everybody, only the cost
    program = net.compile(shapes, cost=cost, optimizer=optimizer, train=True, wanted=wanted, keepGrads=False)
    return lambda: program.run(*inputs, target)[0], {"predicted": program.bytes}


def compiledInfer(net, inputs, target, workload):
    """The outputs as a Program."""
    net.evalMode()
    program = net.compile([x.shape for x in inputs], train=False)
    return lambda: program.run(*inputs), {"predicted": program.bytes}


def eagerTrain(net, inputs, target, workload):
    """One step of training, module by module."""
    cost, optimizer = COSTS[workload.COST](), OPTIMIZERS[workload.OPTIMIZER]()
    nodes, wanted = [pg.Input().node() for _ in inputs], pg.Input().node()
    whole = pg.Graph([*nodes, wanted], cost.node(net.node(*nodes), wanted)).trainMode()
    optimizer.setupOn(whole)

    def step():
        loss = whole(*inputs, target)
        whole.backward(updGrad=False)
        optimizer.update()
        return loss

    return step, {}


def eagerInfer(net, inputs, target, workload):
    """The outputs, module by module."""
    net.evalMode()
    return lambda: net(*inputs), {}


# Single kernels -------------------------------------------------------------------------------------------------------


def kernel(name):
    """A module's rule on given arguments; its gradient rule for a kernel that goes backward."""
    case = workloads.load("kernels").KERNELS[name]
    if case.optimizer:
        return update(case)
    arguments = case.make()
    module = case.module().trainMode()
    module.calcMode(np.float32)
    if not case.backward:
        return lambda: first(module.updateData(*arguments))
    made = module.updateData(*arguments)
    outputs = made if isinstance(made, tuple) else (made,)
    grad, rule = case.gradFor(outputs[0]), gradientRule(module, case.needs())

    def step():
        found = rule(grad, *arguments, *outputs)
        return next(g for g in found if g is not None) if isinstance(found, tuple) else found

    return step


def first(result):
    """The visible output of a rule."""
    return result[0] if isinstance(result, tuple) else result


def update(case):
    """An optimizer's update of one large parameter."""
    param, grad = case.make()
    layer = pg.Linear(*param.shape, useBias=False)
    layer.W.data, layer.W.grad = param, grad
    optimizer = AdamW(workloads.RATE).setupOn(layer)

    def step():
        optimizer.update()
        return layer.W.data[:1]

    return step
