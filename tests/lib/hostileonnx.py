"""Small ONNX models that would cost much."""

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FAR = 10**9
MOST = (1 << 62) - 1


def value(name, shape=(2,), kind=TensorProto.FLOAT):
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, kind, None if shape is None else list(shape))


def arrays(**given):
    """Initializers by name."""
    return [numpy_helper.from_array(np.asarray(x), name) for name, x in given.items()]


def graph(nodes, inputs, outputs, initializers=(), name="g"):
    """A graph of nodes written as (operator, inputs, outputs, attributes)."""
    protos = []
    for i, (kind, ins, outs, *rest) in enumerate(nodes):
        protos.append(helper.make_node(kind, ins, outs, name=f"n{i}", **(rest[0] if rest else {})))
    inputs, outputs = ([v if not isinstance(v, str) else value(v) for v in values] for values in (inputs, outputs))
    return helper.make_graph(protos, name, inputs, outputs, list(initializers))


def model(nodes, inputs=("x",), outputs=("y",), initializers=(), functions=(), opset=21):
    """A model of these nodes."""
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = graph(nodes, inputs, [v if not isinstance(v, str) else value(v, None) for v in outputs], initializers)
    return helper.make_model(made, opset_imports=domains, functions=list(functions))


def known(kind, **given):
    """A model of one operator with these initializers as inputs, and attributes."""
    attributes = {name: x for name, x in given.items() if not isinstance(x, np.ndarray)}
    inputs = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
    return model([(kind, list(inputs), ["y"], attributes)], [], initializers=arrays(**inputs))


# Graphs in graphs -----------------------------------------------------------------------------------------------------


def nestedIfs(levels, both=False, shape=(2,), inner="Relu"):
    """An If in an If, in the first branch or in both."""

    def body(k):
        leaf = graph([(inner, ["x"], ["o"])], [], ["o"])
        if k == 0:
            return leaf
        deep = body(k - 1)
        branches = {"then_branch": deep, "else_branch": deep if both else leaf}
        return graph([("If", ["c"], ["o"], branches)], [], [value("o", None)])

    made = body(levels)
    inputs = [value("x", shape), value("c", (), TensorProto.BOOL)]
    return model([("If", ["c"], ["y"], {"then_branch": made, "else_branch": made})], inputs)


def ifs20():
    return nestedIfs(20)


def ifs30():
    return nestedIfs(30)


def ifsOfUnknownShape():
    return nestedIfs(30, shape=None)


def ifsInBoth():
    return nestedIfs(7, both=True)


