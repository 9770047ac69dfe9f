"""Weights of other programs in a graph: by dicts, by files, in part, converted, refused; all of them or none."""

import re

import numpy as np
import pytest

import puregraph
from puregraph import models
from puregraph.core.errors import ArgumentError, CheckpointError
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Conv2D, Dropout, Linear, Relu
from puregraph.optimizers import Adam
from puregraph.serialize.checkpoint import loadInto
from puregraph.serialize.weights import NameMap, StoredTensor, WeightFile, squeeze
from puregraph.serialize.weights.readers import READERS
from puregraph.serialize.weights.saving import fileArrays


def small():
    return Sequential(Linear(4, 8, name="fc1"), BatchNorm(8, name="norm"), Relu(), Linear(8, 2, name="fc2"), name="net")


def stored(rng, dtype="float32", prefix=""):
    """The arrays of a torch module of the same layers and names."""
    shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "norm.weight": (8,), "norm.bias": (8,), "norm.running_mean": (8,)}
    shapes |= {"norm.running_var": (8,), "fc2.weight": (2, 8), "fc2.bias": (2,)}
    arrays = {prefix + name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {**arrays, f"{prefix}norm.num_batches_tracked": np.array(7)}


def content(net):
    return {path: np.array(stored.data) for path, stored in {**net.params, **net.states}.items()}


def refused(net, words, *args, **options):
    """Check that a load is refused with these words, and changes nothing; return the message."""
    before = content(net)
    with pytest.raises(CheckpointError, match=words) as error:
        net.load(*args, **options)
    after = content(net)
    assert all(np.array_equal(before[path], after[path]) for path in before)
    return str(error.value)


# What is loaded -------------------------------------------------------------------------------------------------------


def test_arrays_by_name(rng):
    net, arrays = small(), stored(rng)
    report = net.load(arrays, names="torch")
    assert report.complete and str(report) == "9 arrays fit"
    assert np.array_equal(net["fc1"].W.data, arrays["fc1.weight"].T)
    assert np.array_equal(net["norm"].var.data, arrays["norm.running_var"])
    assert net["norm"].count.data == 7


def test_arrays_that_are_loaded_share_no_memory(rng):
    net, arrays = small(), stored(rng)
    net.load(arrays, names="torch")
    before = content(net)
    for array in arrays.values():
        array[...] = 0
    assert all(np.array_equal(before[path], array) for path, array in content(net).items())
    assert all(param.data.flags["C_CONTIGUOUS"] and param.data.flags["WRITEABLE"] for param in net.params.values())


def test_the_paths_of_the_graph_are_the_names_without_a_map(rng):
    net, other = small(), small()
    report = net.load(content(other))
    assert report.complete
    assert all(np.array_equal(a, b) for a, b in zip(content(net).values(), content(other).values()))


def test_a_dict_of_names(rng):
    net = Sequential(Linear(4, 8, name="a"), Linear(8, 2, name="b"))
    arrays = {"layers.0.weight": rng.random((8, 4)), "layers.0.bias": rng.random(8)}
    arrays |= {"layers.1.weight": rng.random((2, 8)), "layers.1.bias": rng.random(2)}
    assert net.load(arrays, names={"layers.0": "a", "layers.1.weight": "b.W", "layers.1.bias": "b.b"}).complete
    assert np.allclose(net["b"].W.data, arrays["layers.1.weight"].T)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("wanted", ["float16", "float32", "float64"])
def test_floats_are_converted(dtype, wanted, rng):
    net, arrays = small(), stored(rng, dtype)
    net.calcMode(np.dtype(wanted))
    net.load(arrays, names="torch")
    for path, array in content(net).items():
        assert (
            array.dtype
            == (net[path.partition(".")[0]].params | net[path.partition(".")[0]].states)[path.partition(".")[2]].dtype
        )
    assert net["fc2"].W.data.dtype == wanted
    assert np.array_equal(net["fc2"].W.data, arrays["fc2.weight"].T.astype(wanted))


@pytest.mark.peers
def test_a_state_dict_of_torch(rng):
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    names = {"0": "fc1", "1": "norm", "3": "fc2"}
    net, x = small().evalMode(), rng.standard_normal((3, 4)).astype("float32")
    assert net.load(layers.eval().state_dict(), names=names).complete
    assert np.allclose(net(x), layers(torch.tensor(x)).detach().numpy(), atol=1e-6)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        made = layers.to(dtype).state_dict()
        assert net.load(made, names=names).complete
        assert np.array_equal(net["fc2"].W.data, made["3.weight"].float().numpy().T)


@pytest.mark.peers
def test_a_module_of_torch_is_refused_with_its_state_dict():
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"module.state_dict\(\)"):
        small().load(torch.nn.Linear(2, 3))


