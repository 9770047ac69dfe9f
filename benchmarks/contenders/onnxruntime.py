"""onnxruntime, for inference: the torch network as an ONNX file, all optimizations on, weights prepacked."""

import os

import numpy as np
import onnxruntime

from benchmarks import workloads

THREADS, FLUSH = 1, "0"


def begin(threads):
    """Threads are an option of each session, and so are denormals as zero, for good in the calling thread."""
    global THREADS, FLUSH
    THREADS, FLUSH = threads, "1"


def number(result):
    """The root mean square of a step's result."""
    return float(np.sqrt(np.mean(np.square(result, dtype=np.float64))))


def prepare(name, mode, batch, weights):
    """A step, and notes about it."""
    path = f"{os.environ['BENCHMARK_CACHE']}/{name}-{batch}.onnx"  # the driver has put it there
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.set_denormal_as_zero", FLUSH)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs, _ = workloads.dataOf(workloads.load(name), batch)
    given = {slot.name: x for slot, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, given)[0], {}
