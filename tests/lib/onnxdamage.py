"""OnnxDamage: files of models with bytes or fields changed, and what onnxruntime gives next to what they are read as.

Each file is run in a forked process, as a runtime may crash, hang or take all memory for a damaged one.
"""

import os
import resource
import select
import signal
import warnings

import numpy as np
import onnx
import onnxruntime

from puregraph.core.errors import PuregraphError
from puregraph.onnx import fromOnnx

MEMORY = 2 << 30  # bytes that a process may take beside what it has
SECONDS = 120  # that a file may take, on a machine that does ten things at once
OURS, THEIRS = "ours", "theirs"  # whose turn it is
CLOSE = 1e-4
SIZE = 3  # of symbols


def damaged(data, rng):
    """Some bytes changed, cut out, doubled or put elsewhere."""
    found = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        kind, at = rng.integers(5), int(rng.integers(len(found)))
        if kind == 0:
            found[at] = rng.integers(256)
        elif kind == 1:
            found[at] ^= 1 << rng.integers(8)
        elif kind == 2:
            del found[at : at + int(rng.integers(1, 9))]
        elif kind == 3:
            found[at:at] = found[at : at + int(rng.integers(1, 9))]
        else:
            del found[at:]
        if not found:
            return b""
    return bytes(found)


def fields(message):
    """(message, field, position) of all that is a number or a text in a message and those in it; None if it is alone."""
    for field, found in message.ListFields():
        isMany = hasattr(found, "__len__") and not isinstance(found, (str, bytes)) and not hasattr(found, "ListFields")
        for i, each in enumerate(found if isMany else [found]):
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                yield from fields(each)
            else:
                yield message, field, i if isMany else None


WHOLE = [-(1 << 63), -(1 << 31), -7, -1, 0, 1, 2, 3, 7, 1000, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1]


def changed(model, rng):
    """A number or a text of a model is another one, which is somewhere else in it or at the end of its range."""
    found = type(model)()
    found.CopyFrom(model)
    every = list(fields(found))
    for _ in range(rng.integers(1, 3)):
        message, field, i = every[rng.integers(len(every))]
        others = [
            getattr(m, f.name) if j is None else getattr(m, f.name)[j] for m, f, j in every if f.type == field.type
        ]
        isWhole = isinstance(others[0], int) and not field.enum_type
        value = others[rng.integers(len(others))] if not isWhole or rng.random() < 0.3 else int(rng.choice(WHOLE))
        try:
            if i is None:
                setattr(message, field.name, value)
            else:
                getattr(message, field.name)[i] = value
        except (ValueError, IndexError):  # it has no room for that
            continue
    return found.SerializeToString()


def compared(files):
    """What becomes of each file: "refused", "alone" where onnxruntime does not run it, "equal", or what is wrong."""
    found = []
    while len(found) < len(files):
        found += batch(files[len(found) :])
    return found


def batch(files):
    """Outcomes up to the first file with which the process ends, that one included."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            for data in files:
                text = outcome(data, lambda turn: os.write(into, f"{turn}\n".encode()))
                os.write(into, f"={' '.join(text.split())[:900]}\n".encode())
        finally:
            os._exit(0)
    os.close(into)
    text, isLate = b"", False
    while True:
        isLate = not select.select([out], [], [], SECONDS)[0]
        got = b"" if isLate else os.read(out, 1 << 16)
        if not got:
            break
        text += got
    os.close(out)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    lines = text.decode().splitlines()
    found = [line[1:] for line in lines if line[0] == "="]
    if len(found) < len(files):
        found.append("alone" if lines and lines[-1] == THEIRS else f"wrong: it {'hangs' if isLate else 'crashes'}")
    return found


def outcome(data, turn):
    """What becomes of one file; `turn` is told whose it is."""
    turn(OURS)
    model = onnx.ModelProto()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.ParseFromString(data)
            net = fromOnnx(model)
        except PuregraphError:
            return "refused"
        except Exception as error:  # protobuf's own
            return "refused" if "DecodeError" in type(error).__name__ else f"wrong: {error!r}"
        data = settled(model) or data
        turn(THEIRS)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        try:
            session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
            feed = inputsOf(session)
            wanted = flat(session.run(None, feed))
        except Exception:  # its own errors have no common base
            return "alone"
        turn(OURS)
        try:
            found = net(list(feed.values()) if len(feed) != 1 else next(iter(feed.values())))
        except (PuregraphError, MemoryError):
            return "refused"
    return differences(list(found) if isinstance(found, (list, tuple)) else [found], wanted)


def settled(model):
    """The file in which each Scan gives what a node makes, and nothing twice: of another one onnxruntime gives whatever
    is in its memory, each time something else."""
    found = type(model)()
    found.CopyFrom(model)
    isSettled = True
    for node in found.graph.node:
        for body in [a.g for a in node.attribute if node.op_type == "Scan" and a.HasField("g")]:
            known = {name for n in body.node for name in n.output}
            for i, info in enumerate(body.output):
                if info.name not in known:
                    isSettled = False
                    body.node.add(op_type="Identity", input=[info.name], output=[f"settled{i}"])
                    info.name = f"settled{i}"
                known.discard(info.name)
    return None if isSettled else found.SerializeToString()


def flat(values):
    """Outputs, the elements of sequences as several."""
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def inputsOf(session):
    """Something for each input."""
    rng, found = np.random.default_rng(1), {}
    for info in session.get_inputs():
        shape = [n if isinstance(n, int) else SIZE for n in info.shape]
        kind = np.dtype({"float": "f4", "double": "f8", "float16": "f2"}.get(name := info.type[7:-1], name))
        found[info.name] = rng.standard_normal(shape).astype(kind) if kind.kind == "f" else np.ones(shape, kind)
    return found


def differences(found, wanted):
    """ "equal", or how outputs differ."""
    if len(found) != len(wanted):
        return f"wrong: {len(found)} outputs, not {len(wanted)}"
    for x, y in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"wrong: {x.dtype}{x.shape}, not {y.dtype}{y.shape}"
        most = np.abs(y).max(initial=0, where=np.isfinite(y)) if y.dtype.kind == "f" else 0
        if not np.allclose(x, y, CLOSE, CLOSE * max(1, most), equal_nan=True):
            return f"wrong: {x.tolist()}, not {y.tolist()}"
    return "equal"
