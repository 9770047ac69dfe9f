"""Forged ONNX models, by name: operators whose settings ask for much, tensors, types, names and functions that lie."""

import hostileonnx as h
import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TypeProto, helper, numpy_helper

SIZES = {"2^31": 1 << 31, "2^40": 1 << 40, "2^62": 1 << 62, "-2^62": -(1 << 62)}
ONE = np.ones(1, np.float32)
IMAGE = np.ones((1, 1, 2, 2), np.float32)
ROW = np.ones((1, 1, 4), np.float32)


def whole(*values):
    return np.array(values, np.int64)


def real(*values):
    return np.array(values, np.float32)


def fromInput(kind, shape, **given):
    """A model of one operator whose first input comes with the data."""
    attributes = {name: x for name, x in given.items() if not isinstance(x, np.ndarray)}
    constants = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
    nodes = [(kind, ["x", *constants], ["y"], attributes)]
    return h.model(nodes, [h.value("x", shape)], initializers=h.arrays(**constants))


def oldModel(kind, opset, shape, **given):
    """The same in an older opset."""
    made = fromInput(kind, shape, **given)
    made.opset_import[0].version = opset
    return made


def recurrent(kind, gates, n):
    weights = {"w": np.ones((1, gates, 2), np.float32), "r": np.ones((1, gates, 1), np.float32)}
    return fromInput(kind, (3, 1, 2), hidden_size=n, **weights)