def wideIfs():
    """A hundred levels of graphs, of which the innermost has a thousand nodes."""
    nodes = [("Relu", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"]) for i in range(1000)]
    made = graph([*nodes, ("Relu", ["v1000"], ["o"])], [], ["o"])
    for _ in range(28):
        made = graph(
            [("If", ["c"], ["o"], {"then_branch": made, "else_branch": graph([("Relu", ["x"], ["o"])], [], ["o"])})],
            [],
            ["o"],
        )
    return model(
        [("If", ["c"], ["y"], {"then_branch": made, "else_branch": made})], ["x", value("c", (), TensorProto.BOOL)]
    )


def loopBody(nodes, carried=("a",), results=("b",), **more):
    """The body of a Loop."""
    own = [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL)]
    nodes = [("Identity", ["on"], ["again"]), *nodes]
    return graph(
        nodes,
        [*own, *(value(n, None) for n in carried)],
        [value("again", (), TensorProto.BOOL), *(value(n, None) for n in results)],
        **more,
    )


def nestedLoops(levels, kind="Concat"):
    """A Loop in a Loop, each of which changes the size that it carries."""
    made = loopBody([(kind, ["a", "a"], ["b"], {"axis": 0} if kind == "Concat" else {})])
    for _ in range(levels):
        made = loopBody([("Loop", ["i", "on", "a"], ["b"], {"body": made})])
    return model(
        [("Loop", ["n", "on", "x"], ["y"], {"body": made})],
        ["x", value("n", (), TensorProto.INT64), value("on", (), TensorProto.BOOL)],
    )


def loops():
    return nestedLoops(20)


def loopsOfOneShape():
    return nestedLoops(20, "Add")


def nestedScans():
    made = graph(
        [("Concat", ["a", "a"], ["b"], {"axis": 0}), ("Relu", ["s"], ["r"])],
        [value("a", None), value("s", None)],
        [value("b", None), value("r", None)],
    )
    for _ in range(20):
        made = graph(
            [("Scan", ["a", "w"], ["b", "r"], {"body": made, "num_scan_inputs": 1})],
            [value("a", None), value("s", None)],
            [value("b", None), value("r", None)],
        )
    return model([("Scan", ["x", "w"], ["y", "z"], {"body": made, "num_scan_inputs": 1})], ["x", value("w", (4, 4))])


def loopOfSequence(count=MOST, condition=True):
    body = loopBody([("SequenceInsert", ["a", "x"], ["b"])])
    nodes = [
        ("SequenceConstruct", ["x"], ["s"]),
        ("Loop", ["n", "on", "s"], ["t"], {"body": body}),
        ("ConcatFromSequence", ["t"], ["y"], {"axis": 0}),
    ]
    return model(nodes, initializers=arrays(n=np.int64(count), on=np.bool_(condition)))


def loopOfSequenceAround():
    """A Loop that reads a sequence, and carries none."""
    body = loopBody([("SequenceAt", ["s", "i"], ["u"]), ("Add", ["a", "u"], ["b"])])
    nodes = [("SequenceConstruct", ["x"] * 3, ["s"]), ("Loop", ["n", "on", "x"], ["y"], {"body": body})]
    return model(nodes, initializers=arrays(n=np.int64(MOST), on=np.bool_(True)))


def sequenceDoubled():
    """A sequence to whose end each of its values is put, again and again."""
    made = [("SequenceConstruct", ["x"] * 1000, ["s"])]
    made += [("ConcatFromSequence", ["s"], [f"c{i}"], {"axis": 0}) for i in range(2000)]
    return model([*made, ("Sum", [f"c{i}" for i in range(2000)], ["y"])])


def nestedSequenceMaps():
    body = graph([("Relu", ["v"], ["w"])], [value("v", None)], [value("w", None)])
    for _ in range(20):
        body = graph(
            [("SequenceMap", ["s"], ["t"], {"body": body}), ("ConcatFromSequence", ["t"], ["w"], {"axis": 0})],
            [value("v", None)],
            [value("w", None)],
        )
    nodes = [
        ("SequenceConstruct", ["x"] * 10, ["s"]),
        ("SequenceMap", ["s"], ["t"], {"body": body}),
        ("ConcatFromSequence", ["t"], ["y"], {"axis": 0}),
    ]
    return model(nodes)


def longSequence():
    return model(
        [("SplitToSequence", ["x"], ["s"], {"axis": 0}), ("ConcatFromSequence", ["s"], ["y"], {"axis": 0})],
        [value("x", (FAR,))],
    )


def longParts():
    return model(
        [("SplitToSequence", ["x", "n"], ["s"], {"axis": 0}), ("SequenceAt", ["s", "n"], ["y"])],
        [value("x", (FAR,))],
        initializers=arrays(n=np.int64(1)),
    )


# Functions ------------------------------------------------------------------------------------------------------------


def calls(name, inner, times=2, extra=()):
    """A function that calls another one several times."""
    nodes = [
        helper.make_node(
            inner,
            [f"v{i}" if i else "a"],
            [f"v{i + 1}" if i + 1 < times else "b"],
            domain="own" if inner.startswith("f") else "",
        )
        for i in range(times)
    ]
    for node in nodes:
        node.attribute.extend(extra)
    return helper.make_function(
        "own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    )


def doublingFunctions(levels=38, times=2, name=""):
    functions = [calls("f0" + name, "Relu")] + [
        calls(f"f{i}{name}", f"f{i - 1}{name}", times) for i in range(1, levels)
    ]
    made = model([], functions=functions)
    made.graph.node.append(helper.make_node(f"f{levels - 1}{name}", ["x"], ["y"], domain="own"))
    return made


def functionsWithLongNames():
    return doublingFunctions(name="n" * 100_000, levels=12)


def functionOfItself():
    return _call(model([], functions=[calls("f", "f")]), "f")


def functionsOfEachOther():
    return _call(model([], functions=[calls("f", "fg", 3), calls("fg", "f", 3)]), "f")


def _call(made, name, **attributes):
    made.graph.node.append(helper.make_node(name, ["x"], ["y"], domain="own", **attributes))
    return made


def functionWithLargeAttribute():
    """A function of a megabyte that is called two thousand times."""
    node = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(1 << 18, np.float32)))
    body = [
        node,
        helper.make_node("Gather", ["k", "z"], ["g"]),
        helper.make_node("Add", ["a", "g"], ["b"]),
        helper.make_node("Constant", [], ["z"], value_int=0),
    ]
    body = [body[0], body[3], body[1], body[2]]
    function = helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    made = model([], functions=[function])
    names = ["x", *(f"v{i}" for i in range(1999)), "y"]
    made.graph.node.extend(helper.make_node("f", [a], [b], domain="own") for a, b in zip(names, names[1:]))
    return made


