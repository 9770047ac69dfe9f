"""Every module, example by example: its rules as native code give what numpy gives, for every layout of their arguments."""

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import EXAMPLES, MODES, examplesOf

from puregraph.core.applied import asGrads
from puregraph.core.param import State
from puregraph.core.rules import gradientRule
from puregraph.graph.rulecalls import NativeRules, forwardCall, gradientCall
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit
from puregraph.testing.check import Case

pytestmark = pytest.mark.skipif(not jit.available(), reason="native code needs llvmlite")
CLOSE = {"float64": 1e-9, "float32": 2e-4}


def channelsLast(x):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) if x.ndim > 2 else x.copy()


def gapped(x):
    wide = np.repeat(x, 2, axis=-1) if x.ndim else x
    return wide[..., ::2] if x.ndim else x.copy()


LAYOUTS = {"rows": np.ndarray.copy, "channels last": channelsLast, "gaps": gapped}


def resultsOf(case, dtype, arrange):
    """Outputs, gradients and states by the calls that an eager pass makes."""
    case.restore()
    count = len(case.inputs) + case.absent
    params = case.module.ruleParams()
    arguments = []
    for x, p in zip(case.arguments, [None] * count + params, strict=True):
        if x is None or isinstance(p, State):
            arguments.append(x)
        else:
            x = x.astype(dtype) if x.dtype == np.float64 else x.copy()
            arguments.append(x if p is not None else arrange(x))
    result = forwardCall(case.module, arguments, count)
    outputs = result if type(result) is tuple else (result,)
    seeds = [arrange(np.asarray(s)) for s in case.seeds(outputs)]
    needs = tuple([i in case.floats for i in range(len(arguments))])
    found = [*case.visible(outputs), *[p.data.copy() for p in params if isinstance(p, State)]]
    if any(needs):
        rule = gradientRule(case.module, needs)
        seed = seeds if len(seeds) > 1 else seeds[0]
        grads = gradientCall(case.module, rule, needs, seed, [*arguments, *outputs])
        found += [g for g, n in zip(asGrads(grads, len(arguments), case.label), needs) if n]
    return found


def assertClose(actual, wanted, close):
    for a, b in zip(actual, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        assert np.shape(a) == np.shape(b) and a.dtype == b.dtype
        if a.dtype.kind == "f":
            scale = np.abs(b[np.isfinite(b)]).max(initial=1.0) if np.ndim(b) else max(1.0, abs(b))
            np.testing.assert_allclose(a, b, rtol=close, atol=close * scale)
        else:
            assert np.array_equal(a, b)


@everyExample(EXAMPLES, mode=MODES, dtype=CLOSE, layout=LAYOUTS)
def test_native_rules_give_what_numpy_gives(found, index, mode, dtype, layout, monkeypatch):
    monkeypatch.setattr(NativeRules, "leastBytes", 0)
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    with useFast(False), np.errstate(all="ignore"):
        wanted = resultsOf(case, dtype, LAYOUTS[layout])
    with np.errstate(all="ignore"):
        first, second = [resultsOf(case, dtype, LAYOUTS[layout]) for _ in range(2)]
    assertClose(first, wanted, CLOSE[dtype])
    for a, b in zip(first, second):
        assert a is b is None or np.asarray(a).tobytes() == np.asarray(b).tobytes()
