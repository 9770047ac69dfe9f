"""PyTorch's own list of optimizers and settings, `optim_db`, through an adapter."""

import numpy as np
import pytest

from puregraph import optimizers
from puregraph.core.param import Param
from puregraph.graph.module import Module

NAMES = {  # of PyTorch's arguments here
    "lr": "learnRate",
    "weight_decay": "decay",
    "maximize": "maximise",
    "eps": "epsilon",
    "rho": "rho",
    "amsgrad": "amsgrad",
    "momentum": "momRate",
    "dampening": "dampening",
    "centered": "centered",
    "alpha": "factor",
    "lambd": "shrinking",
    "t0": "begin",
    "momentum_decay": "psi",
    "decoupled_weight_decay": "decoupled",
    "lr_decay": "rateDecay",
    "initial_accumulator_value": "startSquares",
    "beta2_decay": "fading",
    "d": "clip",
    "tolerance_grad": "gradTolerance",
}
CLASSES = {"Adagrad": "AdaGrad", "Adadelta": "AdaDelta", "RMSprop": "RMSProp"}
DEFAULTS = {  # of PyTorch's classes, where they differ from those here
    "AdaDelta": {"rho": 0.9},
    "AdaGrad": {"learnRate": 0.01, "epsilon": 1e-10},
    "AdamW": {"decay": 0.01},
    "RMSProp": {"learnRate": 0.01, "factor": 0.99, "epsilon": 1e-8},
    "LBFGS": {"history": 100},
}
LEFT = {  # what does not fit, and why
    "SparseAdam": "gradients are arrays here, none is sparse",
    "Muon": "PyTorch iterates in bfloat16; the formula is compared in test_peersandpapers",
}


class Bag(Module):
    def __init__(self, rng):
        super().__init__()
        for number, shape in enumerate(((3, 5), (5,), (2, 3, 4))):
            setattr(self, f"p{number}", Param(shape, lambda g, s: rng.standard_normal(s), "float64"))


def settings():
    """(class, arguments) of PyTorch's list; empty without PyTorch or what its list needs."""
    try:
        from torch.testing._internal.common_optimizers import optim_db
    except Exception:
        return []
    return [
        pytest.param(info.optim_cls.__name__, entry.kwargs, id=f"{info.optim_cls.__name__}-{entry.desc}")
        for info in optim_db
        for entry in info.optim_inputs_func(device="cpu")
    ]


def ours(name, arguments):
    """The optimizer here with these arguments of PyTorch's."""
    label = CLASSES.get(name, name)
    if name == "SGD" and arguments.get("momentum"):
        label = "NesterovSGD" if arguments.get("nesterov") else "MomentumSGD"
    options = dict(DEFAULTS.get(label, {}))
    for key, value in arguments.items():
        if key == "etas":
            options["fall"], options["rise"] = value
        elif key == "step_sizes":
            options["least"], options["most"] = value
        elif key == "line_search_fn":
            options["lineSearch"] = "wolfe"
        elif key != "nesterov":
            options[NAMES[key]] = float(value) if key == "lr" else value
    if name == "SGD":
        options.setdefault("learnRate", 1e-3)
    return getattr(optimizers, label)(**options)


@pytest.mark.peers
@pytest.mark.parametrize(("name", "arguments"), settings())
def test_an_entry_of_pytorchs_list_takes_its_steps(name, arguments):
    import torch

    if name in LEFT:
        pytest.skip(f"{name}: {LEFT[name]}")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        rng = np.random.default_rng(0)
        net = Bag(rng)
        wanted = [rng.standard_normal(p.shape) for p in net.params.values()]
        params = [torch.tensor(np.array(p.data), requires_grad=True) for p in net.params.values()]
        optimizer, peer = ours(name, arguments).setupOn(net), getattr(torch.optim, name)(params, **arguments)

        def closure():
            cost = 0.0
            for p, w in zip(net.params.values(), wanted):
                p.grad = 2 * (p.data - w) + 0.4 * (p.data - w) ** 3
                cost += float(((p.data - w) ** 2 + 0.1 * (p.data - w) ** 4).sum())
            return cost

        def theirs():
            peer.zero_grad()
            loss = sum(
                ((p - torch.tensor(w)) ** 2 + 0.1 * (p - torch.tensor(w)) ** 4).sum() for p, w in zip(params, wanted)
            )
            loss.backward()
            return loss

        isSearching = "line_search_fn" in arguments
        for _ in range(3 if name == "LBFGS" else 15):
            if name == "LBFGS":
                optimizer.update(closure)
                peer.step(theirs)
            else:
                closure()
                theirs()
                optimizer.update()
                peer.step()
        for p, q in zip(net.params.values(), params):
            tolerance = 1e-4 if isSearching else 1e-9  # two line searches end near the same minimum
            np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=tolerance, atol=tolerance)
    finally:
        torch.set_default_dtype(before)