def test_counters_that_a_file_lacks_keep_their_values(rng):
    net, arrays = Sequential(*small(), Dropout(0.5, name="drop")), stored(rng)
    del arrays["norm.num_batches_tracked"]
    net["norm"].count.data = np.array(5)
    assert net.load(arrays, names="torch").complete
    assert net["norm"].count.data == 5


def test_ignored_arrays_are_listed_and_no_others(rng):
    net, arrays = small(), stored(rng)
    arrays |= {"fc1.mask": np.zeros(3), "fc1.other": np.zeros(3)}
    names = NameMap(ignored=("*.mask",))
    report = net.load(arrays, names=names, strict=False)
    assert report.ignored == ["fc1.mask"]
    assert [str(m.name) for m in report.extra] == ["fc1.other"]
    assert "ignored    'fc1.mask'" in str(report)
    del arrays["fc1.other"]
    assert net.load(arrays, names=names).complete


def test_an_optimizer_is_not_in_such_files(rng):
    net = small()
    optimizer = Adam().setupOn(net)
    with pytest.raises(CheckpointError, match="holds no optimizer; the Adam given would start anew"):
        loadInto(stored(rng), net, optimizer, names="torch")


def test_tied_arrays(rng):
    net = models.gpt(11, 7, 1, 2, 8)
    arrays = {"words.weight": rng.random((11, 8)).astype("float32")}
    for both in (False, True):
        given = arrays | ({"scores.weight": arrays["words.weight"].copy()} if both else {})
        report = net.load(given, names="torch", strict=False)
        assert "words.W" in report.loaded and not report.extra
        assert net["scores"].W is net["words"].W
    given["scores.weight"][3, 2] += 1
    report = net.load(given, names="torch", strict=False)
    assert "two arrays that differ" in str(report)


# Parts ----------------------------------------------------------------------------------------------------------------


def test_a_prefix_is_left_out_with_all_names_that_do_not_begin_so(rng):
    net, arrays = small(), stored(rng, prefix="model.")
    assert net.load(arrays | {"ema.fc1.weight": np.zeros(3)}, names="torch", prefix="model.").complete
    assert np.array_equal(net["fc2"].b.data, arrays["model.fc2.bias"])
    refused(net, r"none of its names begins with prefix='nets.'; it has 'model", arrays, names="torch", prefix="nets.")


def test_only_some_paths(rng):
    net, arrays = small(), stored(rng)
    before = content(net)
    report = net.load(arrays, names="torch", only="fc*")
    assert report.complete and sorted(report.loaded) == ["fc1.W", "fc1.b", "fc2.W", "fc2.b"]
    for path, array in content(net).items():
        assert np.array_equal(before[path], array) == path.startswith("norm")
    assert net.load(arrays, names="torch", only=("*.mean", "fc1.W")).loaded == ["fc1.W", "norm.mean"]
    refused(net, r"only='head\.\*' matches no array of the graph; it has", arrays, names="torch", only="head.*")
    arrays["fc2.weight"] = np.zeros((5, 8))
    assert net.load(arrays, names="torch", only="fc1.*").complete
    refused(net, "'fc2.W'", arrays, names="torch", only="fc2.*")


def test_only_some_paths_of_a_checkpoint(tmp_path, rng):
    net, other = small(), small()
    net.save(tmp_path / "net.h5")
    assert other.load(tmp_path / "net.h5", only="fc1.*").loaded == ["fc1.W", "fc1.b"]
    assert np.array_equal(net["fc1"].W.data, other["fc1"].W.data)
    assert not np.array_equal(net["fc2"].W.data, other["fc2"].W.data)


def test_what_fits_without_strict(rng):
    net, arrays = small(), stored(rng)
    arrays["fc2.weight"] = np.zeros((3, 8))
    del arrays["norm.bias"]
    report = net.load(arrays, names="torch", strict=False)
    assert [m.name for m in report.mismatched] == ["fc2.W"]
    assert [m.name for m in report.missing] == ["norm.bias"]
    assert len(report.loaded) == 7


# What is refused ------------------------------------------------------------------------------------------------------


def unread(name, shape, dtype="float32"):
    def fetch():
        raise AssertionError(f"{name} was read")

    return StoredTensor(name, shape, dtype, fetch)


