"""Write the torch network of a workload as an ONNX file, for onnxruntime.

python benchmarks/export.py mlp 64 mlp.onnx [weights.npz]
"""

import sys
import warnings

import torch

from benchmarks import workloads
from benchmarks.contenders.torch import network


def export(name, batch, path, weights=None):
    """Write the network in evalMode, for inputs of this batch."""
    workload = workloads.load(name)
    inputs, _ = workloads.dataOf(workload, batch)
    net = network(workload, weights).eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter without further packages is the older one, and says so
        torch.onnx.export(net, tuple(map(torch.from_numpy, inputs)), path, opset_version=17, dynamo=False)


if __name__ == "__main__":
    export(sys.argv[1], int(sys.argv[2]), sys.argv[3], *filter(None, sys.argv[4:]))