SIZED = {  # what a size asks for
    "ConstantOfShape": lambda n: h.known("ConstantOfShape", n=whole(n)),
    "ConstantOfShape, twice": lambda n: h.known("ConstantOfShape", n=whole(n, n)),
    "Expand": lambda n: h.known("Expand", x=ONE, n=whole(n)),
    "Expand of an input": lambda n: fromInput("Expand", (1,), n=whole(n)),
    "Tile": lambda n: h.known("Tile", x=ONE, n=whole(n)),
    "Tile of an input": lambda n: fromInput("Tile", (2,), n=whole(n)),
    "Reshape": lambda n: h.known("Reshape", x=ONE, n=whole(n)),
    "Reshape of nothing": lambda n: fromInput("Reshape", (0,), n=whole(0, n), allowzero=1),
    "Resize by sizes": lambda n: h.model(
        [("Resize", ["x", "", "", "n"], ["y"])], [], initializers=h.arrays(x=IMAGE, n=whole(1, 1, n, n))
    ),
    "Resize of an input": lambda n: h.model(
        [("Resize", ["x", "", "", "n"], ["y"], {"mode": "cubic"})],
        [h.value("x", (1, 1, 2, 2))],
        initializers=h.arrays(n=whole(1, 1, n, 2)),
    ),
    "Resize by scales": lambda n: h.model(
        [("Resize", ["x", "", "n"], ["y"], {"mode": "linear"})],
        [h.value("x", (1, 1, 2, 2))],
        initializers=h.arrays(n=real(1, 1, n, 1)),
    ),
    "Upsample": lambda n: oldModel("Upsample", 9, (1, 1, 2, 2), n=real(1, 1, n, n)),
    "Range": lambda n: h.known("Range", a=np.int64(0), b=np.int64(n), c=np.int64(1 if n > 0 else -1)),
    "Range of small steps": lambda n: h.known("Range", a=real(0)[0], b=real(1)[0], c=real(1 / n)[0]),
    "OneHot": lambda n: h.known("OneHot", i=whole(0), d=np.int64(n), v=real(0, 1)),
    "OneHot of an input": lambda n: h.model(
        [("OneHot", ["x", "d", "v"], ["y"])],
        [h.value("x", (2,), TensorProto.INT64)],
        initializers=h.arrays(d=np.int64(n), v=real(0, 1)),
    ),
    "Pad": lambda n: h.known("Pad", x=ONE, n=whole(n, n)),
    "Pad of an input, mirrored": lambda n: fromInput("Pad", (2,), n=whole(n, 0), mode="reflect"),
    "Pad, around": lambda n: fromInput("Pad", (2,), n=whole(0, n), mode="wrap"),
    "Pad of opset 2": lambda n: oldModel("Pad", 2, (2,), pads=[n, n]),
    "RandomUniform": lambda n: h.model([("RandomUniform", [], ["y"], {"shape": [n]})], []),
    "Multinomial": lambda n: fromInput("Multinomial", (1, 2), sample_size=n),
    "HannWindow": lambda n: h.known("HannWindow", n=np.int64(n)),
    "BlackmanWindow": lambda n: h.known("BlackmanWindow", n=np.int64(n)),
    "DFT": lambda n: fromInput("DFT", (1, 4, 1), n=np.int64(n)),
    "STFT": lambda n: fromInput("STFT", (1, 64, 1), s=np.int64(n), w=real(*[1] * 8)),
    "MelWeightMatrix": lambda n: h.known(
        "MelWeightMatrix", a=np.int64(n), b=np.int64(64), c=np.int64(8000), d=real(1)[0], e=real(4000)[0]
    ),
    "Col2Im": lambda n: h.known("Col2Im", x=np.ones((1, 1, 1), np.float32), s=whole(n, n), b=whole(1, 1)),
    "Col2Im by strides": lambda n: h.known("Col2Im", x=ROW, s=whole(4, 4), b=whole(1, 1), strides=[n, n]),
    "AffineGrid": lambda n: h.known("AffineGrid", t=np.ones((1, 2, 3), np.float32), s=whole(1, 1, n, n)),
    "CenterCropPad": lambda n: fromInput("CenterCropPad", (2,), s=whole(n)),
    "MaxUnpool": lambda n: h.known("MaxUnpool", x=IMAGE, i=np.zeros((1, 1, 2, 2), np.int64), s=whole(1, 1, n, n), kernel_shape=[2, 2]),
    "TopK": lambda n: h.known("TopK", x=ONE, k=whole(n)),
    "Split": lambda n: h.model([("Split", ["x", "s"], ["y", "z"])], initializers=h.arrays(s=whole(n, 2 - n))),
    "SplitToSequence": lambda n: h.model(
        [("SplitToSequence", ["x", "s"], ["t"]), ("SequenceAt", ["t", "z"], ["y"])],
        [h.value("x", (1 << 40,))],
        initializers=h.arrays(s=np.int64(n), z=np.int64(0)),
    ),
    "Trilu": lambda n: fromInput("Trilu", (2, 2), k=np.int64(n)),
    "EyeLike": lambda n: h.known("EyeLike", x=np.ones((2, 2), np.float32), k=n),
    "DepthToSpace": lambda n: fromInput("DepthToSpace", (1, 4, 2, 2), blocksize=n),
    "SpaceToDepth": lambda n: fromInput("SpaceToDepth", (1, 4, 2, 2), blocksize=n),
    "Conv by pads": lambda n: fromInput("Conv", (1, 1, 4), w=ROW, pads=[n, n]),
    "Conv by strides": lambda n: fromInput("Conv", (1, 1, 4), w=ROW, strides=[n]),
    "Conv by groups": lambda n: fromInput("Conv", (1, 1, 4), w=ROW, group=n),
    "ConvTranspose by its shape": lambda n: fromInput("ConvTranspose", (1, 1, 4), w=ROW, output_shape=[n]),
    "ConvTranspose by strides": lambda n: h.known("ConvTranspose", x=ROW, w=ROW, strides=[n]),
    "ConvInteger": lambda n: h.known("ConvInteger", x=ROW.astype(np.uint8), w=ROW.astype(np.uint8), pads=[n, n]),
    "AveragePool": lambda n: h.known("AveragePool", x=ROW, kernel_shape=[2], pads=[n, n], count_include_pad=1),
    "MaxPool, dilated": lambda n: fromInput("MaxPool", (1, 1, 4), kernel_shape=[2], dilations=[n]),
    "LpPool": lambda n: fromInput("LpPool", (1, 1, 4), kernel_shape=[2], p=n),
    "LRN": lambda n: h.known("LRN", x=IMAGE, size=n),
    "MaxRoiPool": lambda n: h.known("MaxRoiPool", x=IMAGE, r=real(0, 0, 0, 1, 1)[None], pooled_shape=[n, n]),
    "RoiAlign": lambda n: h.known("RoiAlign", x=IMAGE, r=real(0, 0, 1, 1)[None], i=whole(0), output_height=n, output_width=n),
    "LSTM": lambda n: recurrent("LSTM", 4, n),
    "GRU": lambda n: recurrent("GRU", 3, n),
    "RNN": lambda n: recurrent("RNN", 1, n),
    "GatherND": lambda n: fromInput("GatherND", (2, 2), i=np.zeros((1, 1), np.int64), batch_dims=n),
    "Gather": lambda n: fromInput("Gather", (2,), i=whole(n)),
    "ScatterND": lambda n: h.known("ScatterND", x=ONE, i=whole(n)[None], u=ONE),
    "ScatterElements": lambda n: h.known("ScatterElements", x=ONE, i=whole(n), u=ONE),
    "Slice": lambda n: fromInput("Slice", (4,), a=whole(0), b=whole(n), c=whole(0), d=whole(n)),
    "Unsqueeze": lambda n: fromInput("Unsqueeze", (2,), a=whole(n)),
    "Squeeze": lambda n: fromInput("Squeeze", (1, 2), a=whole(n)),
    "Flatten": lambda n: fromInput("Flatten", (2, 2), axis=n),
    "Concat": lambda n: fromInput("Concat", (2,), a=ONE, axis=n),
    "ReduceSum": lambda n: fromInput("ReduceSum", (2, 2), a=whole(n)),
    "ArgMax": lambda n: fromInput("ArgMax", (2, 2), axis=n),
    "CumSum": lambda n: fromInput("CumSum", (2,), a=np.int64(n)),
    "Softmax": lambda n: fromInput("Softmax", (2, 2), axis=n),
    "Transpose": lambda n: fromInput("Transpose", (2, 2), perm=[0, n]),
    "Shape": lambda n: fromInput("Shape", (2, 2), start=n, end=n),
    "ReverseSequence": lambda n: h.known("ReverseSequence", x=np.ones((2, 2), np.float32), n=whole(n, n)),
    "GroupNormalization": lambda n: fromInput("GroupNormalization", (1, 4, 2), s=real(*[1] * 4), b=real(*[1] * 4), num_groups=n),
    "GridSample": lambda n: h.known("GridSample", x=IMAGE, g=np.full((1, 1, 1, 2), float(n), np.float32), mode="cubic"),
    "NonMaxSuppression": lambda n: h.known(
        "NonMaxSuppression", b=np.ones((1, 2, 4), np.float32), s=np.ones((1, 1, 2), np.float32), m=whole(n)
    ),
    "Cast": lambda n: fromInput("Cast", (2,), to=n),
    "Bernoulli": lambda n: fromInput("Bernoulli", (2,), dtype=n),
    "Dropout": lambda n: fromInput("Dropout", (2,), r=np.float32(n), t=np.array(True), seed=n),
    "Attention": lambda n: h.model(
        [("Attention", ["x", "x", "x"], ["y"], {"q_num_heads": n, "kv_num_heads": n})], [h.value("x", (1, 2, 4))], opset=23
    ),
    "QuantizeLinear": lambda n: fromInput("QuantizeLinear", (2, 2), s=ONE, axis=n, block_size=n),
    "Input": lambda n: fromInput("Relu", (n, n)),
    "Loop": lambda n: h.loopOfSequence(n),
}  # fmt: skip


