"""The rounding errors of functions and kernels: eager, compiled, and PyTorch beside them, next to float64.

    python scripts/accuracy.py [--match conv] [--write]

Prints docs/accuracy.md, and writes it with `--write`. Arguments are in float32; what is exact is the same in float64
(`Formula` or the module, eagerly), whose own rounding is a billionth of what is measured.

A function's error is in units in the last place of the exact value (of the least normal number below that). A kernel's
is that of one element over the root mean square of all elements of the exact result, and so in float32's 6e-8.
"""

import argparse
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import puregraph as pg  # noqa: E402
from puregraph.compile import Program  # noqa: E402
from puregraph.graph.pointwise import Pointwise  # noqa: E402
from puregraph.ops.formula import Formula  # noqa: E402
from puregraph.ops.formula.optable import FUNCTIONS, TABLE  # noqa: E402
from puregraph.ops.native.llvm import jit as native  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
TINY = float(np.finfo(np.float32).tiny)
HUGE = float(np.finfo(np.float32).max)
LIMIT = 2.0  # times PyTorch's largest error that is allowed without a reason
FLOORS = {"ulp": 1.0, "scale": 2.4e-7}  # errors that are allowed beside a perfect PyTorch


class Errors(NamedTuple):
    """The largest and the mean error of some values, and how many are inf or nan where the exact ones are not."""

    largest: float
    mean: float
    wrong: int = 0


class Result(NamedTuple):
    """One row of the table."""

    name: str
    unit: str  # "ulp" or "scale"
    eager: Errors
    compiled: Errors | None
    torch: Errors | None

    @property
    def faults(self) -> list[str]:
        """The ways that are further off than twice PyTorch, or wrong where the exact value is a number."""
        ways = {"eager": self.eager, "compiled": self.compiled}
        most = FLOORS[self.unit] if self.torch is None else max(FLOORS[self.unit], LIMIT * self.torch.largest)
        if self.torch is None:
            most *= 4
        return [way for way, e in ways.items() if e is not None and (not e.largest <= most or e.wrong)]


# Functions --------------------------------------------------------------------------------------------------------

EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-10, -1e-10, 1e-30, 1e30, -1e30, 88.0, -87.3, 16.0, 0.46875)
WIDE = (-100.0, 100.0)
DOMAINS: dict[str, tuple[float, float]] = {  # of the dense samples; WIDE where a function is not here
    **dict.fromkeys(("arccos", "arcsin", "arctanh", "erfinv"), (-1.0, 1.0)),
    **dict.fromkeys(("ndtri", "logit"), (0.0, 1.0)),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "digamma", "trigamma"), (0.0, 100.0)),
    **dict.fromkeys(("erf", "erfc", "ndtr", "logndtr", "tanh", "sigmoid"), (-13.0, 13.0)),
    **dict.fromkeys(("swish", "mish", "gelu by tanh", "gelu"), (-9.0, 80.0)),  # of less the factor is denormal
    "erfcx": (-9.0, 50.0),
    "arccosh": (1.0, 100.0),
    "log1p": (-1.0, 100.0),
    "xlog1py": (-1.0, 100.0),
    "xlogy": (0.0, 100.0),
    "pow": (0.0, 20.0),
}
ORDERS = ("polygamma", "iv", "ive")  # whose first argument is an integer
SKIPPED = ("isfinite", "isinf", "isnan", "where")  # of which nothing is rounded
ACTIVATIONS = {
    "gelu": "0.5 * x * erfc(-x / sqrt(2))",
    "gelu by tanh": "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))",
    "swish": "x * sigmoid(x)",
    "mish": "x * tanh(softplus(x))",
    "elu": "where(x > 0, x, expm1(x))",
    "hardswish": "x * clip(x + 3, 0, 6) / 6",
}


def formulas() -> dict[str, Formula]:
    """Every function of the language, by its name, and the activations that are made of them."""
    found = {}
    for name in FUNCTIONS:
        if name not in SKIPPED:
            count = len(TABLE[name].pulls)
            found[name] = Formula(f"{name}({', '.join('xyz'[:count])})")
    return found | {name: Formula(text) for name, text in ACTIVATIONS.items()}


