"""Speech detected in recordings, with the weights of Silero VAD: a file of torch's names that a graph of ours loads.

    pip install --no-deps silero-vad==6.2.3                 # 11 MB, MIT
    apt-get install pocketsphinx-testdata                   # five sentences of an audio book
    python examples/voice.py                                detect speech in these
    python examples/voice.py mine.wav                       in recordings of your own: 16 kHz, mono, 16 bits

Every 32 ms of sound are a frame: a spectrum, made by a convolution with fixed waves, and four convolutions over it; an
LSTM reads the frames in order. The frames of a recording are the batch of the convolutions and the time of the LSTM.

Source    https://github.com/snakers4/silero-vad, MIT; its file tinygrad_model.py says which layers there are
"""

import hashlib
import importlib.util
import os
import sys
import time
import wave
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from puregraph import LSTM, Conv1D, Graph, Input, Linear, Pad, Pointwise, Relu, Reshape, Sigmoid
from puregraph.weights import NameMap, add, squeeze, transpose

INSTALL = "pip install --no-deps silero-vad==6.2.3"
DIGEST = "c59271c284ae9c8335d795d60e0bfdb71aaaceec578d9bd9ffc1b8153c319ea1"  # of the weights
SPEECH = Path("/usr/share/pocketsphinx/test/data/librivox")
RATE, FRAME, CONTEXT = 16000, 512, 64  # samples a second, in a frame, and of the frame before
BARS = " ▁▂▃▄▅▆▇█"

NAMES = NameMap(
    [
        ("lstm_cell.weight_ih", "lstm.W", transpose),
        ("lstm_cell.weight_hh", "lstm.U", transpose),
        (("lstm_cell.bias_ih", "lstm_cell.bias_hh"), "lstm.b", add),
        ("final_conv.weight", "final_conv.W", squeeze(2) >> transpose),  # a convolution over one element
    ]
)


def detector():
    """Frames (n, 1, 576) of one recording to the probability of speech in each, (n, 1)."""
    frames = Input(name="frames").node()
    waves = Conv1D(1, 258, 256, stride=128, useBias=False, name="stft_conv")(Pad((0, 64), mode="reflect")(frames))
    h = Pointwise(formula="sqrt(a * a + b * b)", name="spectrum")(waves[:, :129], waves[:, 129:])
    for i, (inmaps, outmaps, stride) in enumerate([(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)], 1):
        h = Relu(name=f"relu{i}")(Conv1D(inmaps, outmaps, 3, stride=stride, pad=1, name=f"conv{i}")(h))
    inTime = Reshape((1, -1, 128), name="inTime")(h)
    spoken = Relu(name="relu5")(LSTM(128, 128, name="lstm")(inTime))
    y = Sigmoid(name="speech")(Linear(128, 1, name="final_conv")(Reshape((-1, 128), name="inBatch")(spoken)))
    return Graph(frames, y, name="detector")


def loaded():
    """The detector with its weights; the package is not imported."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None:
        sys.exit(f"this example needs weights: {INSTALL}")
    path = Path(spec.origin).parent / "data/silero_vad_16k.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != DIGEST:
        sys.exit(f"{path}: expected weights with sha256 {DIGEST[:16]}..., got {digest[:16]}...: {INSTALL}")
    net = detector()
    print(net.load(path, names=NAMES))
    return net.evalMode()


def readWave(path):
    """The samples of a recording, from -1 to 1."""
    with wave.open(str(path)) as file:
        got = file.getframerate(), file.getnchannels(), 8 * file.getsampwidth()
        if got != (RATE, 1, 16):
            sys.exit(f"{path}: expected 16000 Hz, 1 channel, 16 bits, got {', '.join(map(str, got))}: convert it first")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def framesOf(samples):
    """All frames, each with the last samples of the one before; zeros before the first and after the last."""
    count = -(-len(samples) // FRAME)
    padded = np.zeros(CONTEXT + count * FRAME, np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    return np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + FRAME)[::FRAME, None]


def segments(speech, threshold=0.5, pause=8):
    """(start, end) in seconds of stretches of speech; pauses of up to `pause` frames are within."""
    stretches = []
    for frame in np.flatnonzero(speech > threshold):
        if stretches and frame - stretches[-1][1] <= pause:
            stretches[-1][1] = frame + 1
        else:
            stretches.append([frame, frame + 1])
    return [(start * FRAME / RATE, end * FRAME / RATE) for start, end in stretches]


def main():
    net = loaded()
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(SPEECH.glob("*.wav"))
    if not paths:
        sys.exit(f"no recordings in {SPEECH}: apt-get install pocketsphinx-testdata, or name a file")
    for path in paths:
        samples = readWave(path)
        started = time.perf_counter()
        speech = net(framesOf(samples))[:, 0]
        took = 1000 * (time.perf_counter() - started)
        spans = ", ".join(f"{start:.2f} to {end:.2f} s" for start, end in segments(speech))
        print(f"\n{path.name}: {len(samples) / RATE:.1f} s, read in {took:.0f} ms")
        print("".join(BARS[round(8 * float(part.mean()))] for part in np.array_split(speech, min(len(speech), 100))))
        print(f"speech in {(speech > 0.5).mean():.1%} of the frames: {spans or 'nowhere'}")


if __name__ == "__main__":
    main()
