"""Networks that packages on PyPI carry, for voices and for letters, give what onnxruntime gives, at several sizes.

pip install --no-deps silero-vad faster-whisper rapidocr rapidocr-onnxruntime
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from puregraph import Dim  # noqa: E402
from puregraph.data import digits  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

HEIGHT, WIDTH = 32 * Dim("H"), 32 * Dim("W")  # detectors halve a picture five times
RATE = 16000


def path(package, name):
    """A model in an installed package; importing it would need what it does with the model."""
    found = find_spec(package)
    if found is None:
        pytest.skip(f"pip install --no-deps {package.replace('_', '-')} brings {name}")
    return str(Path(found.origin).parent / name)


def voice(frames):
    """Frames of 576 samples, each half a frame after the one before, of a tone that comes and goes, and noise."""
    t = np.arange(frames * 512 + 64) / RATE
    wave = np.sin(2 * np.pi * 180 * t) * np.sin(2 * np.pi * 3 * t) ** 2 / 2
    wave += np.random.default_rng(0).normal(0, 0.01, len(t))
    return np.stack([wave[i * 512 : i * 512 + 576] for i in range(frames)]).astype(np.float32)


def page(count, height, width):
    """Pictures (n, 3, h, w) from -1 to 1 of handwritten digits in rows, each enlarged three times."""
    (images, _), _ = digits()
    rng = np.random.default_rng(count)
    found = np.ones((count, height, width), np.float32)
    for sheet in found:
        for top in range(4, height - 24, 40):
            for left in range(4, width - 24, 28):
                digit = images[rng.integers(len(images)), 0]
                sheet[top : top + 24, left : left + 24] = 1 - 2 * digit.repeat(3, 0).repeat(3, 1)
    return np.repeat(found[:, None], 3, axis=1)


def heard(count):
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": voice(count), "h": state, "c": state}


def heardWithState(number):
    state = np.random.default_rng(number).normal(0, 0.1, (2, 1, 128)).astype(np.float32)
    return {"input": voice(3)[number : number + 1], "state": state}


def batch(count, samples=576):
    """Frames of several voices, with states; of those after `sr` nothing is given: it is known."""
    state = np.random.default_rng(count).normal(0, 0.1, (2, count, 128)).astype(np.float32)
    return {"input": voice(count)[:, :samples], "state": state}


SEQUENCE = {"input": ("T", 576), "h": (1, 1, 128), "c": (1, 1, 128)}
PAGES = [(1, 320, 480), (3, 160, 320), (2, 96, 96)]
LINES = [(1, 48, 320), (3, 48, 160), (2, 48, 96)]
MODELS = {
    ("silero_vad", "data/silero_vad_16k_sequence.onnx"): (SEQUENCE, [heard(n) for n in (1, 7, 40)]),
    ("silero_vad", "data/silero_vad_openvino_16k.onnx"): (
        {"input": (1, 576), "state": (2, 1, 128)},
        [heardWithState(i) for i in range(3)],
    ),
    ("faster_whisper", "assets/silero_vad_v6.onnx"): (SEQUENCE, [heard(n) for n in (1, 7, 40)]),
    **{
        (package, f"models/{name}.onnx"): ({"x": shape}, [{"x": page(*size)} for size in sizes])
        for package, name, shape, sizes in (
            ("rapidocr", "PP-OCRv6_det_small", ("N", 3, HEIGHT, WIDTH), PAGES),
            ("rapidocr", "PP-OCRv6_rec_small", ("N", 3, 48, "W"), LINES),
            ("rapidocr", "ch_ppocr_mobile_v2.0_cls_mobile", ("N", 3, 48, 192), [(n, 48, 192) for n in (1, 2, 5)]),
            ("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer", ("N", 3, HEIGHT, WIDTH), PAGES),
            ("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer", ("N", 3, 48, "W"), LINES),
            ("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer", ("N", 3, 48, 192), [(4, 48, 192)]),
        )
    },
}


BRANCHING = {  # each chooses by the rate, or by how many voices there are
    "silero_vad": (16000, [batch(1), batch(3)]),
    "silero_vad at 8000": (8000, [batch(1, 288), batch(2, 288)]),
    "silero_vad_16k_op15": (16000, [batch(1), batch(3)]),
    "silero_vad_half": (None, [batch(1), batch(2)]),
    "silero_vad_op18_ifless": (16000, [batch(1), batch(5)]),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", BRANCHING)
def test_a_network_of_branches_is_read_for_a_known_rate_and_number_of_voices(name):
    file = path("silero_vad", f"data/{name.split()[0]}.onnx")
    rate, feeds = BRANCHING[name]
    values = {} if rate is None else {"sr": rate}
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for feed in feeds:
        net = fromOnnx(file, shapes={key: x.shape for key, x in feed.items()}, values=values)
        wanted = session.run(None, feed | {key: np.array(value, np.int64) for key, value in values.items()})
        for x, y in zip(net(list(feed.values())), wanted, strict=True):
            np.testing.assert_allclose(x, y, 1e-4, 1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["silero_vad", "silero_vad at 8000", "silero_vad_half"])
def test_a_network_of_branches_chooses_by_the_data_alone_and_goes_on_to_onnxruntime(name):
    file = path("silero_vad", f"data/{name.split()[0]}.onnx")
    rate, feeds = BRANCHING[name]
    net = fromOnnx(file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for feed in feeds:
        feed = feed | ({} if rate is None else {"sr": np.array(rate, np.int64)})
        wanted = session.run(None, feed)
        for x, y in zip(net({key: feed[key] for key in net.arguments}), wanted, strict=True):
            np.testing.assert_allclose(x, y, 1e-4, 1e-5)
    if name == "silero_vad":  # its other branch fits no data of these sizes
        return
    given = [feed[key] for key in net.arguments]
    written = toOnnx(net, None, [x.shape for x in given], dtypes=[x.dtype for x in given])
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    for x, y in zip(session.run(None, dict(zip(net.arguments, given))), wanted, strict=True):
        np.testing.assert_allclose(x, y, 1e-4, 1e-5)


@pytest.mark.peers
@pytest.mark.costly
@pytest.mark.parametrize("package, name", MODELS, ids=[name for _, name in MODELS])
def test_a_network_of_a_package_gives_what_onnxruntime_gives(package, name):
    shapes, feeds = MODELS[package, name]
    file = path(package, name)
    net = fromOnnx(file, shapes=shapes)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for feed in feeds:
        wanted = session.run(None, feed)
        found = net(list(feed.values()) if len(feed) > 1 else feed["x"])
        for x, y in zip(found if isinstance(found, list) else [found], wanted, strict=True):
            np.testing.assert_allclose(x, y, 1e-4, 1e-4 * np.abs(y).max())
