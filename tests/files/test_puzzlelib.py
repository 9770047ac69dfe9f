"""Files in PuzzleLib's layout: read into an equal graph, with all that such a file could do kept out."""

import json
import os
import re
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest
from audited import audited
from forgery import overlong
from puzzles import arrays, container, lenet, module, writePuzzle

from puregraph.core.errors import CheckpointError
from puregraph.graph import Graph
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Conv1D, Conv2D, Dropout, Flatten, Linear, MaxPool2D, Relu, SoftMax
from puregraph.serialize.checkpoint import contents, load, loadGraph


def net(name=None):
    """The network of the files, made here."""
    return Sequential(
        Conv2D(1, 2, 3, name="conv"),
        BatchNorm(2, name="bn"),
        MaxPool2D(name="pool"),
        Relu(name="act"),
        Flatten(name="4"),
        Dropout(name="drop"),
        Linear(8, 3, name="fc"),
        SoftMax(name="soft"),
        name=name,
    )


def expected(links, attrs, x):
    """What PuzzleLib computes with these arrays in evaluation mode, step by step in float64."""
    w, b = links["conv.W"].astype(float), links["conv.b"].astype(float)
    y = np.zeros((len(x), 2, 4, 4))
    for i in range(4):
        for j in range(4):
            y[:, :, i, j] = np.einsum("nchw,ochw->no", x[:, :, i : i + 3, j : j + 3], w) + b.reshape(2)
    y = (y - attrs["bn.mean"]) / np.sqrt(attrs["bn.var"] + 1e-5) * links["bn.scale"] + links["bn.bias"]
    y = np.maximum(y.reshape(len(x), 2, 2, 2, 2, 2).max(axis=(3, 5)), 0).reshape(len(x), 8)
    y = np.exp(y @ links["fc.W"] + links["fc.b"])
    return y / y.sum(axis=1, keepdims=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.hdf"


@pytest.mark.parametrize("compress", ["gzip", None])
@pytest.mark.parametrize("root", ["net", "", "other name"])
def test_weights_load_into_an_equal_graph(path, compress, root, rng):
    links, attrs = writePuzzle(path, root=root, compress=compress, blueprint=None)
    graph = net()
    key = graph["drop"].key.data.copy()
    report = graph.load(path, format="puzzlelib")
    assert report.complete and len(report.loaded) == 8
    assert graph["drop"].key.data == key, "counters and keys are not in such a file, and stay"
    assert {str(p.data.dtype) for p in graph.params.values()} == {"float32"}
    x = rng.standard_normal((3, 1, 6, 6)).astype(np.float32)
    assert np.allclose(graph.evalMode()(x), expected(links, attrs, x), rtol=1e-5)


def test_bytes_load_as_well(path):
    links, _ = writePuzzle(path, blueprint=None)
    graph = net()
    graph.load(path.read_bytes(), format="puzzlelib")
    assert np.array_equal(graph["conv"].b.data, links["conv.b"].ravel())


def test_a_blueprint_is_rebuilt(path, rng):
    links, attrs = writePuzzle(path)
    graph = loadGraph(path, format="puzzlelib")
    assert type(graph) is Sequential and graph.name == "net"
    assert [type(m) for m in graph] == [Conv2D, BatchNorm, MaxPool2D, Relu, Flatten, Dropout, Linear, SoftMax]
    x = rng.standard_normal((3, 1, 6, 6)).astype(np.float32)
    assert np.allclose(graph.evalMode()(x), expected(links, attrs, x), rtol=1e-5)
    assert load(path, format="puzzlelib").optimizer is None and load(path, format="puzzlelib").extra is None
    assert contents(path, format="puzzlelib").arrays["fc.W"].shape == (8, 3)


def test_a_graph_with_slots_is_rebuilt_in_any_order_of_its_nodes(path, rng):
    modules = {
        "v1": module("Linear", "v1", insize=4, outsize=6),
        "h1": module("Split", "h1", axis=1, sections=[2, 3, 1]),
        "v2": module("Linear", "v2", insize=5, outsize=2),
        "a": module("Concat", "a", axis=1),
        "z": module("Activation", "z", activation="leakyRelu", args=[0.2]),
    }
    edges = {"a": [["h1", [1, 2]], ["v2", None]], "h1": [["v1", None]], "v1": [], "v2": [], "z": [["a", None]]}
    blueprint = container("Graph", "g", modules, edges, inputs=["v1", "v2"], outputs=["z"])
    draw = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
    links = {"v1.W": draw(4, 6), "v1.b": draw(6), "v2.W": draw(5, 2), "v2.b": draw(2)}
    writePuzzle(path, links, {}, blueprint, root="g")
    graph = loadGraph(path, format="puzzlelib")
    assert type(graph) is Graph and graph.arguments == ("v1", "v2")
    x, z = draw(3, 4), draw(3, 5)
    y = np.concatenate([(x @ links["v1.W"] + links["v1.b"])[:, 2:], z @ links["v2.W"] + links["v2.b"]], axis=1)
    assert np.allclose(graph(x, z), np.where(y > 0, y, 0.2 * y), rtol=1e-5, atol=1e-6)


def test_containers_in_containers_and_shared_weights(path, rng):
    inner = container("Sequential", "in", {"fc": module("Linear", "fc", insize=3, outsize=3)}, ["fc"])
    side = container(
        "Parallel", "side", {"in": inner, "twin": module("Linear", "twin", insize=3, outsize=3)}, ["in", "twin"]
    )
    add = module("Add", "add")
    blueprint = container("Sequential", "net", {"side": side, "add": add}, ["side", "add"])
    w, b = rng.standard_normal((3, 3)).astype(np.float32), np.ones(3, np.float32)
    links = {"side.in.fc.W": w, "side.in.fc.b": b, "side.twin.W": w, "side.twin.b": np.zeros(3, np.float32)}
    writePuzzle(path, links, {}, blueprint)
    graph = loadGraph(path, format="puzzlelib")
    assert graph["side.twin"].W is graph["side.in.fc"].W and len(graph.params) == 3
    x = rng.standard_normal((2, 3)).astype(np.float32)
    assert np.allclose(graph(x, x), x @ w + 1 + x @ w, rtol=1e-5)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [(module("Activation", "m", activation=a), a) for a in ("relu", "leakyRelu", "elu", "sigmoid", "tanh", "softPlus", "clip")]
    + [(module(k, "m", **s), k) for k, s in {
        "AvgPool2D": {"size": 3, "stride": 1, "pad": 1, "includePad": False},
        "BatchNorm": {"size": 4, "affine": False},
        "BatchNorm3D": {"maps": 2},
        "Conv1D": {"inmaps": 1, "outmaps": 2, "size": 3, "groups": 1},
        "Gelu": {"inplace": True},
        "Identity": {},
        "Mul": {},
        "MulAddConst": {"a": 2.0, "b": 1.0},
        "Reshape": {"shape": [0, -1], "showWarnings": False},
    }.items()],
)  # fmt: skip
def test_every_module_that_both_have_is_made(entry, kind, path):
    writePuzzle(path, {"other.W": np.zeros(1, "f4")}, {}, container("Sequential", "net", {"m": entry}, ["m"]))
    with pytest.raises(CheckpointError, match="the graph holds other arrays"):
        loadGraph(path, format="puzzlelib")  # the modules were made; only the arrays are others