def test_shapes_are_refused_before_anything_is_read(rng):
    net = small()
    arrays = {name: unread(name, array.shape) for name, array in stored(rng).items()}
    arrays["fc1.weight"] = unread("fc1.weight", (1 << 20, 1 << 20))
    text = refused(net, "the graph holds other arrays", arrays, names="torch")
    assert (
        "'fc1.W': the graph has (4, 8) float32, the file (1048576, 1048576) float32 as 'fc1.weight', wanted (8, 4) there"
        in text
    )


@pytest.mark.parametrize("shape", [(), (8,), (4, 8), (8, 4, 1), (7, 4)])
def test_other_shapes(shape, rng):
    refused(small(), "'fc1.W': the graph has", stored(rng) | {"fc1.weight": np.zeros(shape)}, names="torch")


def test_parts_that_are_not_equal_are_refused():
    net = Sequential(Linear(4, 7, name="qk"))
    arrays = {"q.weight": unread("q.weight", (3, 4)), "k.weight": unread("k.weight", (4, 4))}
    refused(net, "cannot be 2 equal parts", arrays, names={("q.weight", "k.weight"): "qk.W"})


@pytest.mark.parametrize(
    ("name", "dtype"), [("fc1.weight", "int64"), ("fc1.weight", "bool"), ("norm.num_batches_tracked", "float32")]
)
def test_other_kinds_of_numbers(name, dtype, rng):
    arrays = stored(rng)
    arrays[name] = arrays[name].astype(dtype)
    refused(small(), f"the file .* {dtype} as '{name}'", arrays, names="torch")


@pytest.mark.parametrize(
    ("wanted", "value"), [("float16", 1e5), ("float32", 1e300), ("float16", -7e4)], ids=["half", "single", "negative"]
)
def test_numbers_that_a_dtype_cannot_hold(wanted, value, rng):
    net, arrays = small(), stored(rng, "float64")
    net.calcMode(np.dtype(wanted))
    arrays["fc2.weight"][1, 2] = value
    refused(net, f"'fc2.weight' holds float64 numbers that {wanted} cannot hold", arrays, names="torch")
    arrays["fc2.weight"][1, 2] = np.inf
    assert net.load(arrays, names="torch").complete, "an infinity is one in any dtype"


def test_a_failing_read_changes_nothing(rng):
    net, arrays = small(), stored(rng)

    def fetch():
        raise CheckpointError("'fc2.bias' is damaged")

    refused(
        net,
        "'fc2.bias' is damaged",
        arrays | {"fc2.bias": StoredTensor("fc2.bias", (2,), "float32", fetch)},
        names="torch",
    )
    lying = StoredTensor("fc2.bias", (2,), "float32", lambda: np.zeros(3, np.float32))
    refused(net, r"'fc2.bias' is \(3,\), declared was \(2,\)", arrays | {"fc2.bias": lying}, names="torch")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"state_dict": {"a": np.zeros(3)}}, r"'state_dict' is a dict itself: give that one, arrays\['state_dict'\]"),
        ({"a": [1, 2]}, "wanted an array for 'a', got list"),
        ({"a": None}, "wanted an array for 'a', got NoneType"),
        ({3: np.zeros(3)}, "wanted names of arrays as texts, got 3"),
    ],
)
def test_other_things_than_arrays_by_name(arrays, words):
    with pytest.raises(ArgumentError, match=words):
        small().load(arrays)


@pytest.mark.parametrize("names", [3, ["a"], b"torch"])
def test_other_things_than_names(names, rng):
    with pytest.raises(ArgumentError, match="names: wanted a NameMap, a dict or one of 'torch'"):
        small().load(stored(rng), names=names)


@pytest.mark.parametrize("options", [{"names": "torch"}, {"prefix": "a."}, {"names": NameMap()}])
def test_names_are_for_files_of_others(options, tmp_path):
    net = small()
    net.save(tmp_path / "net.h5")
    refused(net, "names= and prefix= are for files of other programs", tmp_path / "net.h5", **options)


# The way to load ------------------------------------------------------------------------------------------------------


def test_the_ready_map_that_would_load_all(rng):
    text = refused(small(), "the graph holds other arrays", stored(rng))
    assert "net.load(arrays, names='torch') loads all of it" in text
    text = refused(small(), "the graph holds other arrays", stored(rng, prefix="a.b."))
    assert "net.load(arrays, names='torch', prefix='a.b.') loads all of it" in text
    text = refused(small(), "the graph holds other arrays", stored(rng, prefix="a.b."), names="torch")
    assert "prefix='a.b.') loads all of it" in text
    own = {f"net.{path}": array for path, array in content(small()).items()}
    assert "net.load(arrays, prefix='net.') loads all of it" in refused(small(), "other arrays", own)