def samples(name: str, count: int, size: int) -> list[np.ndarray]:
    """Arguments: dense in the domain, of all magnitudes within it, and the edges of the language."""
    rng = np.random.default_rng(3)
    low, high = DOMAINS.get(name, WIDE)
    edges = np.array([x for x in EDGES if low <= x <= high])
    columns = []
    for i in range(count):
        dense = np.linspace(low, high, size) if i == 0 else rng.uniform(low, high, size)
        spread = np.exp(rng.uniform(np.log(1e-30), np.log(high), size)) * rng.choice([-1, 1] if low < 0 else [1], size)
        near = [rng.uniform(max(low, -8), min(high, 8), size), np.clip(spread, low, high)]
        many = np.concatenate([dense, *near])
        columns.append(np.concatenate([rng.permutation(many) if i else many, rng.permutation(edges) if i else edges]))
    if name in ORDERS:
        columns[0] = rng.integers(1, 5, len(columns[0]))
        columns[1] = np.abs(columns[1]) if name == "polygamma" else columns[1]
    if name == "pow":
        columns[1] = rng.uniform(-8, 8, len(columns[1]))
    return [np.ascontiguousarray(column, np.float32) for column in columns]


def torchFunction(torch: Any, name: str) -> Callable[..., Any] | None:
    """What PyTorch has of that name or meaning."""
    special, functional = torch.special, torch.nn.functional
    own = {
        "abs": torch.abs,
        "clip": torch.clamp,
        "cbrt": None,
        "pow": torch.pow,
        "fmod": torch.fmod,
        "heaviside": torch.heaviside,
        "iv": None,
        "ive": None,
        "lgamma": torch.lgamma,
        "logndtr": special.log_ndtr,
        "logsigmoid": functional.logsigmoid,
        "polygamma": lambda n, x: torch.stack([torch.polygamma(k, x) for k in range(5)])[
            n.long(), torch.arange(len(x))
        ],
        "trigamma": lambda x: torch.polygamma(1, x),
        "relu": torch.relu,
        "softplus": functional.softplus,
        "gelu": functional.gelu,
        "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "swish": functional.silu,
        "mish": functional.mish,
        "elu": functional.elu,
        "hardswish": functional.hardswish,
    }
    return own[name] if name in own else getattr(torch, name, None) or getattr(special, name, None)


def ulps(found: np.ndarray, exact: np.ndarray) -> Errors:
    """Errors in units in the last place."""
    with np.errstate(all="ignore"):
        isNumber = np.isfinite(exact) & (np.abs(exact) <= HUGE) & ((np.abs(exact) >= TINY) | (exact == 0))
        wrong = int((isNumber & ~np.isfinite(found)).sum() + (np.isnan(exact) != np.isnan(found)).sum())
        found, exact = found[isNumber].astype(np.float64), exact[isNumber]
        unit = np.spacing(np.maximum(np.abs(exact), TINY).astype(np.float32)).astype(np.float64)
        off = np.abs(found - exact) / unit
        off = off[np.isfinite(off)]
    return Errors(float(off.max(initial=0)), float(off.mean()) if off.size else 0.0, wrong)


def function(name: str, formula: Formula, size: int, torch: Any = None) -> Result:
    """The row of a function."""
    arrays = samples(name, len(formula.names), size)
    order = sorted(formula.names)
    given = dict(zip(order, arrays))
    with np.errstate(all="ignore"):
        exact = np.asarray(formula(**{k: v.astype(np.float64) for k, v in given.items()}))
        eager = np.asarray(formula(**given))
    module = Pointwise(formula=str(formula))
    compiled = compiledOf(module, [given[n] for n in module.order])[0]
    peer = torchFunction(torch, name) if torch else None
    theirs = peer(*map(torch.from_numpy, arrays)).numpy() if peer else None
    return Result(
        name, "ulp", ulps(eager, exact), ulps(compiled, exact), None if theirs is None else ulps(theirs, exact)
    )


# Kernels ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A kernel: the module, its inputs, and the same as a function of PyTorch's tensors, parameters after inputs."""

    module: Callable[[], Any]
    inputs: Callable[[Any], list[Any]]
    torch: Callable[[Any], Callable[..., Any]] | None = None
    backward: bool = True
    weights: float = 0.0  # the deviation of the parameters; 0: one over the root of what is summed for an output


def normal(*shape: int, mean: float = 0.0, scale: float = 1.0) -> Callable[[Any], list[Any]]:
    """One input of normal random values."""
    return lambda rng: [(mean + scale * rng.standard_normal(shape)).astype(np.float32)]