def test_a_conv1d_loses_the_axis_that_puzzlelib_gives_it(path, rng):
    w, b = rng.standard_normal((2, 1, 1, 3)).astype("f4"), np.zeros((1, 2, 1, 1), "f4")
    writePuzzle(path, {"c.W": w, "c.b": b}, {}, None)
    graph = Sequential(Conv1D(1, 2, 3, name="c"))
    assert graph.load(path, format="puzzlelib").complete and np.array_equal(graph["c"].W.data, w[:, :, 0])


def test_a_scale_that_is_not_trained_there_is_not_trained_here(path):
    blueprint = container("Sequential", "net", {"bn": module("BatchNorm2D", "bn", maps=2, affine=False)}, ["bn"])
    links, attrs = arrays(np.random.default_rng(0))
    writePuzzle(path, {k: v for k, v in links.items() if k[:2] == "bn"}, attrs, blueprint)
    assert not any(p.trainable for p in loadGraph(path, format="puzzlelib").params.values())


@pytest.mark.parametrize("kind", ["RNN", "SpatialTf", "KMaxPool", "os.system", "Module", None, 3])
def test_a_module_without_a_counterpart_is_named(kind, path):
    blueprint = container("Sequential", "net", {"odd": module(kind, "odd")}, ["odd"])
    writePuzzle(path, blueprint=blueprint)
    with pytest.raises(CheckpointError, match=f"'odd' is a {kind} of PuzzleLib, which cannot be rebuilt .*graph.load"):
        load(path, format="puzzlelib")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (module("Linear", "m", insize=3, outsize=3, transpose=True), "transposed Linear"),
        (module("Linear", "m", insize=3, outsize=3, mystery=1), "mystery"),
        (module("Activation", "m", activation="mish"), "wanted one of relu"),
        (module("Activation", "m", activation="relu", slc=[1]), "of the whole data"),
        (module("Conv2D", "m", inmaps=0, outmaps=3, size=3), "inmaps"),
    ],
)
def test_a_scheme_without_a_counterpart_is_named(entry, words, path):
    writePuzzle(path, blueprint=container("Sequential", "net", {"m": entry}, ["m"]))
    with pytest.raises(CheckpointError, match=f"'m' .*cannot be rebuilt from .*{words}"):
        load(path, format="puzzlelib")