# Tensors --------------------------------------------------------------------------------------------------------------


def withTensor(**fields):
    """A model with a tensor of these fields beside its input."""
    made = h.model([("Add", ["x", "t"], ["y"])])
    tensor = made.graph.initializer.add(name="t", data_type=TensorProto.FLOAT)
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return made


def external(location, offset="0", length="8", dims=(2,)):
    """A model whose tensor is said to be in a file."""
    made = withTensor(dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        made.graph.initializer[0].external_data.add(key=key, value=value)
    return made


def sparse(dims, values, indices):
    """A model with a sparse tensor."""
    made = h.model([("Add", ["x", "t"], ["y"])])
    made.graph.sparse_initializer.add(
        values=numpy_helper.from_array(values, "t"), indices=numpy_helper.from_array(indices, "i"), dims=dims
    )
    return made


TENSORS = {
    "dims that overflow": lambda: withTensor(dims=[1 << 32, 1 << 32], raw_data=b"1234"),
    "dims of 2^62": lambda: withTensor(dims=[1 << 62], raw_data=b"1234"),
    "dims of nothing, and of 2^62": lambda: withTensor(dims=[0, 1 << 62]),
    "negative dims": lambda: withTensor(dims=[-1, -4], raw_data=b"1234"),
    "a hundred thousand dims": lambda: withTensor(dims=[1] * 100_000, raw_data=b"1234"),
    "data beside raw data": lambda: withTensor(dims=[1], raw_data=b"1234", float_data=[1.0] * 1000),
    "no data": lambda: withTensor(dims=[1000]),
    "data of another type": lambda: withTensor(dims=[2], int64_data=[1, 2]),
    "texts": lambda: withTensor(dims=[100_000], data_type=TensorProto.STRING, string_data=[b"a" * 10] * 100_000),
    "a type that is none": lambda: withTensor(dims=[1], data_type=1 << 30, raw_data=b"1234"),
    "a type below zero": lambda: withTensor(dims=[1], data_type=-5, raw_data=b"1234"),
    "a segment": lambda: segmented(),
    "4 bits": lambda: withTensor(dims=[1 << 40], data_type=TensorProto.INT4, raw_data=b"1"),
    "sparse, large": lambda: sparse([1 << 31, 1 << 31], ONE, whole(0)),
    "sparse, negative": lambda: sparse([-2], ONE, whole(0)),
    "sparse, beyond its end": lambda: sparse([2], ONE, whole(1 << 62)),
    "sparse, before its beginning": lambda: sparse([2], ONE, whole(-1)),
    "sparse, more indices": lambda: sparse([2], ONE, np.zeros((1000, 50), np.int64)),
    "sparse, twice at one position": lambda: sparse([2], real(1, 2), whole(0, 0)),
    "external, absolute": lambda: external("/etc/passwd"),
    "external, above": lambda: external("../../../../../../etc/passwd"),
    "external, above in the middle": lambda: external("a/../../secret"),
    "external, a device": lambda: external("/dev/zero", length=str(1 << 40), dims=(1 << 38,)),
    "external, itself": lambda: external("net.onnx"),
    "external, an address": lambda: external("http://127.0.0.1:9/x"),
    "external, a file as an address": lambda: external("file:///etc/passwd"),
    "external, NUL": lambda: external("a\0b"),
    "external, empty": lambda: external(""),
    "external, the folder": lambda: external("."),
    "external, long": lambda: external("a" * 1_000_000),
    "external, a part of the name too long": lambda: external("a" * 1000),
    "external, a shell's": lambda: external("|touch started"),
    "external, escapes": lambda: external("\x1b]0;owned\x07"),
    "external, a negative offset": lambda: external("net.onnx", offset="-8"),
    "external, a large offset": lambda: external("net.onnx", offset="9" * 5000),
    "external, no number": lambda: external("net.onnx", length="eight"),
    "external, digits of others": lambda: external("net.onnx", length="\u0668"),
    "external, from Windows": lambda: external("C:\\Windows\\win.ini"),
}


def segmented():
    made = withTensor(dims=[2], raw_data=b"12345678")
    made.graph.initializer[0].segment.begin = 1 << 60
    return made


# Types, names, functions ----------------------------------------------------------------------------------------------


def typed(change):
    """A model whose input's type is changed."""
    made = h.model([("Relu", ["x"], ["y"])])
    change(made.graph.input[0].type)
    return made


def nestedType(levels):
    """A sequence of sequences of ..."""
    inner = TypeProto()
    inner.tensor_type.elem_type = 1
    for _ in range(levels):
        outer = TypeProto()
        outer.sequence_type.elem_type.CopyFrom(inner)
        inner = outer
    return typed(lambda kind: kind.CopyFrom(inner))


def mapType(kind):
    kind.map_type.key_type = TensorProto.STRING
    kind.map_type.value_type.tensor_type.elem_type = 1


def changedModel(change):
    made = h.model([("Relu", ["x"], ["y"])])
    change(made)
    return made


def attributeOf(kind, **fields):
    """A node with an attribute of any fields."""

    def change(made):
        made.graph.node[0].op_type = kind
        attribute = made.graph.node[0].attribute.add(name=fields.pop("name"), type=fields.pop("type"))
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(attribute, name).extend(value)
            elif hasattr(value, "CopyFrom"):
                getattr(attribute, name).CopyFrom(value)
            else:
                setattr(attribute, name, value)

    return changedModel(change)


def cycle():
    return h.model([("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["b"], ["y"])])


def functionsInCircle():
    """Three functions, each of which calls the next one."""
    functions = [h.calls("f0", "f1"), h.calls("f1", "f2"), h.calls("f2", "f0")]
    return h._call(h.model([], functions=functions), "f0")


def longFunction():
    names = ["a", *(f"v{i}" for i in range(8000)), "b"]
    nodes = [helper.make_node("Relu", [p], [q]) for p, q in zip(names, names[1:])]
    return h._call(
        h.model([], functions=[helper.make_function("own", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 21)])]),
        "f",
    )


def bodyOfFunction():
    """A function whose body has an If, in whose branches it is called again."""
    leaf = h.graph([("Relu", ["a"], ["o"])], [], [h.value("o", None)])
    again = GraphProto(name="again")
    again.node.add(op_type="f", domain="own", input=["a"], output=["o"])
    again.output.add(name="o")
    node = helper.make_node("If", ["c"], ["b"], then_branch=again, else_branch=leaf)
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(True)))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return h._call(
        h.model([], functions=[helper.make_function("own", "f", ["a"], ["b"], [constant, node], opsets)]), "f"
    )