# Sizes ----------------------------------------------------------------------------------------------------------------


def split():
    return model([("Split", ["x"], ["y", "z"], {"num_outputs": FAR})])


def splitOfMany():
    return model([("Split", ["x"], ["y"], {"num_outputs": FAR})], [value("x", (FAR,))])


def splitSizes():
    return model(
        [("Split", ["x", "s"], ["y"], {})], [value("x", (10**6,))], initializers=arrays(s=np.ones(10**6, np.int64))
    )


def constantOfShape():
    return known("ConstantOfShape", n=np.array([FAR, 10]))


def filledThenSmall():
    nodes = [
        ("ConstantOfShape", ["n"], ["a"]),
        ("Expand", ["a", "m"], ["b"]),
        ("ReduceSum", ["b"], ["c"], {"keepdims": 0}),
        ("Add", ["c", "x"], ["y"]),
    ]
    return model(nodes, initializers=arrays(n=np.array([1]), m=np.array([FAR * 10])))


def rangeOfMany():
    return known("Range", a=np.array(0), b=np.array(10**12), c=np.array(1))


def rangeOfFloats():
    return known("Range", a=np.array(0.0, np.float32), b=np.array(1e12, np.float32), c=np.array(1e-3, np.float32))


def expanded():
    return known("Expand", x=np.ones(1, np.float32), n=np.array([10**6, 10**6]))


def expandedValue():
    """Indices as known sizes, expanded."""
    return model(
        [("Shape", ["x"], ["s"]), ("Expand", ["s", "n"], ["t"]), ("Reshape", ["x", "t"], ["y"])],
        initializers=arrays(n=np.array([10**9, 1])),
    )


def tiled():
    return known("Tile", x=np.ones(1, np.int64), n=np.array([10**10]))


def tiledValue():
    return model(
        [("Shape", ["x"], ["s"]), ("Tile", ["s", "n"], ["t"]), ("Reshape", ["x", "t"], ["y"])],
        initializers=arrays(n=np.array([10**9])),
    )


def padded():
    return known("Pad", x=np.ones(1, np.float32), n=np.array([10**9, 10**9]))


def paddedValue():
    return model(
        [("Shape", ["x"], ["s"]), ("Pad", ["s", "n"], ["t"]), ("Reshape", ["x", "t"], ["y"])],
        initializers=arrays(n=np.array([10**9, 10**9])),
    )


