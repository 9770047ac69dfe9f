"""Write the weights that every contender of a workload starts with, in the order of the puregraph Graph's parameters.

python benchmarks/weights.py mlp mlp.npz
python benchmarks/weights.py gpt2 gpt2.npz '{"LAYERS": 2}'
"""

import json
import sys

from benchmarks import workloads
from benchmarks.contenders.puregraph import writeWeights

if __name__ == "__main__":
    name, path, *settings = sys.argv[1:]
    workloads.resize(name, json.loads(settings[0]) if settings else {})
    writeWeights(name, path)