def test_the_proposed_call_repeats_the_given_names(rng):
    text = refused(small(), "other arrays", stored(rng, prefix="module._orig_mod."), names="torch")
    assert "net.load(arrays, names='torch', prefix='module._orig_mod.') loads all of it" in text
    names = {"norm": "norm"}
    text = refused(small(), "other arrays", stored(rng, prefix="a."), names=names)
    assert f"net.load(arrays, names={names!r}, prefix='a.') loads all of it" in text


@pytest.mark.parametrize("names", [None, "torch"])
def test_parametrized_weights_are_refused_with_the_call_that_makes_them_plain(names, rng):
    arrays = stored(rng)
    weight = arrays.pop("fc1.weight")
    stores = {
        "weight_g": "torch.nn.utils.remove_weight_norm(module.get_submodule('fc1'), 'weight')",
        "weight_orig": "torch.nn.utils.remove_spectral_norm(module.get_submodule('fc1'), 'weight')",
        "parametrizations.weight.original": "parametrize.remove_parametrizations(module.get_submodule('fc1'), 'weight')",
        "parametrizations.weight.original0": "parametrize.remove_parametrizations(module.get_submodule('fc1'), 'weight')",
    }
    for name, call in stores.items():
        given = arrays | {f"fc1.{name}": weight} | ({"fc1.weight_v": weight} if name == "weight_g" else {})
        text = refused(small(), "other arrays", given, names=names)
        assert call in text and "strict=False" not in text


@pytest.mark.peers
def test_a_file_of_several_state_dicts_is_loaded_by_prefix(tmp_path, rng):
    torch = pytest.importorskip("torch")
    first, second = ({n: torch.tensor(a) for n, a in stored(rng).items()} for _ in range(2))
    for beside, prefix in [(second, "model_ema."), ({"module": second, "updates": 3}, "model_ema.module.")]:
        path = str(tmp_path / "both.pt")
        torch.save({"model": first, "model_ema": beside, "optimizer": {"momentum": first}, "epoch": 3}, path)
        net = small()
        text = refused(net, "other arrays", path, names="torch")
        assert "the file holds several state dicts that fit; choose one with prefix=" in text
        assert f"net.load({path!r}, names='torch', prefix='model.') loads all of it" in text
        assert f"net.load({path!r}, names='torch', prefix={prefix!r}) loads all of it" in text
        net.load(path, names="torch", prefix=prefix, strict=False)
        assert np.array_equal(net["fc1"].W.data, second["fc1.weight"].numpy().T)


def test_the_map_of_a_family(rng):
    net = models.resnet18(classes=3)
    names = puregraph.weights.readyMap("torchvision", net)
    arrays = {**net.params, **net.states}
    file = {link.files[0]: unread(link.files[0], link.how.fileShapes([arrays[link.paths[0]].shape], 1)[0],
            "int64" if link.files[0].endswith("tracked") else "float32") for link in names.links(net)}  # fmt: skip
    with pytest.raises(CheckpointError, match=r"net.load\('resnet18.pth', names='torchvision'\) loads all of it"):
        net.load(WeightFile("torch", "resnet18.pth", file))


def test_a_map_is_proposed_that_can_be_pasted(rng):
    net, arrays = small(), stored(rng)
    renamed = {name.replace("fc", "module.dense").replace("norm", "module.bn"): array for name, array in arrays.items()}
    text = refused(net, "the graph holds other arrays", renamed)
    assert "loads all of it" not in text
    proposed = re.search(r"NameMap\(\n.*^\)", text, re.S | re.M)[0]
    assert net.load(renamed, names=eval(proposed, {"NameMap": NameMap})).complete
    assert np.array_equal(net["fc2"].W.data, arrays["fc2.weight"].T)


def test_a_file_of_weights_has_no_network(rng):
    with pytest.raises(ArgumentError):
        puregraph.load(stored(rng))


def test_damaged_names_are_printed_safely(rng):
    text = refused(small(), "other arrays", {"a\x1b[31m\n\u202e": np.zeros(3)})
    assert "\x1b" not in text and "\u202e" not in text


# Both directions ------------------------------------------------------------------------------------------------------