def functionOfOnnx():
    """A function with the name of an operator, which calls that operator."""
    node = helper.make_node("Relu", ["a"], ["b"])
    return h.model(
        [("Relu", ["x"], ["y"])],
        functions=[helper.make_function("", "Relu", ["a"], ["b"], [node], [helper.make_opsetid("", 21)])],
    )


def equation(text, count=1):
    return h.model([("Einsum", ["x"] * count, ["y"], {"equation": text})])


FORMS = {
    "types nested 40 deep": lambda: nestedType(40),
    "types nested 90 deep": lambda: nestedType(90),
    "an input that is a map": lambda: typed(mapType),
    "an input that may be absent": lambda: typed(lambda kind: kind.optional_type.elem_type.CopyFrom(TypeProto())),
    "an input without a type": lambda: typed(lambda kind: kind.Clear()),
    "an input of an unknown type": lambda: typed(lambda kind: setattr(kind.tensor_type, "elem_type", 1 << 30)),
    "an input of no axis": lambda: typed(lambda kind: kind.tensor_type.shape.Clear()),
    "an empty symbol": lambda: typed(lambda kind: setattr(kind.tensor_type.shape.dim[0], "dim_param", "")),
    "a symbol that is code": lambda: typed(
        lambda kind: setattr(kind.tensor_type.shape.dim[0], "dim_param", "__import__('os').system('touch started')")
    ),
    "a symbol that is a power": lambda: typed(
        lambda kind: setattr(kind.tensor_type.shape.dim[0], "dim_param", "9**9**9**9")
    ),
    "opset 10^9": lambda: changedModel(lambda made: setattr(made.opset_import[0], "version", 10**9)),
    "opset -1": lambda: changedModel(lambda made: setattr(made.opset_import[0], "version", -1)),
    "no opset": lambda: changedModel(lambda made: made.ClearField("opset_import")),
    "many opsets": lambda: changedModel(
        lambda made: made.opset_import.extend(helper.make_opsetid(f"d{i}", i) for i in range(50_000))
    ),
    "two opsets of one domain": lambda: changedModel(lambda made: made.opset_import.add(domain="", version=7)),
    "an old form": lambda: changedModel(lambda made: setattr(made, "ir_version", -(1 << 60))),
    "no graph": lambda: ModelProto(ir_version=10),
    "no output": lambda: changedModel(lambda made: made.graph.ClearField("output")),
    "no node": lambda: changedModel(lambda made: made.graph.ClearField("node")),
    "much metadata": lambda: changedModel(
        lambda made: [made.metadata_props.add(key=f"k{i}", value="v" * 100) for i in range(50_000)]
    ),
    "a long text about it": lambda: changedModel(lambda made: setattr(made, "doc_string", "a" * 10_000_000)),
    "a training of its own": lambda: changedModel(lambda made: made.training_info.add().algorithm.CopyFrom(made.graph)),
    "much that is known of values": lambda: changedModel(
        lambda made: made.graph.value_info.extend(h.value(f"v{i}") for i in range(50_000))
    ),
    "two inputs of one name": lambda: changedModel(lambda made: made.graph.input.extend([h.value("x"), h.value("x")])),
    "two tensors of one name": lambda: changedModel(
        lambda made: made.graph.initializer.extend(h.arrays(t=ONE) + h.arrays(t=ONE))
    ),
    "an operator without a name": lambda: changedModel(lambda made: setattr(made.graph.node[0], "op_type", "")),
    "an operator with a long name": lambda: changedModel(
        lambda made: setattr(made.graph.node[0], "op_type", "R" * 1_000_000)
    ),
    "a domain with a long name": lambda: changedModel(
        lambda made: setattr(made.graph.node[0], "domain", "d" * 1_000_000)
    ),
    "a name with NUL": lambda: changedModel(lambda made: setattr(made.graph.node[0], "name", "a\0b")),
    "a name of marks that combine": lambda: changedModel(
        lambda made: setattr(made.graph.node[0], "name", "\u0301" * 100_000)
    ),
    "a name that is read backwards": lambda: changedModel(lambda made: setattr(made.graph.node[0], "name", "\u202eab")),
    "a name with dots": lambda: changedModel(lambda made: setattr(made.graph.node[0], "name", "." * 10_000)),
    "a node with many outputs": lambda: changedModel(
        lambda made: made.graph.node[0].output.extend(f"o{i}" for i in range(50_000))
    ),
    "a node with many attributes": lambda: changedModel(
        lambda made: made.graph.node[0].attribute.extend(helper.make_attribute(f"a{i}", i) for i in range(50_000))
    ),
    "two attributes of one name": lambda: changedModel(
        lambda made: made.graph.node[0].attribute.extend([helper.make_attribute("alpha", 1.0)] * 2)
    ),
    "a value that two nodes give": lambda: changedModel(lambda made: made.graph.node.add(op_type="Tanh", input=["x"], output=["y"])),
    "a node that reads itself": lambda: h.model([("Add", ["x", "y"], ["y"])]),
    "nodes in a circle": cycle,
    "functions in a circle": functionsInCircle,
    "a function of 8,000 nodes": longFunction,
    "a function in a branch of itself": bodyOfFunction,
    "a function called as an operator": functionOfOnnx,
    "an attribute of many floats": lambda: attributeOf(
        "Constant", name="value_floats", type=AttributeProto.FLOATS, floats=[1.0] * 1_000_000
    ),
    "an attribute of many integers": lambda: attributeOf(
        "Transpose", name="perm", type=AttributeProto.INTS, ints=[0] * 1_000_000
    ),
    "an attribute of many texts": lambda: attributeOf(
        "Constant", name="value_strings", type=AttributeProto.STRINGS, strings=[b"a" * 10] * 100_000
    ),
    "an attribute of a long text": lambda: attributeOf("Cast", name="to", type=AttributeProto.STRING, s=b"a" * 10_000_000),
    "an attribute that says another type": lambda: attributeOf("LeakyRelu", name="alpha", type=AttributeProto.INTS, f=1.0),
    "an attribute of an unknown type": lambda: attributeOf("LeakyRelu", name="alpha", type=AttributeProto.UNDEFINED),
    "an attribute that refers to nothing": lambda: attributeOf(
        "LeakyRelu", name="alpha", type=AttributeProto.FLOAT, ref_attr_name="other"
    ),
    "an attribute of many graphs": lambda: attributeOf(
        "If", name="then_branch", type=AttributeProto.GRAPHS, graphs=[GraphProto()] * 10_000
    ),
    "a sparse attribute": lambda: attributeOf(
        "Constant", name="sparse_value", type=AttributeProto.SPARSE_TENSOR,
        sparse_tensor=sparse([1 << 40], ONE, whole(0)).graph.sparse_initializer[0],
    ),
    "Einsum without a term": lambda: equation(""),
    "Einsum of a letter that repeats": lambda: equation("i" * 100_000),
    "Einsum of dots": lambda: equation("..." * 10_000 + "->"),
    "Einsum of marks": lambda: equation("i,\x1b[31m->\u00b2", 2),
    "Einsum of ever more axes": lambda: equation(",".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP") + "->" + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP", 42),
    "StringNormalizer": lambda: h.known("StringNormalizer", x=np.array(["a" * 1000] * 1000), case_change_action="UPPER"),
    "RegexFullMatch": lambda: h.known("RegexFullMatch", x=np.array(["a" * 40 + "b"]), pattern="(a+)+$"),
    "TfIdfVectorizer": lambda: h.known(
        "TfIdfVectorizer", x=whole(1, 2), max_gram_length=10**9, min_gram_length=1, max_skip_count=10**9, mode="TF",
        ngram_counts=[0], ngram_indexes=[10**9], pool_int64s=[1],
    ),
    "branches that read all before them": lambda: wideBranches(),
}  # fmt: skip


def wideBranches():
    """Branches one after the other, each of which reads all values before it."""
    nodes = []
    for i in range(100):
        names = ["x", *(f"v{k}" for k in range(i))]
        then = h.graph([("Sum", names, ["o"])], [], [h.value("o", None)])
        other = h.graph([("Relu", ["x"], ["o"])], [], [h.value("o", None)])
        nodes.append(("If", ["c"], [f"v{i}"], {"then_branch": then, "else_branch": other}))
    return h.model([*nodes, ("Relu", ["v99"], ["y"])], ["x", h.value("c", (), TensorProto.BOOL)])


CASES = {
    **{
        f"{name} of {size}": lambda make=make, n=n: make(n) for name, make in SIZED.items() for size, n in SIZES.items()
    },
    **{f"tensor: {name}": make for name, make in TENSORS.items()},
    **FORMS,
}
