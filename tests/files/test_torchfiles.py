"""Torch files: tensors come as torch has them, from both forms of file; whatever is not a tensor is refused by name."""

import io
import struct

import numpy as np
import pytest
from torchfiles import call, named, number, numbers, older, pairs, rows, storage, tensor, text, zipped

from puregraph import CheckpointError
from puregraph.serialize.weights import readWeights

VALUES = np.arange(6, dtype=np.float32)


def saved(value, isZip=True, **options):
    """The bytes of torch.save."""
    import torch

    memory = io.BytesIO()
    torch.save(value, memory, _use_new_zipfile_serialization=isZip, **options)
    return memory.getvalue()


def equal(weights, tensors):
    """True if a file has these tensors."""
    assert list(weights) == list(tensors)
    for name, wanted in tensors.items():
        isNarrow = weights[name].dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
        wanted = (wanted.float() if isNarrow else wanted).detach().numpy()
        array = weights[name].read()
        assert array.shape == wanted.shape == weights[name].shape and array.dtype == wanted.dtype, name
        assert np.array_equal(array, wanted) and array.flags.c_contiguous and array.flags.writeable, name
    return True


FORMS = pytest.mark.parametrize("isZip", [True, False], ids=["zip", "older"])


@pytest.mark.peers
@FORMS
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_state_dict_is_read_as_torch_wrote_it(isZip, protocol):
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.LSTM(5, 7))
    net[0].to(memory_format=torch.channels_last)
    weights = readWeights(saved(net.state_dict(), isZip, pickle_protocol=protocol))
    assert weights.format == "torch" and equal(weights, net.state_dict())


@pytest.mark.peers
@FORMS
def test_views_strides_and_shared_storages_are_read_right(isZip):
    import torch

    x = torch.randn(6, 5)
    made = {"x": x, "again": x, "turned": x.T, "part": x[1:5:2, ::2], "row": x[3], "one": x[2, 4]}
    made |= {
        "wide": x[1].expand(4, 3, 5),
        "empty": x[2:2],
        "window": x.unfold(0, 3, 1),
        "parameter": torch.nn.Parameter(x),
    }
    assert equal(readWeights(saved(made, isZip)), made)


@pytest.mark.peers
@FORMS
def test_every_dtype_is_read(isZip):
    import torch

    names = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"]
    names += [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    made = {name: (torch.randn(3, 7) * 9).abs().to(getattr(torch, name)) for name in names}
    weights = readWeights(saved(made, isZip))
    assert [each.dtype for each in weights.values()] == names and equal(weights, made)
    made = {name: made[name][1:, 1::2] for name in names}
    assert equal(readWeights(saved(made, isZip)), made)


@pytest.mark.peers
@FORMS
def test_checkpoints_are_unwrapped_and_keep_their_plain_values(isZip):
    import torch

    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(3)).sum().backward()
    optimizer.step()
    state = net.state_dict()
    lightning = {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "state_dict": state,
        "optimizer_states": [optimizer.state_dict()],
        "hyper_parameters": {"lr": 0.1, "sizes": [3, 2], "name": None},
    }
    weights = readWeights(saved(lightning, isZip))
    assert equal(weights, state)
    assert weights.metadata == {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "hyper_parameters.lr": 0.1,
        "hyper_parameters.sizes": [3, 2],
        "hyper_parameters.name": None,
    }
    for wrapped in (
        {"model": state, "optimizer": optimizer.state_dict()},
        {"model_state_dict": state, "ema": {"a": torch.ones(2)}},
        {"model": {"state_dict": state}},
    ):
        assert equal(readWeights(saved(wrapped, isZip)), state)
    nested = {"model": dict(state), "head": {"w": torch.ones(2)}}  # none of which is training state
    names = {"model.weight": state["weight"], "model.bias": state["bias"], "head.w": nested["head"]["w"]}
    assert equal(readWeights(saved(nested, isZip)), names)
    assert equal(
        readWeights(saved([state["weight"], {"b": state["bias"]}], isZip)), {"0": state["weight"], "1.b": state["bias"]}
    )
    assert equal(readWeights(saved(state["bias"], isZip)), {"tensor": state["bias"]})


