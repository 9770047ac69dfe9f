"""Write the weights that every contender of a workload starts with, in the order of the puregraph Graph's parameters.

python benchmarks/weights.py mlp mlp.npz
"""

import sys

from benchmarks.contenders.puregraph import writeWeights

if __name__ == "__main__":
    writeWeights(*sys.argv[1:])
