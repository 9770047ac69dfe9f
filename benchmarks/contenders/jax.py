"""JAX: the whole step under one jit with donated buffers, images with channels last."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workloads
from benchmarks.contenders import AbsentError
from benchmarks.contenders.layers import Layers


def begin(threads):
    """XLA's pool is as large as the set of processors that this process may use."""
    jax.devices()


ONGPU = os.environ.get("PUREGRAPH_DEVICE") == "cuda"
LAST = []  # what the last step gives, where nobody waited for it


def wait():
    """Wait until a GPU has completed all launches."""
    jax.block_until_ready(LAST)


def mark():
    """There are no events to be had."""


def between(first, last):
    """Nor times by them."""


def number(result):
    """The root mean square of a step's result."""
    return float(np.sqrt(np.mean(np.square(result, dtype=np.float64))))


def costOf(name, output, target):
    """The cost of an output."""
    if name == "mse":
        return jnp.mean((output - target) ** 2)
    if name == "bce":
        return jnp.mean(jax.nn.softplus(output) - target * output)
    log = jax.nn.log_softmax(output)
    return -jnp.take_along_axis(log, target[..., None], -1).mean()


def prepare(name, mode, batch, weights, precision="float32"):
    """A step, and notes about it."""
    if precision != "float32":
        raise AbsentError("JAX takes part in float32 only")
    workload = workloads.load(name)
    inputs, target = workloads.dataOf(workload, batch)
    inputs = [jnp.asarray(workloads.withPixelsLast(x)) for x in inputs]
    made = Layers.making(weights, mode == "train")
    jax.eval_shape(functools.partial(workload.jax, made), *inputs)
    params, states = made.finish()

    def forward(params, states, *inputs):
        net = Layers(params, states, mode == "train")
        return workload.jax(net, *inputs), net.changed

    if mode == "infer":
        run = jax.jit(lambda *given: forward(*given)[0])
        return lambda: jax.block_until_ready(run(params, states, *inputs)), {}
    return train(forward, params, states, inputs, jnp.asarray(target), workload), {}


def train(forward, params, states, inputs, target, workload):
    """Forward, cost, backward and update in one function."""
    first, update = {"sgd": (sgdState, sgd), "adamw": (adamwState, adamw)}[workload.OPTIMIZER]

    def loss(params, states, target, *inputs):
        output, changed = forward(params, states, *inputs)
        return costOf(workload.COST, output, target), changed

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params, states, slots, target, *inputs):
        (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(params, states, target, *inputs)
        return (value, changed, *update(params, grads, slots))

    held = [params, states, first(params)]

    def go():
        value, states, params, slots = step(*held, target, *inputs)
        held[:] = params, states, slots
        if not ONGPU:
            jax.block_until_ready((value, held))
        LAST[:] = value, held
        return value

    return go


def sgdState(params):
    """Velocities."""
    return [jnp.zeros_like(p) for p in params]


def sgd(params, grads, velocities):
    """v = 0.9 v + g, w = w - rate v"""
    velocities = [0.9 * v + g for v, g in zip(velocities, grads)]
    return [p - workloads.RATE * v for p, v in zip(params, velocities)], velocities


def adamwState(params):
    """First and second moments, and the number of steps."""
    return [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params], jnp.zeros(())


def adamw(params, grads, slots):
    """The rule of torch's AdamW with its default settings."""
    ms, vs, count = slots
    count, new = count + 1, []
    ms = [0.9 * m + 0.1 * g for m, g in zip(ms, grads)]
    vs = [0.999 * v + 0.001 * g * g for v, g in zip(vs, grads)]
    bias1, bias2 = 1 - 0.9**count, 1 - 0.999**count
    for p, m, v in zip(params, ms, vs):
        new.append(p * (1 - workloads.RATE * 0.01) - workloads.RATE / bias1 * m / (jnp.sqrt(v / bias2) + 1e-8))
    return new, (ms, vs, count)