@pytest.mark.peers
@FORMS
def test_tensors_of_another_kind_and_whole_modules_are_refused_by_name(isZip):
    import torch

    x = torch.randn(3, 4)
    for made, words in [
        (
            torch.nn.Linear(2, 2),
            "it needs 'torch.nn.modules.linear.Linear', and no code of a file is run; .*state_dict",
        ),
        ({"w": x.to_sparse()}, "a sparse tensor; save tensor.to_dense"),
        ({"w": x.to(torch.complex64)}, "a tensor of complex numbers; save torch.view_as_real"),
        ({"w": torch._neg_view(x)}, "negative or conjugate view of a tensor; save tensor.clone"),
        ({"w": x.to("meta")}, "a tensor on the device meta"),
        ({"w": np.float64(3)}, "it needs 'numpy._core.multiarray.scalar'"),
        ({(1, 2): x}, r"whose key is neither a text nor a whole number: \(1, 2\)"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            readWeights(saved(made, isZip))


@pytest.mark.peers
def test_a_program_of_torchscript_is_refused_with_what_to_save(tmp_path):
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"it is a TorchScript program; .*torch.jit.load\(path\).state_dict"):
        readWeights(tmp_path / "a.pt")


@pytest.mark.peers
def test_a_file_without_checksums_is_read():
    import torch

    torch.serialization.set_crc32_options(False)
    try:
        data = saved({"w": torch.arange(6.0)})
    finally:
        torch.serialization.set_crc32_options(True)
    assert readWeights(data)["w"].read().tolist() == list(range(6))


# Without torch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [zipped, older])
def test_files_are_read_without_torch(form):
    part = pairs({"w": tensor(), "turned": tensor((3, 2), (1, 3)), "last": tensor((), (), 5), "epoch": number(7)})
    weights = readWeights(form(part))
    assert weights["w"].read().tolist() == [[0, 1, 2], [3, 4, 5]] and weights.metadata == {"epoch": 7}
    assert weights["turned"].read().tolist() == [[0, 3], [1, 4], [2, 5]] and weights["last"].read() == 5


def test_files_of_machines_with_the_other_byte_order_are_read():
    part = pairs({"w": tensor((2, 2), (3, 1))})
    data = struct.pack(">6f", *range(6))
    for made in (zipped(part, {"0": data}, byteorder=b"big"), older(part, isLittle=False)):
        array = readWeights(made)["w"].read()
        assert array.tolist() == [[0, 1], [3, 4]] and array.dtype.isnative


def test_one_bit_of_a_storage_is_noticed():
    data = bytearray(zipped(pairs({"all": tensor(), "part": tensor((2,), (1,))})))
    data[data.index(VALUES.tobytes()) + 3] ^= 1
    weights = readWeights(bytes(data))
    for name in ("all", "part", "all"):
        with pytest.raises(
            CheckpointError, match=f"cannot read '{name}' of the given bytes: its storage is damaged: .*crc32"
        ):
            weights[name].read()


def refusedTensor(**changes):
    return pairs({"w": tensor(**changes)})


DEEP = b"]" * 300 + b"a" * 299
LIES = {
    "a name that runs code": (call("os", "system", text("true")), "it needs 'os.system', and no code of a file is run"),
    "a builtin": (call("builtins", "eval", text("1")), "it needs 'builtins.eval'"),
    "a dotted name": (b"\x8c\x05torch\x8c\x0aload.__get\x93", "it needs 'torch.load.__get'"),
    "torch's own code": (call("torch", "load", text("x")), "it needs 'torch.load'"),
    "a class that is never called": (pairs({"w": named("__main__", "Net")}), "it needs '__main__.Net'"),
    "a quantised tensor": (call("torch._utils", "_rebuild_qtensor"), "a quantised tensor; save tensor.dequantize"),
    "quantised storage": (refusedTensor(of=storage(kind="QInt8Storage")), "a quantised tensor"),
    "another module's sparse tensor": (call("evil", "_rebuild_sparse_tensor"), "it needs 'evil._rebuild_sparse_tensor'"),
    "text of protocol 0": (b"S'a'\n", "an opcode that no state dict needs, 0x53"),
    "a new object": (named("torch", "Size") + b")\x81", "an opcode that no state dict needs, 0x81"),
    "an instance": (b"(ios\nsystem\n", "an opcode that no state dict needs, 0x69"),
    "an extension": (b"\x82\x01", "an opcode that no state dict needs, 0x82"),
    "an empty stack": (b"R", "its pickle is damaged"),
    "two values": (b"NN", "its pickle is damaged"),
    "a mark that is missing": (b"t", "its pickle is damaged"),
    "a value that was never kept": (b"h\7", "its pickle is damaged"),
    "a text that is cut off": (b"X\xff\xff\xff\xff", "its pickle is damaged"),
    "a text that is no UTF-8": (b"X\1\0\0\0\xff", "its pickle is damaged"),
    "a call of a tuple": (b"))R", "its pickle is damaged"),
    "a call of tuples in tuples": (b")" + b"\x85" * 200_000 + b")R", "its pickle is damaged"),
    "lists in lists": (pairs({"w": DEEP}), "nested too deep"),
    "a dict in itself": (b"}q\0X\1\0\0\0ah\0s" + text("w") + tensor() + b"s", "nested too deep"),
    "a list in itself": (pairs({"w": tensor(), "l": b"]q\0h\0a"}), "nested too deep"),
    "a key twice": (b"}(" + text("w") + tensor() + text("w") + tensor() + b"u", "key 'w' stands twice"),
    "two names that become one": (pairs({"a.b": tensor(), "a": pairs({"b": tensor()})}), "have the name 'a.b'"),
    "an item of a list": (b"]K\1K\2s", "its pickle is damaged"),
    "an odd number of items": (b"}(K\1u", "its pickle is damaged"),
    "bytes behind the pickle": (b"}.N", "there are bytes behind its pickle"),
    "an offset beyond the storage": (refusedTensor(offset=1), "tensor 'w': .* needs 7 elements, its storage has 6"),
    "a negative offset": (refusedTensor(offset=-1), "no whole numbers of at least 0"),
    "negative strides": (refusedTensor(strides=(-3, 1), offset=3), "no whole numbers of at least 0"),
    "strides beyond the storage": (refusedTensor(strides=(4, 1)), "needs 7 elements, its storage has 6"),
    "strides that overflow": (refusedTensor(strides=((1 << 64) + 3, 1)), "its storage has 6"),
    "too few strides": (refusedTensor(strides=(1,)), "strides or its offset"),
    "a negative size": (refusedTensor(shape=(-2, -3)), "a shape of whole numbers"),
    "a size that is a bool": (refusedTensor(more=b"").replace(numbers((2, 3)), rows(b"\x88", number(3))), "whole numbers"),
    "sizes that overflow": (refusedTensor(shape=(1 << 62, 1 << 62), strides=(0, 0)), "its shape is too large"),
    "an empty tensor of impossible sizes": (refusedTensor(shape=(0, 1 << 62)), "its shape is too large"),
    "an empty tensor beyond the storage": (refusedTensor(shape=(0, 3), offset=99), "needs 99 elements"),
    "an element a million times": (refusedTensor(shape=(1 << 14, 1 << 14), strides=(0, 0)), "its strides make 1,073,741,824"),
    "many tensors of repeated elements": (
        pairs({f"w{i}": tensor((1 << 12, 1 << 10), (0, 0)) for i in range(9)}),
        "asks for 50,331,648 bytes of arrays",
    ),
    "a storage that is missing": (refusedTensor(of=storage("1")), "storage '1' is missing"),
    "a storage of another size": (refusedTensor(of=storage(count=7)), "not of 7 elements"),
    "a storage of another dtype": (refusedTensor(of=storage(kind="DoubleStorage")), "not of 6 elements"),
    "one storage of two sizes": (pairs({"a": tensor(), "b": tensor(of=storage(count=5))}), "two sizes or dtypes"),
    "a path for a key": (refusedTensor(of=storage("../../etc/passwd")), "storage '../../etc/passwd' is missing"),
    "a view of a storage": (refusedTensor(of=storage(more=rows(text("1"), number(0), number(6)))), "a view of a storage"),
    "a tensor without a storage": (refusedTensor(of=text("0")), "its pickle is damaged"),
    "attributes of a number": (b"K\1}b", "its pickle is damaged"),
    "a parameter of a number": (call("torch._utils", "_rebuild_parameter", number(1), b"\x88", b"}"), "is damaged"),
    "a subclass that calls another function": (
        call("torch._tensor", "_rebuild_from_type_v2", text("x"), b"N", rows(), b"N"),
        "its pickle is damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_pickle_that_lies_is_refused_with_what_is_wrong(name):
    body, words = LIES[name]
    with pytest.raises(CheckpointError, match=words) as caught:
        readWeights(zipped(body))
    assert str(caught.value).startswith("cannot load 'the given bytes': ")


def test_damage_of_the_older_form_is_refused():
    body = pairs({"w": tensor()})
    data = older(body)
    values = VALUES.tobytes()
    for made, words in [
        (data[:-1], "storage '0' is cut off"),
        (data + b"x", "the file has"),
        (older(body, {"0": (5, values)}), "storage '0' is cut off, or of another size"),
        (older(body, {"0": (6, values), "1": (0, b"")}), "its list of storages is damaged"),
        (older(body, {}), "or some are missing"),
        (data.replace(b"M\xe9\x03", b"M\xea\x03"), "its first pickles are others"),
        (data[:20], "its pickle is damaged or too long"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            readWeights(made)


def laughs():
    """A tensor in a dict, that twice in another, and so on: 2^40 names."""
    body = b"}(" + text("w") + tensor() + b"uq\0"
    for i in range(40):
        body += b"}(" + text("a") + b"h" + bytes([i]) + text("b") + b"h" + bytes([i]) + b"uq" + bytes([i + 1])
    return b"(" + body + b"t"


COPIED = b"](" + b"K\1K\2\x86" * 1000 + b"eq\0" + named("collections", "OrderedDict") + b"q\1" + b"h\1h\0\x85R" * 60_000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"(" + b"N" * 1_500_000 + b"t", "more opcodes than a file of its size"),
        (b"]" * 1_500_000, "more opcodes than"),
        (COPIED.replace(b"K\1", b"J\0\0\0\0", 999), "stands twice"),
        (b"K\1" * 3_000_000, "has 6,000,003 bytes, and may have"),
        (laughs(), "more opcodes than|hold each other too often|characters of paths"),
    ],
    ids=["values", "lists", "copies", "bytes", "names"],
)
def test_a_small_pickle_that_would_cost_much_is_refused(body, words):
    with pytest.raises(CheckpointError, match=words):
        readWeights(zipped(body))


def test_a_compressed_storage_and_a_foreign_archive_are_refused(tmp_path):
    import zipfile

    body = pairs({"w": tensor()})
    with pytest.raises(CheckpointError, match="storage '0' is missing, compressed"):
        readWeights(zipped(body, method=zipfile.ZIP_DEFLATED))
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(CheckpointError, match="not of torch.save: it has no data.pkl"):
        readWeights(path)
