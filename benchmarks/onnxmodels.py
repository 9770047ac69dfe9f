"""Models of others, compiled, beside onnxruntime: the architectures that come with onnx, and networks in packages.

    python benchmarks/onnxmodels.py [--threads 1] [--rounds 30]

Both have the same threads and the same inputs, one sample; calls take turns, and in each the second of two is timed.
Networks of packages that are not installed are left out:

    pip install --no-deps silero-vad rapidocr-onnxruntime

Prints a table, and saves it with the command to benchmarks/results/onnxmodels1.txt (2 for two threads). Medians in
milliseconds; `ratio` is onnxruntime's time by ours: above 1 we are faster.
"""

import argparse
import os
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # before numpy's library starts its threads
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import machine

RESULTS = Path(__file__).parent / "results"
PACKAGED = {
    ("silero_vad", "data/silero_vad_16k_sequence.onnx"): {"input": (32, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ("silero_vad", "data/silero_vad_openvino_16k.onnx"): {"input": (1, 576), "state": (2, 1, 128)},
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"): {"x": (1, 3, 320, 480)},
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"): {"x": (1, 3, 48, 320)},
    ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"): {"x": (1, 3, 48, 192)},
}


def models():
    """(name, bytes of the model, shapes of its inputs by name) of each model that is there."""
    import onnx

    for path in sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx")):
        model = onnx.load(path)
        known = {tensor.name for tensor in model.graph.initializer}
        info = next(info for info in model.graph.input if info.name not in known)
        shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        yield path.stem.removeprefix("light_"), path.read_bytes(), {info.name: shape}
    for (package, file), shapes in PACKAGED.items():
        found = find_spec(package)
        if found is not None and found.origin is not None:
            path = Path(found.origin).parent / file
            if path.exists():
                yield path.stem, path.read_bytes(), shapes


def calls(model, shapes, threads):
    """A call of our program and one of onnxruntime's session, on the same inputs, and what each gives first."""
    import onnx
    import onnxruntime

    from puregraph.onnx import fromOnnx

    rng = np.random.default_rng(0)
    inputs = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    net = fromOnnx(onnx.load_from_string(model), shapes=shapes)
    byName = {name.replace("/", "_"): array for name, array in inputs.items()}  # no name of a node has a slash
    given = [byName[node.name] for node in net.inputs]
    program = net.compile([array.shape for array in given], train=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if program.why:
        raise RuntimeError(f"not compiled: {program.why}")
    return lambda: program.run(*given), lambda: session.run(None, inputs)


def milliseconds(call):
    """The time of a call behind another one, once the threads of whoever had the turn before have gone to sleep."""
    machine.awaitIdle()
    call()
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def measure(model, shapes, threads, rounds):
    """Medians of our time and onnxruntime's, with the smaller and the larger quartile of their ratio."""
    both = calls(model, shapes, threads)
    for call in both * 3:
        call()
    times = [[milliseconds(call) for call in both] for _ in range(rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*times))
    low, _, high = statistics.quantiles([b / a for a, b in times], n=4)
    return ours, theirs, low, high


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="models whose names have this in them")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    lines = [
        f"{' '.join(['python', 'benchmarks/onnxmodels.py', *sys.argv[1:]])}",
        machine.processor(),
        machine.versions(),
        f"{options.threads} threads each, {options.rounds} rounds",
        "",
        f"{'model':36}{'ours ms':>9}{'theirs ms':>11}{'ratio':>7}   quartiles",
    ]
    print("\n".join(lines), flush=True)
    for name, model, shapes in models():
        if options.only in name:
            ours, theirs, low, high = measure(model, shapes, options.threads, options.rounds)
            lines.append(f"{name:36}{ours:9.2f}{theirs:11.2f}{theirs / ours:7.2f}   {low:.2f} to {high:.2f}")
            print(lines[-1], flush=True)
    (RESULTS / f"onnxmodels{options.threads}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