def several(*shapes: tuple[int, ...]) -> Callable[[Any], list[Any]]:
    """Several of them."""
    return lambda rng: [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def reductions(found: dict[str, Case]) -> None:
    """Sums, means and extremes over each axis and over several, of few and of many elements."""
    shape = (1200, 9, 130)
    for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2), None):
        for module, rule in (("Sum", "sum"), ("Mean", "mean")):
            found[f"{rule} over {axis} of {shape}"] = Case(
                lambda module=module, axis=axis: getattr(pg, module)(axis),
                normal(*shape, mean=1.0),
                lambda torch, rule=rule, axis=axis: lambda x: getattr(torch, rule)(x, dim=axis),
                backward=False,
            )
    for axis, size in ((0, (100000, 3)), (0, (20000, 64)), (1, (3, 100000)), (0, (4099,))):
        found[f"sum over {axis} of {size}"] = Case(
            lambda axis=axis: pg.Sum(axis),
            normal(*size, mean=1.0),
            lambda torch, axis=axis: lambda x: torch.sum(x, dim=axis),
            backward=False,
        )


def norms(found: dict[str, Case]) -> None:
    """Softmax and normalisations."""
    functional = lambda torch: torch.nn.functional  # noqa: E731
    for axis, shape in ((1, (512, 1000)), (0, (1000, 64)), (-1, (8, 4, 128, 128)), (1, (8, 21, 32, 32))):
        found[f"softmax over {axis} of {shape}"] = Case(
            lambda axis=axis: pg.SoftMax(axis),
            normal(*shape, scale=3.0),
            lambda torch, axis=axis: lambda x: torch.softmax(x, axis),
        )
    for mean in (0.0, 30.0):
        more = f", mean {mean:g}" if mean else ""
        found[f"layernorm (2048, 512){more}"] = Case(
            lambda: pg.LayerNorm(512),
            normal(2048, 512, mean=mean),
            lambda torch: lambda x, scale, bias: functional(torch).layer_norm(x, (512,), scale, bias),
            weights=1.0,
        )
        found[f"batchnorm (32, 64, 28, 28){more}"] = Case(
            lambda: pg.BatchNorm(64),
            normal(32, 64, 28, 28, mean=mean),
            lambda torch: lambda x, scale, bias: functional(torch).batch_norm(x, None, None, scale, bias, True),
            weights=1.0,
        )
        found[f"batchnorm (4096, 100){more}"] = Case(
            lambda: pg.BatchNorm(100),
            normal(4096, 100, mean=mean),
            lambda torch: lambda x, scale, bias: functional(torch).batch_norm(x, None, None, scale, bias, True),
            weights=1.0,
        )
        found[f"groupnorm (8, 64, 28, 28){more}"] = Case(
            lambda: pg.GroupNorm(8, 64),
            normal(8, 64, 28, 28, mean=mean),
            lambda torch: lambda x, scale, bias: functional(torch).group_norm(x, 8, scale, bias),
            weights=1.0,
        )
    found["crossentropy (1024, 1000)"] = Case(
        lambda: pg.CrossEntropy(),
        lambda rng: [rng.standard_normal((1024, 1000)).astype(np.float32), rng.integers(0, 1000, 1024)],
        lambda torch: functional(torch).cross_entropy,
    )
    found["mse (1024, 100)"] = Case(
        lambda: pg.MSE(), several((1024, 100), (1024, 100)), lambda torch: functional(torch).mse_loss
    )


