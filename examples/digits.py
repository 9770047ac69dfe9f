"""LeNet as a graph on handwritten digits: check the shapes, train, save, load, read the result.

    python examples/digits.py            three runs of 40 epochs, under a minute on two cores
    python examples/digits.py --small    two runs of two epochs, to see that everything works

The 1797 images of 8 x 8 pixels come with scikit-learn (pip install scikit-learn). A quarter of them, the same share
of every digit, is never trained on. The last network is written to digits.h5 in the current folder.
"""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products this small only wait for a second thread

import numpy as np

import puregraph
from puregraph import Accuracy, AdamW, Calculator, Cosine, CrossEntropy, Trainer, seed, summary
from puregraph.core import device
from puregraph.data import digits
from puregraph.models import lenet

SMALL = "--small" in sys.argv
SEEDS, EPOCHS, BATCH = (2, 2, 32) if SMALL else (3, 40, 32)
WANTED = 0.5 if SMALL else 0.98
FILE = "digits.h5"


def build():
    """LeNet for 8 x 8 pixels, with what helps on few images."""
    return lenet(size=8, maps=(16, 32), norm=True, dropout=0.4)


def train(number, data, target, held):
    """One run: everything random in it comes from `number`."""
    seed(number)
    net = build()
    steps = EPOCHS * -(-len(data) // BATCH)
    optimizer = AdamW(3e-3, decay=0.05, schedule=Cosine(steps))
    trainer = Trainer(net, CrossEntropy(smoothing=0.1), optimizer, BATCH, metrics=[Accuracy()], seed=number)
    trainer.train(data, target, epochs=EPOCHS, validation=held)
    return trainer


def draw(image):
    """An image in characters, two for a pixel."""
    shades = np.array(list(" .:-=+*#%@"))
    return "\n".join("".join(row).rstrip() for row in np.repeat(shades[np.rint(9 * image).astype(int)], 2, axis=-1))


def main():
    print(device.reason())
    (data, target), held = digits()
    print(f"{len(data)} images to train, {len(held[0])} held out\n")
    print(summary(build(), ("N", 1, 8, 8)))

    scores = []
    for number in range(SEEDS):
        print(f"\nseed {number}")
        trainer = train(number, data, target, held)
        scores.append(trainer.history[-1]["val accuracy"])
    shown = "  ".join(f"seed {number}: {100 * score:.2f} %" for number, score in enumerate(scores))
    mean = float(np.mean(scores))
    print(f"\nheld-out accuracy  {shown}  mean: {100 * mean:.2f} %")

    trainer.save(FILE)
    print(f"written: {FILE}; its tensors: puregraph inspect {FILE}")

    net = puregraph.load(FILE)
    logits = Calculator(net).calculate(held[0])
    guess = logits.argmax(axis=1)
    wrong = np.flatnonzero(guess != held[1])
    print(f"loaded again, and {len(held[1])} digits read with it: {len(wrong)} are wrong\n")
    for place in (0, *wrong[:1]):
        print(draw(held[0][place, 0]))
        print(f"read as {guess[place]}, labelled {held[1][place]}\n")
    return 0 if mean >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
