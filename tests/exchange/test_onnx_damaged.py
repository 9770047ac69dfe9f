"""Damaged models are refused with an error of puregraph's, or mean something else that is right; no other file is opened."""

import builtins
import io
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from test_onnx_reader import mlp  # noqa: E402

from puregraph import CheckpointError, Graph, PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402


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


def check(count, seed, tmp_path, monkeypatch):
    """Read damaged models: each gives a graph or an error of puregraph's, and opens itself alone."""
    data, rng = mlp()[0].SerializeToString(), np.random.default_rng(seed)
    fromOnnx(mlp()[0])  # all readers are imported
    path, opened, real = tmp_path / "net.onnx", [], io.open
    (tmp_path / "secret").write_bytes(b"secret")

    def watched(file, *args, **kwargs):
        opened.append(str(file))
        return real(file, *args, **kwargs)

    for _ in range(count):
        path.write_bytes(damaged(data, rng))
        with monkeypatch.context() as patch, warnings.catch_warnings():
            patch.setattr(builtins, "open", watched)
            warnings.simplefilter("ignore")
            try:
                assert isinstance(fromOnnx(path), Graph)
            except PuregraphError:
                pass
    assert set(opened) <= {str(path)}


@pytest.mark.parametrize("field", ["graph", "node", "input", "output", "kind", "array"])
def test_a_name_that_is_no_text_is_refused(tmp_path, field):
    model = mlp()[0]
    graph = model.graph
    if field == "graph":
        graph.name = "@@@@"
    elif field == "kind":
        graph.node[0].op_type = "@@@@"
    else:
        {"node": graph.node, "input": graph.input, "output": graph.output, "array": graph.initializer}[field][
            0
        ].name = "@@@@"
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString().replace(b"@@@@", b"a\xff\xfeb"))
    with pytest.raises(CheckpointError, match=r"wanted a text in UTF-8, got b'a\\xff\\xfeb'"):
        fromOnnx(path)


def test_300_damaged_models_are_refused_or_read(tmp_path, monkeypatch):
    check(300, 1, tmp_path, monkeypatch)


@pytest.mark.slow
def test_10000_damaged_models_are_refused_or_read(tmp_path, monkeypatch):
    check(10_000, 2, tmp_path, monkeypatch)