def convolutions(found: dict[str, Case]) -> None:
    """Convolutions of every kind, those of ResNets' layers among them."""
    layers = [
        (16, 16, 32, 3, 1, 1, 16),
        (64, 64, 56, 3, 1, 1, 2),
        (128, 128, 28, 3, 1, 1, 2),
        (256, 256, 14, 3, 1, 1, 4),
    ]
    layers += [(512, 512, 7, 3, 1, 1, 8), (64, 128, 56, 3, 2, 1, 2), (3, 64, 64, 7, 2, 1, 2), (256, 64, 28, 1, 1, 1, 2)]
    layers += [(96, 96, 24, 3, 1, 96, 8), (32, 48, 20, 5, 1, 1, 4), (64, 64, 20, 3, 1, 4, 4)]
    for inmaps, outmaps, size, window, stride, groups, batch in layers:
        name = f"conv {window}x{window}{f'/{stride}' if stride > 1 else ''} {inmaps}->{outmaps} @{size}"
        found[name + (f" in {groups} groups" if groups > 1 else "")] = Case(
            lambda i=inmaps, o=outmaps, w=window, s=stride, g=groups: pg.Conv2D(
                i, o, w, stride=s, pad=w // 2, groups=g
            ),
            normal(batch, inmaps, size, size),
            lambda torch, w=window, s=stride, g=groups: (
                lambda x, W, b: torch.nn.functional.conv2d(x, W, b, s, w // 2, groups=g)
            ),
        )
        if window == 3 and stride == groups == 1:
            found[f"{name}, of what is positive"] = found[name]._replace(
                inputs=lambda rng, b=batch, c=inmaps, s=size: [
                    np.abs(rng.standard_normal((b, c, s, s))).astype(np.float32)
                ]
            )
    found["conv 3 32->32 @200 in one dimension"] = Case(
        lambda: pg.Conv1D(32, 32, 3, pad=1),
        normal(8, 32, 200),
        lambda torch: lambda x, W, b: torch.nn.functional.conv1d(x, W, b, padding=1),
    )
    found["deconv 4x4/2 64->32 @14"] = Case(
        lambda: pg.Deconv2D(64, 32, 4, stride=2, pad=1),
        normal(4, 64, 14, 14),
        lambda torch: lambda x, W, b: torch.nn.functional.conv_transpose2d(x, W, b, 2, 1),
    )
    found["average pooling 3x3/2 (8, 64, 28, 28)"] = Case(
        lambda: pg.AvgPool2D(3, 2),
        normal(8, 64, 28, 28),
        lambda torch: lambda x: torch.nn.functional.avg_pool2d(x, 3, 2),
    )
    found["global average (16, 64, 56, 56)"] = Case(
        lambda: pg.GlobalAvgPool(), normal(16, 64, 56, 56, mean=1.0), lambda torch: lambda x: x.mean((2, 3))
    )


def products(found: dict[str, Case]) -> None:
    """Matrix products, with their gradients."""
    for m, n, k in (
        (64, 512, 784),
        (1, 1000, 2048),
        (512, 512, 512),
        (37, 10, 5000),
        (2048, 100, 300),
        (300, 200, 4096),
    ):
        found[f"linear {m}x{n}x{k}"] = Case(
            lambda n=n, k=k: pg.Linear(k, n), normal(m, k), lambda torch: lambda x, W, b: torch.addmm(b, x, W)
        )
    found["matmul (8, 64, 100) (8, 100, 48)"] = Case(
        lambda: pg.MatMul(), several((8, 64, 100), (8, 100, 48)), lambda torch: torch.matmul
    )
    for isCausal in (False, True):
        found[f"attention (4, 4, 128, 64){' causal' if isCausal else ''}"] = Case(
            lambda isCausal=isCausal: pg.Attention(isCausal),
            several(*[(4, 4, 128, 64)] * 3),
            lambda torch, isCausal=isCausal: (
                lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=isCausal)
            ),
        )


def recurrences(found: dict[str, Case]) -> None:
    """Recurrent layers; PyTorch's have a second bias, which is 0."""

    def peer(kind: str) -> Callable[[Any], Callable[..., Any]]:
        def make(torch: Any) -> Callable[..., Any]:
            def run(x: Any, W: Any, U: Any, b: Any, d: Any = None) -> Any:
                second = torch.zeros_like(b) if d is None else torch.cat([torch.zeros_like(b[: 2 * len(d)]), d])
                weights = [W.t().contiguous(), U.t().contiguous(), b, second]
                start = torch.zeros(1, len(x), U.shape[0], dtype=x.dtype)
                start = (start, start) if kind == "LSTM" else start
                rule = {"LSTM": torch._VF.lstm, "GRU": torch._VF.gru, "RNN": torch._VF.rnn_tanh}[kind]
                return rule(x, start, weights, True, 1, 0.0, True, False, True)[0]

            return run

        return make

    for kind in ("LSTM", "GRU", "RNN"):
        found[f"{kind.lower()} 96 -> 128, 40 time steps"] = Case(
            lambda kind=kind: getattr(pg, kind)(96, 128), normal(16, 40, 96), peer(kind)
        )


def cases() -> dict[str, Case]:
    """All kernels."""
    found: dict[str, Case] = {}
    for add in (reductions, norms, convolutions, products, recurrences):
        add(found)
    return found