def test_arrays_that_do_not_fit_are_listed_and_a_wider_dtype_is_not_narrowed(path):
    links, attrs = arrays(np.random.default_rng(0))
    links["fc.W"] = links["fc.W"].T.copy()
    links["fc.b"] = links["fc.b"].astype("f8")
    links["conv.b"] = links["conv.b"].astype("f2")
    links["old.W"] = links.pop("bn.bias")
    writePuzzle(path, links, attrs, None)
    graph = net()
    with pytest.raises(CheckpointError) as caught:
        graph.load(path, format="puzzlelib")
    for words in (
        "different  'fc.W': the graph has (8, 3) float32, the file (3, 8) float32",
        "different  'fc.b': the graph has (3,) float32, the file (3,) float64",
        "missing    'bn.bias'",
        "extra      'old.W'",
    ):
        assert words in str(caught.value)
    assert graph.load(path, strict=False, format="puzzlelib").loaded[:2] == ["conv.W", "conv.b"]
    assert graph["conv"].b.data.dtype == np.float32


def test_the_root_can_be_chosen(path):
    writePuzzle(path, blueprint=None)
    with h5py.File(path, "r+", libver="earliest") as file:
        for key in list(file["links"]):
            file["links"][key.replace("net.", "second.")] = file["links"][key][()]
    with pytest.raises(CheckpointError, match="under several roots; choose one with root="):
        net().load(path, format="puzzlelib")
    with pytest.raises(CheckpointError, match="does not begin with 'third.'"):
        net().load(path, root="third", format="puzzlelib")


def test_a_file_without_a_blueprint_says_what_to_do(path):
    writePuzzle(path, blueprint=None)
    with pytest.raises(CheckpointError, match=r"holds no blueprint: make the graph yourself, and load into it"):
        load(path, format="puzzlelib")


def test_any_other_hdf5_file_is_told_apart(path):
    with h5py.File(path, "w", libver="earliest") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(CheckpointError, match="neither a checkpoint of puregraph nor of PuzzleLib; it holds 'weights'"):
        load(path, format="puzzlelib")


# Hostile files --------------------------------------------------------------------------------------------------------


def replace(file, make):
    name = str(file["links"]["net.fc.W"][()])
    del file["params"][name]
    make(file["params"], name)


