"""puregraph: a compiled Program where this version compiles, and the eager path."""

import inspect

import numpy as np

import puregraph as pg
from benchmarks import workloads
from benchmarks.contenders import AbsentError
from puregraph.compile import Program, Updater
from puregraph.core import device
from puregraph.core.rules import gradientRule
from puregraph.optimizers import AdamW, MomentumSGD

COSTS = {"crossentropy": pg.CrossEntropy, "mse": pg.MSE, "bce": pg.BCE}
OPTIMIZERS = {"sgd": lambda: MomentumSGD(workloads.RATE, 0.9), "adamw": lambda: AdamW(workloads.RATE)}


def begin(threads):
    """The number of threads is in the environment."""


def number(result):
    """The root mean square of a step's result."""
    return float(np.sqrt(np.mean(np.square(device.toHost(result), dtype=np.float64))))


def wait():
    """Wait until a GPU has completed all launches."""
    device.synchronize()


def mark():
    """An event after a GPU's launches; None where there is none."""
    if device.name() != "cuda":
        return None
    event = device.arrays().cuda.Event()
    event.record()
    return event


def between(first, last):
    """Seconds from one event to another."""
    return None if first is None else device.arrays().cuda.get_elapsed_time(first, last) / 1000


def writeWeights(name, path):
    """The initial values of all parameters, in the order in which the graph has them."""
    np.savez(path, *[device.toHost(p.data) for p in network(name, None).params.values()])


def network(name, weights):
    """The graph, with the weights of a file where one is given."""
    pg.seed(0)
    net = workloads.load(name).ours()
    if weights is not None:
        with np.load(weights) as found:
            for p, key in zip(net.params.values(), found.files, strict=True):
                p.data[...] = device.toDevice(found[key])
    return net


def prepare(name, mode, batch, weights, compiled, precision=None):
    """A step, and notes about it; its inputs are stored on its device."""
    if compiled and not hasattr(pg.Graph, "compile"):
        raise AbsentError("this version does not compile")
    if mode == "kernel":
        return (compiledKernel if compiled else kernel)(name), {}
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
    """A module's rule on given arguments; and its gradient rule, for a kernel that goes backward."""
    case = workloads.load("kernels").KERNELS[name]
    if case.optimizer:
        return update(case)
    arguments = case.make()
    module = case.module().trainMode()
    module.calcMode(np.float32)
    if not case.backward:
        return lambda: first(module.updateData(*arguments))
    rule = gradientRule(module, case.needs())
    grad = case.gradFor(first(module.updateData(*arguments)))

    def step():
        made = module.updateData(*arguments)
        found = rule(grad, *arguments, *(made if isinstance(made, tuple) else (made,)))
        return next(g for g in found if g is not None) if isinstance(found, tuple) else found

    return step


def compiledKernel(name):
    """The same as a Program of one module; the arguments after the inputs are its parameters."""
    case = workloads.load("kernels").KERNELS[name]
    if case.optimizer:
        return update(case, compiled=True)
    module, inputs = case.module(), []
    stored = {**module.params, **module.states}
    for argument, values in zip(inspect.signature(module.updateData).parameters, case.make(), strict=True):
        if argument in stored:
            stored[argument].data = values
        elif values is not None:
            inputs.append(values)
    nodes = [pg.Input().node() for _ in inputs]
    net = pg.Graph(nodes, module.node(*nodes)).trainMode()
    shapes = [x.shape for x in inputs]
    if not case.backward:
        program = Program(net, shapes, train=True)
        return lambda: program.run(*inputs)
    program = net.compile(shapes, train=True)
    made = Program(net, shapes, train=True).run(*inputs)
    grads = [case.gradFor(made)] if made.ndim else []

    def step():
        program.run(*inputs, *grads)
        given = program.grad if isinstance(program.grad, (list, tuple)) else [program.grad]
        return next(g for g in (*given, *(p.grad for p in net.params.values())) if g is not None)

    return step


def first(result):
    """The visible output of a rule."""
    return result[0] if isinstance(result, tuple) else result


def update(case, compiled=False):
    """An optimizer's update of one large parameter."""
    param, grad = case.make()
    layer = pg.Linear(*param.shape, useBias=False)
    layer.W.data, layer.W.grad = param, grad
    optimizer = AdamW(workloads.RATE).setupOn(layer)
    run = Updater(pg.Sequential(layer), optimizer).run if compiled else optimizer.update

    def step():
        run()
        return layer.W.data[:1]

    return step