def test_all_networks_go_through_their_maps_and_back(rng):
    nets = {
        "torchvision": [models.resnet18(classes=3), models.mobilenet(classes=3), models.vit(8, 4, 1, 2, 8, 3)],
        "huggingface": [models.gpt(9, 7, 2, 2, 8), models.bert(9, 7, 2, 2, 8), models.t5(9, 2, 2, 8, 12, 4),
                        models.t5(9, 1, 2, 8, 12, 4, gated=True, tied=False), models.llama(9, 2, 2, 8, 12),
                        models.vit(8, 4, 1, 2, 8, 3)],
        "torch": [models.lstm(3, 4, 2, 3, "bi"), models.lenet(size=8), models.unet(), models.transformer(1, 8, 2)],
        "keras": [models.lstm(3, 4, 2, 3, "bi"), models.lenet(size=8), Sequential(Conv2D(4, 8, 3, groups=4, name="c"))],
    }  # fmt: skip
    for name, graphs in nets.items():
        for net in graphs:
            names = puregraph.weights.readyMap(name, net)
            before = content(net)
            file = fileArrays(net, names)
            kept = {path: array.copy() for path, array in before.items()}
            for stored in (*net.params.values(), *net.states.values()):
                if stored.kind != "constant" and stored.dtype.kind == "f":
                    stored.data = np.full(stored.shape, np.nan, stored.dtype)
            assert net.load(file, names=name).complete, (name, net.name)
            assert all(np.array_equal(kept[path], array) for path, array in content(net).items()), (name, net.name)


def test_a_row_may_change_axes(rng):
    net = models.vit(8, 4, 1, 2, 8, 3)
    token = rng.random((1, 1, 8)).astype("float32")
    net.load({"cls": token}, names=NameMap([("cls", "token.W", squeeze(0))]), only="token.*")
    assert np.array_equal(net["token"].W.data, token[0])


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
@pytest.mark.parametrize("names", [None, "torch", "keras", {"first": "fc1", "last.bias": "fc2.b"}], ids=str)
def test_files_that_are_saved_load_bit_for_bit(suffix, names, tmp_path):
    net, other = small(), small()
    net["norm"].count.data = np.array(3)
    path = tmp_path / f"w.{suffix}"
    assert net.save(path, names=names) is None
    hasCounter = names != "keras"
    if suffix == "npz" and not any(reader.format == "npz" for reader in READERS):
        arrays = dict(np.load(path))
    else:
        arrays = path
    assert other.load(arrays, names=NameMap(layout="keras") if names == "keras" else names).complete
    before = content(net)
    for name, array in content(other).items():
        assert np.array_equal(before[name], array) or name == "norm.count" and not hasCounter, name


def test_files_of_weights_take_no_optimizer_and_no_extra(tmp_path):
    net = small()
    path = tmp_path / "w.safetensors"
    with pytest.raises(CheckpointError, match="takes weights alone; save the optimizer and extra in a checkpoint"):
        net.save(path, Adam().setupOn(net))
    with pytest.raises(CheckpointError, match="takes weights alone"):
        net.save(path, extra={"epoch": 3})
    with pytest.raises(CheckpointError, match="names= is for files that end with .safetensors or .npz"):
        net.save(tmp_path / "w.h5", names="torch")
    assert not list(tmp_path.iterdir())


def test_two_arrays_of_one_name_are_refused(tmp_path):
    net = Sequential(Linear(3, 3, name="a"), Linear(3, 3, name="b"))
    with pytest.raises(CheckpointError, match="two arrays would be 'x.weight'"):
        net.save(tmp_path / "w.safetensors", names=NameMap([("x", "a"), ("x", "b")]))
    assert not list(tmp_path.iterdir())


def test_a_file_says_the_line_that_loads_it(tmp_path):
    net = small()
    path = tmp_path / "w.safetensors"
    net.save(path, names="torch")
    with pytest.raises(
        CheckpointError, match=r"it holds 9 arrays and no network; make the network .*: net.load\('.*w.saf"
    ):
        puregraph.load(path)
    text = refused(small(), "other arrays", path)
    assert f"net.load('{path}', names='torch') loads all of it" in text
    assert small().load(path, names="torch").complete
    assert small().load(path.read_bytes(), names="torch").complete


@pytest.mark.peers
def test_a_saved_file_is_read_by_safetensors_and_torch(tmp_path):
    torch = pytest.importorskip("torch")
    reader = pytest.importorskip("safetensors.torch")
    net = small().evalMode()
    net.save(tmp_path / "w.safetensors", names={"0": "fc1", "1": "norm", "3": "fc2"})
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    layers.eval().load_state_dict(reader.load_file(tmp_path / "w.safetensors"))
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    assert np.allclose(net(x), layers(torch.tensor(x)).detach().numpy(), atol=1e-6)
