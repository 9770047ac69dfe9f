"""Saves a checkpoint again and again until it is killed: `python saving.py PATH`. Prints a line after each save."""

import sys

import numpy as np

from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.serialize.checkpoint import save


def net(number):
    """A network of about a megabyte whose every value is the number of the save."""
    found = Sequential(Linear(512, 512, name="fc"))
    found["fc"].W.data = np.full((512, 512), number, np.float32)
    return found


def main(path):
    number = 0
    while True:
        number += 1
        save(path, net(number), extra={"number": number})
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
