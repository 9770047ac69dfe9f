"""Networks of 8-bit integers, read from ONNX and compiled, beside onnxruntime's and beside our own float32.

    python benchmarks/int8.py [--threads 2] [--rounds 30] [--cpu]

onnxruntime.quantization makes the files from ResNet-18, MobileNet-v2 and an encoder of random weights: with QLinearConv
and the like (QOperator), with layers between changes of kind (QDQ), and with ranges of the data (dynamic). All have
the same threads and the same inputs, one sample; calls take turns, and in each the second of two is timed. With
`--cpu` one thread's time of the processor is compared, which other processes disturb less.

Prints a table, and saves it with the command to benchmarks/results/int8.txt. Medians in milliseconds; `theirs` is
onnxruntime's time by ours, `float32` that of our program of float32 by ours: above 1 we are faster, or integers are.
`steps` is the largest difference from onnxruntime's result, in units of its largest value.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # before numpy's library starts its threads
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import machine

RESULTS = Path(__file__).parent / "results"
FORMATS = ("QOperator", "QDQ", "dynamic")
OPSET = 21


def networks():
    """(name, network, shape of its input)."""
    from puregraph.models import mobilenet, resnet18, transformer

    yield "ResNet-18", resnet18(), (1, 3, 224, 224)
    yield "MobileNet-v2", mobilenet(), (1, 3, 224, 224)
    yield "encoder", transformer(layers=4, size=256, heads=4), (1, 128, 256)


class Samples:
    """Random samples of one input, as onnxruntime's calibration reads them."""

    def __init__(self, name, shape, count=4):
        rng = np.random.default_rng(1)
        self.batches = iter([{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(count)])

    def get_next(self):
        return next(self.batches, None)


def files(net, shape, folder):
    """The paths of a network's files: "float32", and one for each format."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from puregraph.onnx import toOnnx

    plain, paths = str(folder / "plain.onnx"), {name: str(folder / f"{name}.onnx") for name in ("float32", *FORMATS)}
    net.evalMode()
    toOnnx(net, plain, shapes=[shape], opset=OPSET)
    quant_pre_process(plain, paths["float32"])
    name = onnx.load(paths["float32"]).graph.input[0].name
    kinds = {"weight_type": QuantType.QInt8}
    for kind in FORMATS[:2]:
        options = {"quant_format": QuantFormat[kind], "activation_type": QuantType.QUInt8, "per_channel": True, **kinds}
        quantize_static(paths["float32"], paths[kind], Samples(name, shape), **options)
    quantize_dynamic(paths["float32"], paths["dynamic"], **kinds)
    return name, paths


def callsOf(path, name, x, threads):
    """A call of our program, and one of onnxruntime's session."""
    import onnx
    import onnxruntime

    from puregraph.onnx import fromOnnx

    program = fromOnnx(onnx.load(path)).compile([x.shape], train=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: program.run(x), lambda: session.run(None, {name: x})[0]


def milliseconds(call, clock):
    """The time of a call behind another one, once the threads of whoever had the turn before have gone to sleep."""
    machine.awaitIdle()
    call()
    start = clock()
    call()
    return 1e3 * (clock() - start)


def rows(label, net, shape, threads, rounds, clock):
    """The lines of a network."""
    with tempfile.TemporaryDirectory() as folder:
        name, paths = files(net, shape, Path(folder))
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        calls = [call for path in paths.values() for call in callsOf(path, name, x, threads)]
    for call in calls * 3:
        call()
    times = list(zip(*[[milliseconds(call, clock) for call in calls] for _ in range(rounds)]))
    medians = [statistics.median(column) for column in times]
    for i, kind in enumerate(paths):
        ours, theirs = medians[2 * i : 2 * i + 2]
        y, expected = calls[2 * i](), calls[2 * i + 1]()
        steps = float(np.abs(y - expected).max() / np.abs(expected).max())
        ratio = f"{medians[0] / ours:9.2f}"
        yield f"{label:14}{kind:11}{ours:9.2f}{theirs:11.2f}{theirs / ours:9.2f}{ratio}{steps:9.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="networks whose names have this in them")
    parser.add_argument("--cpu", action="store_true", help="time of the processor, with one thread")
    options = parser.parse_args()
    options.threads = 1 if options.cpu else options.threads
    clock = time.thread_time if options.cpu else time.perf_counter
    logging.disable(logging.WARNING)
    os.environ["PUREGRAPH_THREADS"] = str(options.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    lines = [
        " ".join(["python", "benchmarks/int8.py", *sys.argv[1:]]),
        machine.processor(),
        machine.versions(),
        f"threads: {options.threads}, {options.rounds} rounds; load of the machine: {os.getloadavg()[0]:.1f}",
        "",
        f"{'network':14}{'file':11}{'ours ms':>9}{'theirs ms':>11}{'theirs':>9}{'float32':>9}{'steps':>9}",
    ]
    print("\n".join(lines), flush=True)
    for label, net, shape in networks():
        if options.only in label:
            for line in rows(label, net, shape, options.threads, options.rounds, clock):
                lines.append(line)
                print(line, flush=True)
    if not options.only:
        (RESULTS / "int8.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