def external(group, name):
    group[name] = h5py.ExternalLink("victim.h5", "/secret")


def soft(group, name):
    group[name] = h5py.SoftLink("/params/0")


def virtual(group, name):
    layout = h5py.VirtualLayout((8, 3), "f4")
    layout[...] = h5py.VirtualSource("victim.h5", "secret", (8, 3))
    group.create_virtual_dataset(name, layout)


def storage(group, name):
    group.create_dataset(name, (8, 3), "f4", external=[("victim.bin", 0, 96)])


def terabytes(group, name):
    group.create_dataset(name, (2**20, 2**20), "f4", chunks=(1024, 1024), compression="gzip")


def unwritten(group, name):
    group.create_dataset(name, (8, 3), "f4")


def lzf(group, name):
    group.create_dataset(name, data=np.zeros((8, 3), "f4"), compression="lzf")


def ragged(group, name):
    group.create_dataset(name, (8, 3), h5py.vlen_dtype("f4"))


def words(group, name):
    group.create_dataset(name, (8, 3), h5py.string_dtype())


def compound(group, name):
    group.create_dataset(name, (8, 3), np.dtype([("a", "f4")]))


def nested(group, name):
    group.create_group(name)


def absent(group, name):
    return None


def inflating(group, name):
    """A chunk of 96 bytes that inflates to a hundred megabytes."""
    dataset = group.create_dataset(name, (8, 3), "f4", chunks=(8, 3), compression="gzip")
    dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(100_000_000)))


def cut(group, name):
    dataset = group.create_dataset(name, (8, 3), "f4", chunks=(8, 3), compression="gzip")
    dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(96))[:-3])


def endless(group, name):
    """A chunk of 96 bytes that inflates to more, and is as short as a sound one."""
    dataset = group.create_dataset(name, (8, 3), "f4", chunks=(8, 3), compression="gzip")
    dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(10_000)))


def infinite(group, name):
    group.create_dataset(name, (8, 3), "f4", maxshape=(None, None), chunks=(2**12, 2**12), compression="gzip")


HOSTILE = {
    external: "external link, which would read another file",
    soft: "soft link",
    virtual: "virtual dataset, which would read other files",
    storage: "external storage",
    terabytes: "the graph has .* the file .1048576, 1048576.",
    unwritten: "holds 0 of its 96 bytes",
    lzf: "uses HDF5 filters",
    ragged: "it holds values of any length",
    words: "it holds values of any length",
    compound: "it holds records that are none of numpy's numbers",
    nested: "is not a dataset",
    absent: "is missing",
    inflating: "has a chunk of .* bytes, wanted 96",
    endless: "inflates to more than 96 bytes",
    cut: "cut off",
    infinite: "cannot be",
}


def hostileFile(make, folder, monkeypatch):
    """A file of PuzzleLib one of whose arrays is something else, in a folder of its own with files that nobody may read."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    with h5py.File("victim.h5", "w") as file:
        file["secret"] = np.zeros((8, 3), "f4")
    (folder / "victim.bin").write_bytes(bytes(96))
    path = folder / "net.hdf"
    writePuzzle(path)
    with h5py.File(path, "r+", libver="earliest") as file:
        replace(file, make)
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is loaded in a fork")
def test_a_hostile_file_is_refused_for_what_it_is(path, tmp_path, monkeypatch):
    writePuzzle(path)
    paths = [path, *[hostileFile(make, tmp_path / make.__name__, monkeypatch) for make in HOSTILE]]
    for each, words, found in zip(
        paths, ["^loaded$", *HOSTILE.values()], audited("loadGraph", paths, format="puzzlelib")
    ):
        assert re.search(words, found["result"], re.S), f"{each}: {found['result']}"
        assert each == path or found["result"].startswith("CheckpointError") and "net.hdf" in found["result"]
        acts = {tuple(act) for act in found["events"] if act[0] in ("open", "exec", "marshal.loads")}
        assert acts == {("open", str(each))}, f"{each}: {acts}"
        assert found["kilobytes"] < 60_000, each


OVERFLOW = """
import sys
from puregraph.serialize.checkpoint import loadGraph
for path in sys.argv[1:]:
    try:
        loadGraph(path, format="puzzlelib")
        print("loaded")
    except Exception as error:
        print(type(error).__name__ + ": " + str(error))
