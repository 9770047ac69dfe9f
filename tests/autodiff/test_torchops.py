"""PyTorch's cases of its operations: values, gradients and second derivatives, next to numpy on Variables, float64."""

import re
from collections import Counter

import numpy as np
import pytest

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which torch's cases import

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torchops import OPS, LeftError, leaves, leftFor, ours  # noqa: E402

from puregraph.autodiff import AutoDiffException, Variable, grad  # noqa: E402

INFOS = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
HERE = [name for name in INFOS if name in OPS]
COUNTS = Counter()
CLOSE = 1e-9
TWICE = 6  # samples of an operation whose second derivatives are compared


def floats(values):
    """The leaves that hold floats, as arrays."""
    arrays = [
        np.asarray(v.data if isinstance(v, Variable) else v.detach().numpy(force=True) if torch.is_tensor(v) else v)
        for v in leaves(values)
    ]
    return [a for a in arrays if a.dtype.kind == "f"]


def far(ours, theirs):
    """How far two arrays are apart, as a sentence; empty if they are not."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, {theirs.shape} there"
    isClose = np.allclose(ours, theirs, CLOSE, CLOSE, equal_nan=True)
    return "" if isClose else f"differs by {np.nanmax(np.abs(ours - theirs)):.3g}"


def isFloat32(value):
    """Whether an option is a tensor of float32, as the weights of cov are."""
    return torch.is_tensor(value) and value.dtype == torch.float32


def compared(op, function, sample, rng, isTwice=False):
    """What is different in the values or gradients of a sample, or in second derivatives; empty if nothing is."""
    inputs = [sample.input, *sample.args]
    settings = {key: value.double() if isFloat32(value) else value for key, value in sample.kwargs.items()}
    theirs = op(*inputs, **settings)
    if torch.is_tensor(theirs) and theirs.is_complex():
        theirs = [theirs.real, theirs.imag]
    mine, options = ours(inputs), {key: ours(value) for key, value in settings.items()}
    made = function(*mine, **options)
    arguments = [inputs, list(settings.values())]
    if len(floats(made)) != len(floats(theirs)):
        return f"{len(floats(made))} results, {len(floats(theirs))} there"
    for value, wanted in zip(floats(made), floats(theirs)):
        if far(value, wanted):
            return f"value {far(value, wanted)}"
    tensors = [t for t in leaves(arguments) if torch.is_tensor(t) and t.requires_grad]
    variables = [v for v in leaves([mine, list(options.values())]) if isinstance(v, Variable)]
    outs = [
        (a, b)
        for a, b in zip(leaves(made), leaves(theirs))
        if isinstance(a, Variable) and a.requires_grad and b.requires_grad
    ]
    if not outs or not tensors:
        return ""
    seeds = [rng.standard_normal(a.shape) for a, _ in outs]
    options = {"allow_unused": True, "create_graph": isTwice}
    wanted = torch.autograd.grad([b for _, b in outs], tensors, [torch.tensor(g) for g in seeds], **options)
    slopes = grad([a for a, _ in outs], variables, seeds, **options)
    wrong = apart(slopes, wanted)
    if wrong or not isTwice:
        return wrong and f"gradient {wrong}"
    wrong = twice(slopes, wanted, variables, tensors, rng)
    COUNTS["compared twice"] += 1
    return wrong and f"second derivative {wrong}"


def twice(slopes, wanted, variables, tensors, rng):
    """What is different in the gradients of recorded gradients; one that is not recorded changes nothing."""
    mine = {i: a for i, a in enumerate(slopes) if isinstance(a, Variable) and a.requires_grad}
    peers = {i: b for i, b in enumerate(wanted) if b is not None and b.requires_grad}
    options, none = {"allow_unused": True}, [None] * len(tensors)
    seeds = {i: rng.standard_normal(tuple(x.shape)) for i, x in (mine | peers).items()}
    rights = [torch.tensor(seeds[i]) for i in peers]
    right = torch.autograd.grad(list(peers.values()), tensors, rights, **options) if peers else none
    seen = grad(list(mine.values()), variables, [seeds[i] for i in mine], **options) if mine else none
    return apart(seen, right)


def apart(ours, theirs):
    """How far gradients are apart, of which None are zeros, as a sentence; empty if they are not."""
    for slope, right in zip(ours, theirs, strict=True):
        if slope is not None or right is not None:
            like = next(x for x in (slope, right) if x is not None)
            zero = np.zeros(tuple(like.shape))
            a = zero if slope is None else np.asarray(slope.data if isinstance(slope, Variable) else slope)
            b = zero if right is None else right.numpy(force=True)
            if far(a, b):
                return far(a, b)
    return ""


@pytest.mark.parametrize("name", HERE)
def test_an_operation_of_torch_has_the_values_and_gradients_of_ours(name):
    torch.manual_seed(0)
    op, rng, wrong = INFOS[name], np.random.default_rng(0), []
    isSmooth = op.supports_autograd
    for i, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=isSmooth)):
        try:
            difference = compared(op, OPS[name], sample, rng, op.supports_gradgrad and i < TWICE)
            COUNTS["compared"] += 1
        except LeftError as left:
            COUNTS[str(left)] += 1
            continue
        except AutoDiffException as error:
            COUNTS[re.split(r"[:=]| is not known with", str(error))[0]] += 1
            continue
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        if difference:
            wrong.append(f"sample {i}, {sample.summary() if hasattr(sample, 'summary') else ''}: {difference}"[:300])
    assert not wrong, "\n".join(wrong)


def test_every_operation_is_compared_or_left_out_with_a_reason(capsys):
    reasons = Counter(leftFor(op) for name, op in INFOS.items() if name not in OPS)
    with capsys.disabled():
        print(
            f" {len(HERE)} of {len(INFOS)} operations of torch, {COUNTS['compared']} samples compared, {COUNTS['compared twice']} also in second derivatives;",
            end=" ",
        )
        print("; ".join(f"{count} {why}" for why, count in reasons.most_common()), end="; samples left out: ")
        print("; ".join(f"{count} {why}" for why, count in COUNTS.most_common() if not why.startswith("compared")))
    assert len(HERE) >= 270 and (not COUNTS or COUNTS["compared"] >= 2200 and COUNTS["compared twice"] >= 900)


def test_a_difference_is_seen():
    op = INFOS["exp"]
    sample = next(iter(op.sample_inputs("cpu", torch.float64, requires_grad=True)))
    assert compared(op, lambda x: np.exp(x) * 1.000001, sample, np.random.default_rng(0)).startswith("value differs")
    assert compared(op, lambda x: np.exp(x), sample, np.random.default_rng(0)) == ""
