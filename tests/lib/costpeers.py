"""Costs beside those of PyTorch, or beside their definition written in torch: value and all gradients."""

import numpy as np

from puregraph.compile import Program
from puregraph.graph import Graph, Input

REDUCTIONS = ("mean", "sum", "none")


def reducedBy(terms, reduction, weight=None, divisor=None):
    """Terms of torch as a cost reduces them, times the weight of their sample."""
    if weight is not None:
        terms = terms * weight.reshape(-1, *(1,) * (terms.ndim - 1))
    if reduction == "none":
        return terms
    count = max(terms.numel(), 1) if divisor is None else divisor
    return terms.sum() if reduction == "sum" else terms.sum() / count


def agrees(cost, theirs, arrays, rng, compiled=False, tolerance=1e-10):
    """Compare value and gradients of a cost with those of `theirs`, a function of tensors in the same order."""
    import torch

    tensors = [None if a is None else torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wanted = theirs(*tensors)
    seed = np.asarray(rng.normal(size=tuple(wanted.shape)))
    if wanted.requires_grad:
        wanted.backward(torch.tensor(seed))
    slopes = [t.grad.numpy() if t is not None and t.grad is not None else None for t in tensors]
    given = [a for a in arrays if a is not None]
    places = [i for i, a in enumerate(arrays) if a is not None]
    value = cost(*given)
    cost.backward(seed)
    grads = cost.grad if isinstance(cost.grad, list) else [cost.grad]
    runs = [("eager", value, grads)]
    if compiled:
        nodes = [Input(name=f"i{i}").node() for i in range(len(given))]
        program = Program(Graph(nodes, cost(*nodes)), [a.shape for a in given], [a.dtype for a in given], grads=(True,))
        y = program.run(*given, seed)
        runs.append(
            (
                "compiled",
                y[0] if isinstance(y, list) else y,
                program.grad if isinstance(program.grad, list) else [program.grad],
            )
        )
    for how, y, gradients in runs:
        near(y, wanted.detach().numpy(), tolerance, f"{how} value of {cost!r}")
        for i, place in enumerate(places):
            if arrays[place].dtype.kind == "f":
                slope = np.zeros(arrays[place].shape) if slopes[place] is None else slopes[place]
                near(gradients[i], slope, tolerance, f"{how} gradient {i} of {cost!r}")


def near(actual, wanted, tolerance, what):
    """Raise unless two arrays are equal to a tolerance, relative to the largest value."""
    assert actual is not None, f"no {what}"
    scale = max(1.0, float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)))
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def shapeOf(rng, least=0, most=3):
    """A random odd shape, now and then of no samples."""
    return (
        int(rng.integers(0 if rng.random() < 0.1 else 1, 7)),
        *rng.integers(1, 6, rng.integers(least, most)).tolist(),
    )


def scores(rng, shape):
    """Normal values, some of them extreme."""
    x = rng.normal(size=shape)
    return np.where(rng.random(shape) < 0.1, x * 40, x)
