"""Modules side by side with PyTorch: the same numbers through both, values and every gradient compared."""

import numpy as np

from puregraph.graph.backward import BackwardGraph  # noqa: F401 - a Graph needs it to go backward

CLOSE = {np.float64: 1e-10, np.float32: 1e-5}  # of the largest value


def prepared(module, rng):
    """The module in float64, with random parameters."""
    module.calcMode(np.float64)
    for p in module.params.values():
        p.data = rng.standard_normal(p.shape)
    return module


def ours(module, inputs, grad, dtype=np.float64):
    """Output, gradients of float inputs and of parameters, computed in the dtype; parameters keep their values."""
    module.calcMode(dtype)
    y = module(*(x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs))
    module.backward(grad.astype(dtype))
    grads = module.grad if isinstance(module.grad, list) else [module.grad]
    found = [y, *(g for g in grads if g is not None), *(p.grad for p in module.params.values())]
    module.calcMode(np.float64)
    return found


def theirs(rule, module, inputs, grad):
    """The same from PyTorch in float64: rule(*inputs, *parameters) on tensors."""
    import torch  # only tests marked "peers" come here

    tensors = [torch.from_numpy(np.array(x)) for x in (*inputs, *(p.data for p in module.params.values()))]
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    y = rule(*tensors)
    y.backward(torch.from_numpy(np.array(grad)))
    return [y.detach().numpy(), *(t.grad.numpy() for t in leaves)]


def agree(got, wanted, dtype=np.float64):
    """Shapes are equal, and values close, relative to the largest."""
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == dtype and a.shape == b.shape
        scale = max(1.0, np.abs(b).max(initial=0))
        assert np.abs(a - b).max(initial=0) <= CLOSE[dtype] * scale


def compare(module, rule, rng, *inputs):
    """Both, in float64 and float32, on random parameters and a random gradient."""
    prepared(module, rng)
    shape = module.dataShapeFrom(*(x.shape for x in inputs))
    grad = rng.standard_normal(shape)
    wanted = theirs(rule, module, inputs, grad)
    for dtype in CLOSE:
        agree(ours(module, inputs, grad, dtype), wanted, dtype)
