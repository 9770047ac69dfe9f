"""What the tests of formulas share: sample arguments of every function, differences, PyTorch's reading of a formula."""

import numpy as np

from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import walk
from puregraph.ops.formula.optable import TABLE

X, Y, Z = np.linspace(-2.13, 2.21, 40), np.linspace(1.87, -1.93, 40), np.linspace(0.31, 2.9, 40)
DOMAINS = dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "digamma", "trigamma", "pow"), (0.15, 4.2))
DOMAINS |= dict.fromkeys(("arcsin", "arccos", "arctanh", "erfinv"), (-0.9, 0.9))  # of the first argument
DOMAINS |= dict.fromkeys(("logit", "ndtri"), (0.05, 0.95))
DOMAINS |= {"log1p": (-0.8, 3.0), "arccosh": (1.1, 3.0), "reciprocal": (0.2, 3.0), "polygamma": (0.15, 4.2)}
DOMAINS |= {"cbrt": (0.2, 3.0)}  # away from where it is steep
SECOND = {"clip": np.full(40, -1.03), "xlogy": Z, "xlog1py": Z - 0.5, "%": Z + 0.3, "fmod": Z + 0.3, "/": Z}
THIRD = {"clip": np.full(40, 1.27)}
BOOLS = {"isnan", "isfinite", "isinf"}
FAMILIES = ("polygamma", "iv", "ive")  # their first argument is an order, here 1


def arguments(name):
    """Sample arguments of a function, in its domain, and away from kinks and ties."""
    first = X > 0 if name == "where" else np.linspace(*DOMAINS.get(name, (-2.13, 2.21)), 40)
    return (first, SECOND.get(name, Y), THIRD.get(name, Z))[: len(applied(name).names)]


def applied(name):
    """The function of a, b, c."""
    if name in FAMILIES:
        return Formula(f"{name}(1, a)")
    if not name.isidentifier():
        return Formula(f"a {name} b")
    return Formula(f"{name}({', '.join('abc'[: len(TABLE[name].pulls)])})")


def value(formula, names, values):
    """The formula at arrays of one shape, in that shape even if it has no names."""
    return np.broadcast_to(formula.numpy(names)(*values), values[0].shape).astype(float)


def slope(formula, name, values, h=1e-6):
    """Central differences in float64."""
    above, below = (formula(**{**values, name: values[name] + s}) for s in (h, -h))
    return (above - below) / (2 * h)


def inTorch(name):
    """PyTorch's function for a name of the table."""
    import torch  # only tests marked "peers" come here

    functional = torch.nn.functional
    other = {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "%": torch.remainder, "neg": torch.neg}
    other |= {"<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne}
    other |= {
        "and": torch.logical_and,
        "or": torch.logical_or,
        "not": torch.logical_not,
        "logndtr": torch.special.log_ndtr,
    }
    other |= {"clip": torch.clamp, "logsigmoid": functional.logsigmoid, "trigamma": lambda x: torch.polygamma(1, x)}
    other |= {"softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)), "cbrt": lambda x: x ** (1 / 3)}
    other |= {
        "polygamma": lambda n, x: torch.polygamma(int(n), x),
        "where": lambda c, a, b: torch.where(c.bool(), a, b),
    }
    other |= {"iv": lambda n, x: (torch.special.i0, torch.special.i1)[int(n)](x)}
    other |= {"ive": lambda n, x: (torch.special.i0e, torch.special.i1e)[int(n)](x)}
    return other.get(name) or getattr(torch, name, None) or getattr(torch.special, name)


def throughTorch(formula, tensors):
    """The formula's value, computed by PyTorch from tensors by name, all of one shape."""
    import torch  # only tests marked "peers" come here

    like = next(iter(tensors.values()))
    done = {}
    for t in walk(formula.term):
        if t.op == "name":
            done[t] = tensors[t.value]
        elif t.op == "number":
            done[t] = torch.full_like(like, float(t.value), requires_grad=False)
        else:
            arguments = [done[a].to(like.dtype) for a in t.args]
            done[t] = inTorch(t.op)(t.args[0].value if t.op in FAMILIES else arguments[0], *arguments[1:])
    return done[formula.term].to(like.dtype)


def torchDerivatives(formula, names, values):
    """The value, the derivative by the first name, that by the first and second, ...: from PyTorch; None where it has none."""
    import torch  # only tests marked "peers" come here

    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    y = throughTorch(formula, tensors)
    found = [y.detach().numpy()]
    for name in names:
        grad = None
        if y.requires_grad:
            try:
                (grad,) = torch.autograd.grad(y.sum(), tensors[name], create_graph=True, allow_unused=True)
            except (RuntimeError, NotImplementedError):
                return [*found, *[None] * (len(names) + 1 - len(found))]
        y = torch.zeros_like(tensors[name], requires_grad=False) if grad is None else grad
        found.append(np.array(y.detach().resolve_conj().numpy(force=True)))
    return found