def gatheredValue():
    """Known sizes that are gathered again and again."""
    nodes = [("Shape", ["x"], ["s0"])]
    nodes += [("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], {"axis": 0}) for i in range(40)]
    return model([*nodes, ("ReduceSum", ["s40"], ["t"], {"keepdims": 1}), ("Expand", ["x", "t"], ["y"])])


def joinedSymbols():
    nodes = [("Shape", ["x"], ["s0"])]
    nodes += [("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], {"axis": 0}) for i in range(40)]
    return model(
        [*nodes, ("ReduceSum", ["s40"], ["t"], {"keepdims": 1}), ("Expand", ["x", "t"], ["y"])],
        [value("x", ("N", "M"))],
    )


def joinedConstants():
    nodes = [("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], {"axis": 0}) for i in range(40)]
    return model(
        [*nodes, ("ReduceSum", ["s40"], ["t"], {"keepdims": 1}), ("Expand", ["x", "t"], ["y"])],
        initializers=arrays(s0=np.array([1])),
    )


def multipliedSymbols():
    nodes = [("Shape", ["x"], ["s0"])]
    nodes += [("Mul", [f"s{i}", f"s{i}"], [f"s{i + 1}"]) for i in range(60)]
    return model([*nodes, ("Expand", ["x", "s60"], ["y"])], [value("x", ("N", "M"))])


def polynomials():
    """Products of sums of symbols, a thousand at once."""
    names = [f"N{i}" for i in range(14)]
    nodes = [
        ("Shape", ["x"], ["s"]),
        ("ReduceSum", ["s"], ["a"], {"keepdims": 1}),
        ("Mul", ["a", "a"], ["b"]),
        ("Expand", ["b", "n"], ["c"]),
        ("Expand", ["b", "n"], ["d"]),
    ]
    nodes += [
        ("Mul", ["c", "d"], ["e"]),
        ("Add", ["e", "c"], ["f"]),
        ("Mul", ["f", "c"], ["g"]),
        ("ReduceSum", ["g"], ["h"]),
        ("Expand", ["z", "h"], ["y"]),
    ]
    return model(nodes, [value("x", names), value("z", (1,))], initializers=arrays(n=np.array([1000])))


def productOfMany():
    """Known sizes multiplied as matrices."""
    nodes = [
        ("Shape", ["x"], ["s"]),
        ("Expand", ["s", "n"], ["a"]),
        ("Reshape", ["a", "m"], ["b"]),
        ("MatMul", ["b", "b"], ["c"]),
        ("MatMul", ["c", "b"], ["d"]),
        ("MatMul", ["d", "c"], ["e"]),
        ("ReduceSum", ["e"], ["t"], {"keepdims": 1}),
        ("Expand", ["x", "t"], ["y"]),
    ]
    return model(nodes, [value("x", ("N",))], initializers=arrays(n=np.array([1024]), m=np.array([32, 32])))


def resized():
    nodes = [("Resize", ["x", "", "s"], ["y"])]
    return model(
        nodes, [], initializers=arrays(x=np.ones((1, 1, 2, 2), np.float32), s=np.array([1, 1, 1e6, 1e6], np.float32))
    )


def resizedBack():
    """An array that is made large, then small again."""
    nodes = [("Resize", ["x", "", "s"], ["a"]), ("GlobalAveragePool", ["a"], ["y"])]
    return model(
        nodes, [], initializers=arrays(x=np.ones((1, 1, 2, 2), np.float32), s=np.array([1, 1, 1e6, 1e6], np.float32))
    )


def oneHot():
    return known("OneHot", i=np.array([1]), d=np.array(10**12), v=np.array([0.0, 1.0], np.float32))


def windowOfMany():
    return known("HannWindow", n=np.array(10**11))


def mel():
    return known(
        "MelWeightMatrix",
        a=np.array(10**6),
        b=np.array(10**7),
        c=np.array(8000),
        d=np.array(1.0, np.float32),
        e=np.array(4000.0, np.float32),
    )


def dft():
    return known("DFT", x=np.ones((1, 2, 1), np.float32), n=np.array(10**11))


def dftKnown():
    return model([("DFT", ["x", "n"], ["y"])], [value("x", (1, 8, 1))], initializers=arrays(n=np.array(10**11)))


def stft():
    return model(
        [("STFT", ["x", "n", "", "m"], ["y"])],
        [value("x", (1, 10**12, 1))],
        initializers=arrays(n=np.array(1), m=np.array(10**10)),
    )


def topK():
    return model([("TopK", ["x", "k"], ["y", "i"])], initializers=arrays(k=np.array([10**15])))


def identical():
    return known("EyeLike", x=np.ones((1, 1), np.float32), k=MOST)


def manyAxes():
    return model([("Reshape", ["x", "s"], ["y"])], initializers=arrays(s=np.ones(100_000, np.int64)))


def moreAxes():
    return model([("Unsqueeze", ["x", "s"], ["y"])], initializers=arrays(s=np.arange(1, 100_000)))


def rank():
    return model([("Relu", ["x"], ["y"])], [value("x", [1] * 100_000)])


def rankOfSymbols():
    return model(
        [("Relu", ["x"], ["a"]), ("Add", ["a", "x"], ["b"]), ("Shape", ["b"], ["s"]), ("Reshape", ["x", "s"], ["y"])],
        [value("x", [f"N{i}" for i in range(20_000)])],
    )


def longPermutation():
    return model([("Transpose", ["x"], ["y"], {"perm": list(range(100_000))})], [value("x", [1] * 100_000)])


def expression():
    return model([("Relu", ["x"], ["y"])], [value("x", ["(" * 5000 + "N" + ")" * 5000])])


def longSymbol():
    return model(
        [
            ("Relu", ["x"], ["a"]),
            *[("Add", ["a" if i == 0 else f"a{i}", "x"], [f"a{i + 1}"]) for i in range(500)],
            ("Relu", ["a500"], ["y"]),
        ],
        [value("x", ["N" * 1_000_000, 2])],
    )


def einsum():
    """Few elements, and ever so many products."""
    letters = "abcdefghijklmnopqrstuvwx"
    terms = [letters[i : i + 4] for i in range(0, 24, 4)]
    given = {f"x{i}": np.ones((8, 8, 8, 8), np.float32) for i in range(6)}
    return known("Einsum", equation=",".join(terms) + "->", **given)


def einsumOfMany():
    given = {f"x{i}": np.ones((2,), np.float32) for i in range(40)}
    return known("Einsum", equation=",".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN") + "->", **given)


def einsumText():
    return model([("Einsum", ["x", "x"], ["y"], {"equation": "i," * 200_000 + "i->i"})])


def conv(**attributes):
    given = {"x": np.ones((1, 1, 2), np.float32), "w": np.ones((1, 1, 2), np.float32)}
    return known("Conv", **given, **attributes)


def convPadded():
    return conv(pads=[10**9, 10**9], strides=[10**9])


def convDilated():
    return conv(pads=[10**9, 10**9], dilations=[10**9])


def convGroups():
    return conv(group=10**9)


def convKernel():
    return model(
        [("Conv", ["x", "w"], ["y"], {"kernel_shape": [10**9]})],
        [value("x", (1, 1, 10**10))],
        initializers=arrays(w=np.ones((1, 1, 1), np.float32)),
    )


def pooled():
    return known(
        "AveragePool",
        x=np.ones((1, 1, 2), np.float32),
        kernel_shape=[10**9],
        pads=[10**9 - 1, 10**9 - 1],
        strides=[10**9],
    )


def maxPooled():
    return known(
        "MaxPool", x=np.ones((1, 1, 2), np.float32), kernel_shape=[10**9], pads=[10**9 - 1, 10**9 - 1], strides=[10**9]
    )


def poolOfInput():
    return model(
        [("AveragePool", ["x"], ["y"], {"kernel_shape": [10**9], "pads": [10**9 - 1] * 2})], [value("x", (1, 1, 2))]
    )


def transposedConv():
    given = {"x": np.ones((1, 1, 1), np.float32), "w": np.ones((1, 1, 2), np.float32)}
    return known(
        "ConvTranspose",
        **given,
        strides=[10**10],
        output_padding=[10**10 - 1],
        pads=[10**9, 10**10 - 2 - 10**9 + 10**9],
    )


def lstm():
    given = {"w": np.ones((1, 4, 2), np.float32), "r": np.ones((1, 4, 1), np.float32)}
    return model(
        [("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 10**9})],
        [value("x", (3, 1, 2))],
        initializers=arrays(**given),
    )


def blocks():
    return model([("DepthToSpace", ["x"], ["y"], {"blocksize": 10**9})], [value("x", (1, 10**18, 2, 2))])


def random():
    return model(
        [
            ("RandomNormal", [], ["a"], {"shape": [10**6, 10**6]}),
            ("ReduceSum", ["a"], ["b"], {"keepdims": 0}),
            ("Add", ["x", "b"], ["y"]),
        ]
    )


def cropped():
    return model(
        [("CenterCropPad", ["x", "s"], ["y"], {"axes": [0] * 50_000})], initializers=arrays(s=np.ones(50_000, np.int64))
    )


def roi():
    return known(
        "RoiAlign",
        x=np.ones((1, 1, 2, 2), np.float32),
        r=np.array([[0, 0, 1, 1]], np.float32),
        i=np.array([0]),
        sampling_ratio=10**6,
    )


def unpooled():
    return known(
        "MaxUnpool",
        x=np.ones((1, 1, 1, 1), np.float32),
        i=np.zeros((1, 1, 1, 1), np.int64),
        s=np.array([1, 1, 10**6, 10**6]),
        kernel_shape=[2, 2],
    )


def columns():
    return known("Col2Im", x=np.ones((1, 1, 1), np.float32), s=np.array([10**6, 10**6]), b=np.array([1, 1]))


def grid():
    return known("AffineGrid", t=np.ones((1, 2, 3), np.float32), s=np.array([1, 1, 10**6, 10**6]))


def scanOfMany():
    body = graph([("Relu", ["s"], ["r"])], [value("s", None)], [value("r", None)])
    return model([("Scan", ["x"], ["y"], {"body": body, "num_scan_inputs": MOST})])


def powers():
    return known("Pow", x=np.array(10), y=np.array(10**9))


def shifted():
    return known("BitShift", x=np.array([1], np.uint64), y=np.array([10**9], np.uint64), direction="LEFT")


# Names and many nodes -------------------------------------------------------------------------------------------------


def chain(kinds, count, name=None, many=False):
    """Nodes one after the other, each of which reads the one before once or twice."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [(kinds[i % len(kinds)], [a, a] if many else [a], [b]) for i, (a, b) in enumerate(zip(names, names[1:]))]
    made = model(nodes)
    if name is not None:
        for node in made.graph.node:
            node.name = name
    return made


def oneName():
    return chain(["Relu"], 4000, "same")


def oneLongName():
    return chain(["Relu"], 2000, "s" * 2000)


def longName():
    return chain(["Relu"], 20, "s" * 1_000_000)


def namesThatCount():
    made = chain(["Relu"], 4000)
    for i, node in enumerate(made.graph.node):
        node.name = "a" if i % 2 else f"a:{i}"
    return made


def sums():
    return chain(["Add"], 60, many=True)


def products():
    return chain(["Mul", "Add", "Mul"], 300, many=True)


def activations():
    return chain(["Erf", "Sigmoid", "Tanh", "Exp", "Softplus", "Sqrt"], 300)


def alternatives():
    """What patterns begin with, again and again, in both orders of what can be swapped."""
    nodes = []
    for i in range(300):
        x = "x" if i == 0 else f"d{i - 1}"
        nodes += [
            ("Mul", [x, x], [f"a{i}"]),
            ("Mul", [f"a{i}", x], [f"b{i}"]),
            ("Add", [x, f"b{i}"], [f"c{i}"]),
            ("Mul", [f"c{i}", f"c{i}"], [f"d{i}"]),
        ]
    return model([*nodes, ("Relu", ["d299"], ["y"])])


def lists():
    """Nodes with thousands of inputs."""
    return model([("Concat", ["x"] * 20_000, ["a"], {"axis": 0}), ("Sum", ["a"] * 20_000, ["y"])])


def escapes():
    made = model([("\x1b[31mRed\x07", ["x"], ["y"])])
    made.graph.node[0].name = "\x1b]0;x\x07"
    return made


def text():
    return model([("Cast", ["x"], ["y"], {"to": 10**9})])


def unread():
    """Fifty thousand nodes that no output needs."""
    return model([("Relu", ["x"], ["y"]), *[("Relu", ["x"], [f"u{i}"]) for i in range(50_000)]])


def manyInputs():
    return model([("Relu", ["x0"], ["y"])], [value(f"x{i}") for i in range(20_000)])


def manyOutputs():
    return model([("Relu", ["x"], ["y"])], outputs=["y"] * 20_000)


def deepAttributes():
    """Attributes that refer to those of a function, which refer to others."""
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="alpha")
    inner = helper.make_function("own", "f", ["a"], ["b"], [body], [helper.make_opsetid("", 21)], ["alpha"])
    return _call(model([], functions=[inner]), "f")


FILES = [
    ifs20, ifs30, ifsOfUnknownShape, ifsInBoth, wideIfs, loops, loopsOfOneShape, nestedScans, loopOfSequence, loopOfSequenceAround,
    sequenceDoubled, nestedSequenceMaps, longSequence, longParts, doublingFunctions, functionsWithLongNames,
    functionOfItself, functionsOfEachOther, functionWithLargeAttribute, split, splitOfMany, splitSizes,
    constantOfShape, filledThenSmall, rangeOfMany, rangeOfFloats, expanded, expandedValue, tiled, tiledValue, padded,
    paddedValue, gatheredValue, joinedSymbols, joinedConstants, multipliedSymbols, polynomials, productOfMany, resized,
    resizedBack, oneHot, windowOfMany, mel, dft, dftKnown, stft, topK, identical, manyAxes, moreAxes, rank,
    rankOfSymbols, longPermutation, expression, longSymbol, einsum, einsumOfMany, einsumText, convPadded, convDilated,
    convGroups, convKernel, pooled, maxPooled, poolOfInput, transposedConv, lstm, blocks, random, cropped, roi,
    unpooled, columns, grid, scanOfMany, powers, shifted, oneName, oneLongName, longName, namesThatCount, sums,
    products, activations, alternatives, lists, escapes, text, unread, manyInputs, manyOutputs, deepAttributes,
]  # fmt: skip

LONG = [
    ifsInBoth, wideIfs, loops, nestedScans, sequenceDoubled, nestedSequenceMaps, doublingFunctions,
    functionsWithLongNames, functionWithLargeAttribute, splitSizes, oneName, oneLongName, longName, namesThatCount,
    lists, unread, manyInputs, manyOutputs,
]  # fmt: skip
