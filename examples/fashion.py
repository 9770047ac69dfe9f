"""LeNet on Fashion-MNIST: 60,000 pictures of clothes to train on, 10,000 to test, at least 0.90 of them right.

    sudo apt-get install dataset-fashion-mnist      the pictures, on Debian and Ubuntu
    python examples/fashion.py                      10 epochs
    python examples/fashion.py --small              one epoch of 512 pictures

Elsewhere, PUREGRAPH_DATA names the folder that holds the four files of https://github.com/zalandoresearch/fashion-mnist.
The result is written to fashion.h5 in the current folder; what a full run reached is in docs/fashion.md.
"""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products this small only wait for a second thread

from puregraph import Accuracy, Adam, Checkpoint, Confusion, CrossEntropy, DataError, OneCycle, Trainer, seed
from puregraph.core import device
from puregraph.data import fashion
from puregraph.models import lenet

SMALL = "--small" in sys.argv
SEED, EPOCHS, BATCH = 0, 1 if SMALL else 10, 64
WANTED = 0.0 if SMALL else 0.90
NAMES = ("t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")


def main():
    try:
        (data, target), test = fashion()
    except DataError as error:
        print(error)
        return 2
    if SMALL:
        data, target, test = data[:512], target[:512], (test[0][:256], test[1][:256])
    print(device.reason())
    print(f"{len(data)} pictures to train, {len(test[0])} to test")

    seed(SEED)
    net = lenet(size=28, maps=(16, 32), norm=True, dropout=0.3)
    steps = EPOCHS * -(-len(data) // BATCH)
    trainer = Trainer(
        net,
        CrossEntropy(),
        Adam(4e-3, schedule=OneCycle(steps)),
        BATCH,
        metrics=[Accuracy(), Confusion(10)],
        callbacks=[Checkpoint("fashion.h5")],
        seed=SEED,
    )
    trainer.train(data, target, epochs=EPOCHS, validation=test)

    _, confusion = trainer.validator.metrics
    print("\nof each kind, how many were recognised")
    for name, recall in zip(NAMES, confusion.recall(), strict=True):
        print(f"  {name:9} {recall:.3f}")
    score = trainer.history[-1]["val accuracy"]
    seconds = sum(trainer.history.column("seconds"))
    print(f"\ntest accuracy {score:.4f} with seed {SEED} after {EPOCHS} epochs in {seconds:.0f} s; written: fashion.h5")
    return 0 if score >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
