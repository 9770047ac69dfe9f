"""A network of handwritten digits as one of 8-bit integers: which layer hurts, how many bytes, how many are read.

    python examples/quantise.py            ten epochs, then seven forms of the network, about 20 seconds
    python examples/quantise.py --small    three epochs

The images come with scikit-learn (pip install scikit-learn). The integer network is written to digits8.h5 and, if onnx
is installed, to digits8.onnx in the current folder.
"""

import importlib.util
import sys

import numpy as np

import puregraph
from puregraph import Adam, CrossEntropy, Quantiser, Trainer, quantise, seed
from puregraph.data import digits
from puregraph.models import lenet

SMALL = "--small" in sys.argv
EPOCHS, WANTED = (3, 0.8) if SMALL else (10, 0.97)
FORMS = {
    "static, min-max": {},
    "static, percentile": {"calibration": "percentile"},
    "static, entropy": {"calibration": "entropy"},
    "static, conv1 float": {"keep": "conv1"},
    "dynamic": {"mode": "dynamic"},
    "weights, int8": {"mode": "weights"},
    "weights, int4": {"mode": "weights", "weights": "int4"},
}


def accuracy(net, data, target):
    """The share of images that are read as they are labelled."""
    return float(np.mean(net(data).argmax(axis=1) == target))


def main():
    (data, target), (rest, labels) = digits()
    seed(0)
    net = lenet(size=8, maps=(16, 32), norm=True)
    Trainer(net, CrossEntropy(), Adam(3e-3), 64, progress="none", seed=0).train(data, target, epochs=EPOCHS)
    net.evalMode()

    plan = Quantiser(net, data[:200])
    print(plan.table())
    before = accuracy(net, rest, labels)
    print(f"\n{'form':22}{'bytes':>10}{'read right':>12}")
    print(f"{'float32':22}{plan.bytes[0]:10,}{100 * before:10.2f} %")
    scores = []
    for name, options in FORMS.items():
        form = Quantiser(net, data[:200], **options)
        scores.append(accuracy(form.graph(), rest, labels))
        print(f"{name:22}{form.bytes[1]:10,}{100 * scores[-1]:10.2f} %")

    small = quantise(net, data[:200])
    small.save("digits8.h5")
    isSame = np.array_equal(puregraph.load("digits8.h5")(rest), small(rest))
    print(f"\nsaved, loaded and compared: {'the same' if isSame else 'different'}")
    if importlib.util.find_spec("onnx"):
        from puregraph.onnx import toOnnx

        toOnnx(small, "digits8.onnx", shapes=[("N", 1, 8, 8)], opset=21)
        print("written: digits8.onnx")
    return 0 if isSame and before >= WANTED and min(scores) > before - (0.05 if SMALL else 0.02) else 1


if __name__ == "__main__":
    sys.exit(main())