print("h5py" in sys.modules)
"""


def test_a_chunk_that_says_it_is_larger_than_it_can_be_is_refused_before_it_is_read(tmp_path):
    files = {declared: tmp_path / f"{declared}.hdf" for declared in (0, 8, 20, 512, 65536, 16 << 20, 2**32 - 1)}
    for declared, path in files.items():
        path.write_bytes(overlong(min(declared, 1 << 25)) if declared < 2**32 - 1 else lying(declared))
    command = [sys.executable, "-c", OVERFLOW, *map(str, files.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    *results, usesLibrary = done.stdout.splitlines()
    for declared, result in zip(files, results, strict=True):
        assert result.startswith("CheckpointError") and f"a chunk of {declared} bytes, wanted 12" in result
    assert usesLibrary == "False", "HDF5's own library must never see a file from somewhere"


def lying(declared):
    """The same file, but the bytes are not there."""
    data = overlong(20)
    return data.replace(struct.pack("<2I", 20, 0), struct.pack("<2I", declared, 0), 1)


def test_two_datasets_that_share_their_bytes_are_refused(path):
    writePuzzle(path, compress=None)
    with h5py.File(path, "r") as file:
        one, other = (file[f"params/{k}"].id.get_offset() for k in (1, 2))
    path.write_bytes(path.read_bytes().replace(struct.pack("<Q", one), struct.pack("<Q", other)))
    with pytest.raises(CheckpointError, match="'params/2' is damaged: its bytes at .* belong to 'params/1' as well"):
        load(path, format="puzzlelib")


@pytest.mark.parametrize("call", [load, loadGraph, contents, lambda path: net().load(path)])
def test_foreign_hdf5_is_read_only_when_it_is_asked_for(call, path):
    writePuzzle(path)
    with pytest.raises(
        CheckpointError, match="HDF5 that another program wrote; if .* PuzzleLib, .* format='puzzlelib'"
    ):
        call(path)


def test_a_format_is_known_or_refused_and_ones_own_file_is_no_puzzlelib_file(path):
    net().save(path)
    with pytest.raises(CheckpointError, match="format: wanted 'puregraph' or 'puzzlelib', got 'hdf5'"):
        loadGraph(path, format="hdf5")
    with pytest.raises(CheckpointError, match="it is not an HDF5 file of PuzzleLib, it is a checkpoint of puregraph"):
        loadGraph(path, format="puzzlelib")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.create_group("surprise"), "neither a checkpoint of puregraph nor of PuzzleLib; it holds 'surprise'"),
        (lambda f: f.__setitem__("far", h5py.ExternalLink("victim.h5", "/")), "'/' holds an external link"),
        (lambda f: f.__setitem__("attrs/net.x", h5py.SoftLink("/params/0")), "'/attrs/net.x' is a soft link"),
        (lambda f: f["links"].__setitem__("net.q", np.float32(1)), "'links/net.q' is not a whole number"),
        (lambda f: f["links"].__setitem__("net.q", 99), "'/params/99' is missing"),
        (lambda f: f["links"].__setitem__("net.q", -1), "'/params/-1' is missing"),
        (lambda f: f["links"].__setitem__("net.q", np.arange(3)), "'links/net.q' is not a whole number"),
        (lambda f: f.__delitem__("links"), "neither a checkpoint of puregraph nor of PuzzleLib"),
        (lambda f: (f.__delitem__("links"), f.__setitem__("links", 3)), "'/links' is not a group"),
        (lambda f: (f.__delitem__("blueprint"), f.__setitem__("blueprint", 3)), "'blueprint' is not a text"),
        (lambda f: f["blueprint"].__setitem__((), "{"), "its blueprint is not JSON: Expecting"),
        (lambda f: f["blueprint"].__setitem__((), "[" * 50_000), "nested too deep"),
        (lambda f: f["blueprint"].__setitem__((), "[" * 100_000), "it asks for 100,000 lists in its JSON or more"),
        (lambda f: f["blueprint"].__setitem__((), '{"classname": "Linear", "classname": "RNN"}'), "stands twice"),
        (lambda f: f["blueprint"].__setitem__((), "[]"), "the network: wanted an object, got \\[\\]"),
        (lambda f: f["blueprint"].__setitem__((), json.dumps(deep(200))), "nested more than 100 deep"),
        (lambda f: f["blueprint"].__setitem__((), json.dumps(loop())), "wait for each other"),
    ],
)  # fmt: skip
def test_an_odd_file_is_refused_for_what_it_is(change, words, path):
    writePuzzle(path)
    with h5py.File(path, "r+", libver="earliest") as file:
        change(file)
    with pytest.raises(CheckpointError, match=words):
        load(path, format="puzzlelib")


def deep(depth):
    """Containers in containers."""
    blueprint = module("Identity", "i")
    for _ in range(depth):
        blueprint = container("Sequential", "s", {"i": blueprint}, ["i"])
    return blueprint


def loop():
    """Two nodes that wait for each other."""
    modules = {"a": module("Identity", "a"), "b": module("Identity", "b")}
    return container("Graph", "g", modules, {"a": [["b", None]], "b": [["a", None]]}, inputs=["a"], outputs=["b"])


def test_a_long_blueprint_is_read_whole(path):
    modules = {f"m{i}": module("Identity", f"m{i}") for i in range(3000)}
    writePuzzle(path, {}, {}, container("Sequential", "net", modules, list(modules)))
    graph = loadGraph(path, format="puzzlelib")
    assert len(graph) == 3000 and graph(np.ones((1, 2), np.float32)).shape == (1, 2)


def test_an_array_in_many_chunks_with_ragged_edges_is_read_exactly(path, rng):
    w = rng.standard_normal((37, 53)).astype(np.float32)
    with h5py.File(path, "w", libver="earliest") as file:
        for k, options in enumerate([{"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {}]):
            file.create_dataset(f"params/{k}", data=w + k, chunks=(10, 16), **options)
            file[f"links/net.m{k}.W"] = k
    graph = Sequential(*(Linear(37, 53, useBias=False, name=f"m{k}") for k in range(3)))
    graph.load(path, format="puzzlelib")
    for k in range(3):
        assert np.array_equal(graph[f"m{k}"].W.data, w + np.float32(k))


def test_what_is_loaded_can_be_saved_as_ones_own(path):
    writePuzzle(path)
    graph = loadGraph(path, format="puzzlelib")
    again = loadGraph(graph.save(None))
    assert all(np.array_equal(again.params[p].data, graph.params[p].data) for p in graph.params)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.update(classname=3), "is a 3 of PuzzleLib, which cannot be rebuilt"),
        (lambda b: b.update(graph={}), "the network: wanted a list under 'graph', got {}"),
        (lambda b: b.update(graph=["other"]), "the network: it has no module 'other'"),
        (lambda b: b.update(graph=[["fc"]]), r"its names\[0\]: wanted a text, got \['fc'\]"),
        (lambda b: b["modules"].update(fc=3), "'fc': wanted an object, got 3"),
        (lambda b: b["modules"]["fc"].update(scheme=[]), "'fc': wanted an object under 'scheme', got "),
        (
            lambda b: b.update(classname="Graph", graph={"fc": [3]}, inputs=[], outputs=[]),
            "wanted .name, slots., got 3",
        ),
    ],
)
def test_a_forged_blueprint_of_puzzlelib_is_refused_by_the_part_that_is_wrong(tmp_path, change, words):
    blueprint = lenet()
    change(blueprint)
    writePuzzle(tmp_path / "net.hdf", blueprint=blueprint)
    with pytest.raises(CheckpointError, match=words):
        load(tmp_path / "net.hdf", format="puzzlelib")
