"""Each case of the standard that is read is written again: it is the same graph, and onnxruntime gives the same. It stands
behind the cases that are read: making them takes most of the time, and is done once in a worker."""

import collections
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnxtrips import listed, ran  # noqa: E402

from puregraph.core.errors import PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

REFUSED: dict[str, str] = {}  # cases that are read and cannot be written
UNLIKE = {  # where onnxruntime gives something else than the standard, or a formula in operators is rounded more often
    "celu_bfloat16": "each operator rounds to 16 bits",
    **dict.fromkeys(("bernoulli", "bernoulli_double", "bernoulli_seed"), "elements are drawn at random"),
    **dict.fromkeys(
        [f"dft{kind}_opset19" for kind in ("", "_axis", "_inverse", "_rfft", "_irfft")],
        "onnxruntime's transform is off by 1e-6 of the largest element, also where one is next to 0",
    ),
    "resize_downsample_scales_linear_align_corners": "positions in lengths that were rounded",
    "resize_downsample_scales_cubic_align_corners": "positions in lengths that were rounded",
}
UNKNOWN = (
    "NOT_IMPLEMENTED",
    "No corresponding Numpy type",
    "can't be converted to MLDataType",
    "not defined for empty set",
)  # to onnxruntime
WRITTEN, RAN = 1131, 1101  # cases that are written, and those of them that onnxruntime runs; they may only grow


def outcomes(stride):
    """What became of every case that is read, or of each so many: "ran", "unknown" to onnxruntime, "refused" or what
    was wrong."""
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what makes the cases overflows on purpose
        for case in [c for c in load_model_tests(kind="node") if "_expanded" not in c.name][::stride]:
            try:
                net = fromOnnx(case.model)
            except PuregraphError:
                continue
            found[case.name.removeprefix("test_")] = outcome(case, net)
    return found


def outcome(case, net):
    """What becomes of one case."""
    try:
        model = toOnnx(net)
    except PuregraphError as error:
        return f"refused: {error}"
    onnx.checker.check_model(model, full_check=True)
    data = [
        onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
        for x in case.data_sets[0][0]
    ]
    wanted = listed(net(*data))
    if not alike(listed(fromOnnx(model)(*data)), wanted, case):
        return "wrong: read back"
    try:
        found = ran(model, data)
    except Exception as error:  # its own errors have no common base
        return "unknown" if any(text in str(error) for text in UNKNOWN) else f"wrong: {error}"
    return "ran" if alike(found, wanted, case) else "wrong: in onnxruntime"


def alike(found, wanted, case):
    """Whether outputs are equal at the tolerance of the case."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and np.allclose(x.astype(float), y.astype(float), case.rtol, max(case.atol, 1e-7), equal_nan=True)
        for x, y in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_case_that_is_read_is_written_but_for_reasons_and_none_wrongly(stride):
    found = outcomes(stride)
    wrong = {name: text for name, text in found.items() if text.startswith("wrong") and name not in UNLIKE}
    assert not wrong, "\n".join(f"{name}: {text[:300]}" for name, text in wrong.items())
    refused = {name for name, text in found.items() if text.startswith("refused")}
    assert refused == REFUSED.keys() & found.keys()
    count = collections.Counter(found.values())
    if stride == 1:
        assert len(found) - len(refused) >= WRITTEN, len(found) - len(refused)
        assert count["ran"] >= RAN, count