def ready(module: Any, weights: float) -> Any:
    """The module with random parameters in training mode."""
    rng = np.random.default_rng(4)
    module.trainMode()
    for p in module.params.values():
        deviation = weights or 1 / np.sqrt(max(np.prod(p.shape) / max(p.shape[0], p.shape[-1]), 1))
        p.data = (deviation * rng.standard_normal(p.shape)).astype(np.float32)
    return module


def seedFor(y: Any) -> np.ndarray:
    """The gradient of an output."""
    return np.ones_like(y) if np.ndim(y) == 0 else np.random.default_rng(5).standard_normal(y.shape).astype(y.dtype)


def eagerOf(module: Any, inputs: list[Any], backward: bool, dtype: Any = np.float32) -> list[Any]:
    """Output, gradients of the inputs and of the parameters, node by node."""
    module.calcMode(dtype)
    given = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
    y = module(*given)
    if not backward:
        return [y]
    module.backward(seedFor(y.astype(np.float32)).astype(dtype))
    grads = module.grad if isinstance(module.grad, list) else [module.grad]
    return [y, *(g for g in grads if g is not None), *(p.grad for p in module.params.values())]


def compiledOf(module: Any, inputs: list[Any], backward: bool = False) -> list[Any]:
    """The same by a program."""
    module.calcMode(np.float32)
    nodes = [pg.Input().node() for _ in inputs]
    net = pg.Graph(nodes, module.node(*nodes)).trainMode()
    y = np.array(Program(net, [x.shape for x in inputs], train=True).run(*inputs))
    if not backward:
        return [y]
    program = net.compile([x.shape for x in inputs], train=True)
    program.run(*inputs, *([seedFor(y)] if y.ndim else []))
    grads = program.grad if isinstance(program.grad, (list, tuple)) else [program.grad]
    return [y, *(np.array(g) for g in grads if g is not None), *(np.array(p.grad) for p in module.params.values())]


def torchOf(torch: Any, rule: Any, module: Any, inputs: list[Any], backward: bool) -> list[Any]:
    """The same by PyTorch."""
    given = [*inputs, *(p.data.astype(np.float32) for p in module.params.values())]
    tensors = [torch.from_numpy(np.array(x)) for x in given]
    leaves = [t.requires_grad_(backward) for t in tensors if t.is_floating_point()]
    y = rule(*tensors)
    found = [y.detach().numpy()]
    if backward:
        y.backward(torch.from_numpy(np.array(seedFor(found[0]))))
        found += [leaf.grad.numpy() for leaf in leaves]
    return found


def off(found: Any, exact: Any) -> Errors:
    """Errors over the root mean square of the exact result."""
    scale = float(np.sqrt(np.mean(np.square(exact)))) or 1.0
    errors = np.abs(np.asarray(found, np.float64) - exact) / scale
    return Errors(float(errors.max(initial=0)), float(errors.mean()), int((~np.isfinite(errors)).sum()))


def kernel(name: str, case: Case, torch: Any = None) -> list[Result]:
    """The rows of a kernel: its output, and each of its gradients."""
    module, inputs = ready(case.module(), case.weights), case.inputs(np.random.default_rng(6))
    before = {name: p.data.copy() for name, p in module.params.items()}
    eager = [np.array(x) for x in eagerOf(module, inputs, case.backward)]
    compiled = compiledOf(module, inputs, case.backward)
    rule = case.torch(torch) if torch and case.torch else None
    theirs = torchOf(torch, rule, module, inputs, case.backward) if rule else [None] * len(eager)
    for which, data in before.items():
        module.params[which].data = data.astype(np.float64)
    exact = eagerOf(module, inputs, case.backward, np.float64)
    floats = [f"d{i}" for i, x in enumerate(inputs) if x.dtype.kind == "f"]
    floats = ["dx"] if len(floats) == 1 else floats
    names = ["", *floats, *(f"d{n}" for n in module.params)]
    rows = []
    for what, a, b, c, wanted in zip(names, eager, compiled, theirs, exact):
        rows.append(
            Result(
                f"{name} {what}".strip(), "scale", off(a, wanted), off(b, wanted), None if c is None else off(c, wanted)
            )
        )
    return rows


# The page ---------------------------------------------------------------------------------------------------------

