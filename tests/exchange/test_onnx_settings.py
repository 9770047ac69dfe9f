"""Operators of ONNX in random settings give what onnxruntime gives, in every opset that changed one; compiled too."""

import warnings
import zlib

import numpy as np
import pytest
from onnxclaims import CLAIMED, CONSTANT, EXPANDED, RANDOM, SEQUENCES
from onnxfamilies import READERS, setting
from source import ROOT

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from puregraph import PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.opregistry import READERS as REGISTERED  # noqa: E402
from puregraph.onnx.opregistry import loadFamilies  # noqa: E402

OPSETS = (7, 9, 10, 11, 13, 17, 18, 21, 23, 24, 28)
TOGETHER = {*EXPANDED, "DeformConv"}  # operators whose inputs have axes of one length, which are open in none or all
NEWEST = {"GlobalLpPool": 21, "Swish": 24}  # what onnxruntime has of an operator
LACKED = {"CausalConvWithState", "SwiGLU"}  # operators that onnxruntime has not: the standard's own evaluator has
TRIED = 400  # settings that are drawn for those that onnxruntime takes
COMPILED = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}  # sums may be taken in another order
TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}
SINGLE = {"DFT", "STFT"}  # operators of which onnxruntime computes factors in float32


def modelOf(name, opset, rng):
    """A model of one node, and what is given to it; about half of what follows the first input is a constant.

    Where everything is, an input that nobody reads is beside it.
    """
    attributes, inputs, count = setting(name, rng, opset)
    node = helper.make_node(
        name,
        [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)],
        [f"y{i}" for i in range(count)],
        **attributes,
    )
    given, constants, isOpen = {}, [], rng.random() < 0.3 and name not in TOGETHER
    for i, x in enumerate(inputs):
        if x is not None and (i in CONSTANT.get(name, ()) or i and rng.random() < 0.6):
            constants.append(onnx.numpy_helper.from_array(x, f"x{i}"))
        elif x is not None:
            given[f"x{i}"] = x
    given = given or {"unread": np.zeros(1, np.float32)}
    ends = [
        helper.make_tensor_value_info(
            key,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"{key}n{i}" if isOpen and i == 0 and n else n for i, n in enumerate(x.shape)],
        )
        for key, x in given.items()
    ]
    outs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(count)]
    graph = helper.make_graph([node], "one", ends, outs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), given


def since(name, opsets=OPSETS):
    """The opsets to try: those in which the operator is, and from the newest of them on its meaning may be another."""
    found = {}
    for opset in opsets:
        if opset > NEWEST.get(name, 28):
            break
        try:
            schema = onnx.defs.get_schema(name, opset)
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated:
            found[schema.since_version] = opset
    return sorted(found.values())


def expected(model, given):
    """What onnxruntime gives; None where it takes no such types, shapes or opset."""
    if model.graph.node[0].op_type in LACKED:
        return ReferenceEvaluator(model).run(None, given)
    try:
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = runtime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, given)
    except Exception:  # its own errors have no common base
        return None


def differences(name, count, seed):
    """What differs from onnxruntime in `count` settings for each opset, as sentences; and how many were compared."""
    wrong, compared = [], 0
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    for opset in since(name):
        found = 0
        for _ in range(TRIED):
            if found == count:
                break
            model, given = modelOf(name, opset, rng)
            wanted = expected(model, given)
            if wanted is None:
                continue
            found, compared = found + 1, compared + 1
            fault = difference(model, given, wanted)
            if fault:
                shapes = [(x.shape, x.dtype.name) for x in given.values()]
                text = str(model.graph.node[0]).replace("\n", " ")
                wrong.append(f"opset {opset}: {text} of {shapes}: {fault}")
    return wrong, compared