REASONS = {  # of what is further off than twice PyTorch: the way, a pattern of names, and why
    "numpy": (
        "eager",
        "arccos|arcsin|atan2|cos|cosh|exp|expm1|log|log10|log1p|log2|sin|tan|tanh|logsigmoid|softplus|xlogy|mish",
        "eagerly these are numpy's own functions, or composed of them; numpy allows itself up to 4 units",
    ),
    "zero": (
        "eager|compiled",
        "logaddexp",
        "where the result is next to 0, what rounding takes from the larger argument is all of it, as for PyTorch at "
        "other arguments",
    ),
    "winograd": (
        "compiled",
        r"conv 3x3 (16|64|128|256)->\d+ @\d+(, of what is positive)?( dx)?",
        "a quarter of the products, on transformed tiles (Winograd): the points of the transforms are, of all sets of "
        "six, those that enlarge rounding least, up to sevenfold; sums are taken in chains of 16, and of four of "
        "these, for shorter chains cost time",
    ),
    "chains": (
        "compiled",
        r"conv 3x3 512->512 @7(, of what is positive)? dx",
        "each output is a sum of 4608 products, each row of taps in one chain",
    ),
}


def reasonsFor(row: Result) -> list[str]:
    """Why a row is further off than twice PyTorch, one reason for each way; "" where none is known."""
    found = []
    for way in row.faults:
        names = [key for key, (ways, names, _) in REASONS.items() if fits(ways, way) and fits(names, row.name)]
        found.append(names[0] if names else "")
    return found


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern is all of a text."""
    return re.fullmatch(pattern, text) is not None


HEAD = """# Accuracy

What rounding leaves in float32, next to float64: of every function of the formula language, and of every kernel with
its gradients; eager, compiled, and PyTorch on the same arguments. Made by

    python scripts/accuracy.py --write

on {machine}.

Functions are measured in units in the last place (ulp) of the exact value, over dense arguments, arguments of all
magnitudes, and edges; results that are not normal numbers are left out, for compiled code takes them as zero. Kernels
are measured in the root mean square of the exact result, of which float32 itself keeps 6e-8. Nothing is further off
than twice PyTorch's largest error (or one ulp, or {floor:.1e}), but for what has a reason:

{reasons}
"""
COLUMNS = """
## {title}

| {what} | eager, largest | mean | compiled, largest | mean | PyTorch, largest | mean | reason |
|---|---|---|---|---|---|---|---|
"""


def page(rows: list[Result], machine: str) -> str:
    """The text of docs/accuracy.md."""
    reasons = "\n".join(f"* *{key}*: {text}." for key, (_, _, text) in REASONS.items())
    text = HEAD.format(machine=machine, floor=FLOORS["scale"], reasons=reasons)
    for unit, title, what in (("ulp", "Functions, in ulp", "function"), ("scale", "Kernels, relative", "kernel")):
        text += COLUMNS.format(title=title, what=what)
        for row in rows:
            if row.unit == unit:
                cells = "".join(cell(e, unit) for e in (row.eager, row.compiled, row.torch))
                text += f"| {row.name} {cells}| {', '.join(dict.fromkeys(reasonsFor(row)))} |\n"
    return text


def cell(e: Errors | None, unit: str) -> str:
    """The largest and the mean error."""
    if e is None:
        return "|  |  "
    form = ".2f" if unit == "ulp" and e.largest < 1e4 else ".1e"
    text = f"{e.largest:{form}} | {e.mean:{form}}"
    return f"| {text} " if not e.wrong else f"| {text}, {e.wrong} not a number "


def measured(match: str = "", size: int = 20000, torch: Any = None) -> Iterator[Result]:
    """All rows of what has a text in its name."""
    for name, formula in formulas().items():
        if match in name:
            yield function(name, formula, size, torch)
    for name, case in cases().items():
        if match in name:
            yield from kernel(name, case, torch)


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="")
    parser.add_argument("--size", type=int, default=20000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    import torch  # an optional peer

    rows = []
    for row in measured(options.match, options.size, torch):
        rows.append(row)
        cells = "".join(cell(e, row.unit) for e in (row.eager, row.compiled, row.torch))
        print(f"| {row.name} {cells}| {' '.join(row.faults)} | {' '.join(reasonsFor(row))} |", flush=True)
    if options.write:
        bits = f"{platform.machine()} with vectors of {native.bits} bits"
        PAGE.write_text(page(rows, f"{bits}, numpy {np.__version__}, torch {torch.__version__}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