def difference(model, given, wanted):
    """How the graph differs from what is wanted; None if it does not."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            net = fromOnnx(model)
            found = net(*given.values())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    isSingle = model.graph.node[0].op_type in SINGLE
    return unlike(found, wanted, TOLERANCES | ({"float64": 1e-6} if isSingle else {}))


def unlike(found, wanted, tolerances):
    """How outputs differ from what is wanted; None if they do not."""
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    for y, want in zip(map(np.asarray, found), wanted, strict=True):
        if y.shape != want.shape or y.dtype != want.dtype:
            return f"{y.shape} {y.dtype} for {want.shape} {want.dtype}"
        near = tolerances.get(y.dtype.name)
        if near is None and not np.array_equal(y, want):
            return f"{y.tolist()} for {want.tolist()}"
        if near is not None and not np.allclose(
            y, want, near, near * max(1.0, np.abs(want).max(initial=0, where=np.isfinite(want))), equal_nan=True
        ):
            return f"{y.tolist()} for {want.tolist()}"
    return None


def compiledDifferences(name, count, seed, opsets=(*OPSETS, 28)):
    """What a compiled graph gives otherwise than the graph, in `count` settings for each opset; and how many ran."""
    wrong, compared = [], 0
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    for opset in since(name, opsets):
        for _ in range(count):
            model, given = modelOf(name, opset, rng)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    net = fromOnnx(model)
                    wanted = net(*given.values())
                except PuregraphError:  # a setting that the standard does not allow
                    continue
                shapes, dtypes = zip(*((x.shape, x.dtype) for x in given.values()))
                try:
                    program = net.compile(*shapes, dtypes=dtypes)
                    found = [program.run(*given.values()) for _ in range(2)][-1]
                except Exception as error:
                    wrong.append(f"opset {opset}: {model.graph.node[0]}: {type(error).__name__}: {error}")
                    continue
            compared += 1
            fault = unlike(found, wanted if isinstance(wanted, list) else [wanted], COMPILED)
            if fault:
                wrong.append(f"opset {opset}: {model.graph.node[0]}: {fault}\n{program.table()}")
    return wrong, compared


ELSEWHERE = {  # operators whose settings are drawn in other files
    "If": "test_onnx_branches",
    "Loop": "test_onnx_loops",
    "Scan": "test_onnx_loops",
    "SimplifiedLayerNormalization": "test_onnx_microsoft",
    **dict.fromkeys(SEQUENCES, "test_onnx_sequences"),
}


def test_every_operator_that_is_read_has_settings():
    loadFamilies()
    known = {name for domain, name in REGISTERED if not domain} | {*CLAIMED, *EXPANDED, *CONSTANT, *SEQUENCES}
    assert known - set(RANDOM) == READERS.keys() | ELSEWHERE.keys()
    for name in ELSEWHERE.values():
        assert (ROOT / "tests" / "exchange" / f"{name}.py").is_file()


def test_a_setting_of_every_operator_in_each_opset_gives_what_onnxruntime_gives():
    found = {name: differences(name, 1, 2) for name in READERS}
    assert not [fault for wrong, _ in found.values() for fault in wrong]
    assert not [name for name, (_, compared) in found.items() if not compared]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(READERS))
def test_an_operator_gives_what_onnxruntime_gives_in_random_settings(name):
    wrong, compared = differences(name, 20, 1)
    assert compared >= 20, compared
    assert not wrong, "\n".join(wrong[:5])


def test_a_setting_of_every_operator_gives_the_same_when_it_is_compiled():
    found = {name: compiledDifferences(name, 1, 3, [28 if name != "Scatter" else 10]) for name in READERS}
    assert not [fault for wrong, _ in found.values() for fault in wrong]
    assert sum(compared for _, compared in found.values()) > 0.8 * len(READERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(READERS))
def test_an_operator_in_random_settings_gives_the_same_when_it_is_compiled(name):
    wrong, compared = compiledDifferences(name, 25, 4)
    assert compared >= 20, compared
    assert not wrong, "\n".join(wrong[:5])
