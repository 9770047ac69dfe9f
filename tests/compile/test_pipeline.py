"""The pipeline of passes: what holds of a schedule between any two of them, and its dump."""

import numpy as np
import pytest
from natively import needsNative

from puregraph import SGD, BatchNorm, CrossEntropy, Dropout, Graph, Input, Linear, Pointwise, Relu, Sequential
from puregraph.compile import pipeline
from puregraph.compile.ir.validate import PassError, validate
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.compile.trace.withcost import withCost


@pytest.fixture
def verified(monkeypatch):
    """Have every pass checked."""
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")


def network():
    return Sequential(Linear(6, 8), BatchNorm(8), Relu(), Dropout(0.5), Linear(8, 3), name="net")


def step(net=None):
    """The traced training step of a small network."""
    net = net or network()
    graph = withCost(net, CrossEntropy(), 1, 1)
    optimizer = SGD()
    optimizer.setupOn(net)
    return pipeline.schedule(graph, [(4, 6), (4,)], [np.float32, np.int64], StepRequest("one", optimizer=optimizer))


def through(passes):
    """The step after some passes, each checked."""
    found = step()
    for each in (*pipeline.NATIVE.prepare, *pipeline.NATIVE.lower):
        found = pipeline.runPasses(found, (passes.get(each.__name__, each),))
    return found


def named(function, name):
    """A broken pass under the name of the one that it stands for."""
    function.__name__ = name
    return function


@needsNative
def test_every_pass_of_native_code_gives_a_schedule_that_holds(verified):
    kinds = {call.kind.name for call in through({}).calls}
    assert "native" in kinds and not kinds & {"group", "pointwise", "reduce", "product"}


def test_every_pass_of_a_gpu_gives_a_schedule_that_holds(verified):
    passes = pipeline.gpuPasses()
    found = pipeline.runPasses(step(), (*passes.prepare, *passes.lower))
    assert any(call.kind.isNative for call in found.calls)


def test_a_result_of_a_formula_has_the_shape_of_what_it_reads_itself(verified):
    nodes = [Input(name=name).node() for name in "yx"]
    net = Graph(nodes, Pointwise(formula="y + where(1 > 0, y, x)").node(*nodes))  # its gradient of x is the number 0
    found = pipeline.schedule(net, [(4, 3), (4, 3)], [np.float32] * 2, StepRequest((True,)))
    assert [g.shape for g in found.inputGrads] == [(4, 3), (4, 3)]


def test_every_backend_cleans_up_what_was_traced_in_the_same_order():
    assert [each.__name__ for each in pipeline.TRACED] == [
        "eliminateCommonSubexpressions",
        "readReluSigns",
        "eliminateDeadCode",
    ]


@needsNative
def test_a_fusion_that_takes_a_call_before_its_operand_is_named(verified):
    def early(schedule):
        found = pipeline.fuse(schedule)
        i = next(i for i, call in enumerate(found.calls) if call.kind.isContraction and i)
        found.calls.insert(len(found.calls), found.calls.pop(i))
        return found

    with pytest.raises(PassError, match=r"after the pass fuse: .* reads %\d+ before it is computed"):
        through({"fuse": named(early, "fuse")})


@needsNative
def test_dead_code_elimination_that_takes_an_output_is_named(verified):
    def greedy(schedule):
        schedule.calls = [call for call in schedule.calls if schedule.outputs[0] not in call.outs]
        return schedule

    with pytest.raises(PassError, match="after the pass eliminateDeadCode"):
        pipeline.runPasses(step(), (named(greedy, "eliminateDeadCode"),))


@needsNative
def test_hoisting_that_loses_the_count_of_updates_is_named(verified):
    def forgetful(schedule):
        schedule.calls = [call for call in schedule.calls if "CountStep" not in type(call.function).__name__]
        return schedule

    with pytest.raises(
        PassError, match="after the pass hoistUpdates: expected the calls with effects .*CountStep.*, got"
    ):
        through({"hoistUpdates": named(forgetful, "hoistUpdates")})


def test_a_common_subexpression_of_another_shape_is_named(verified):
    def careless(schedule):
        call = next(c for c in schedule.calls if c.kind.isElementwise and c.outs[0].shape == (4, 8))
        call.outs[0].shape = (4, 4)
        return schedule

    with pytest.raises(
        PassError, match=r"eliminateCommonSubexpressions: .* wanted %\d+ of shape \(4, 8\), got \(4, 4\)"
    ):
        pipeline.runPasses(step(), (named(careless, "eliminateCommonSubexpressions"),))


def test_a_view_outside_of_its_memory_is_named():
    found = step()
    view = next(y for call in found.calls for y in call.outs if y is not None and y.base is not None)
    view.offset += view.base.nbytes
    with pytest.raises(PassError, match=rf"%{view.number} runs from byte \d+ to \d+ of %{view.base.number}"):
        validate(found)


def test_a_parameter_that_is_read_after_a_store_is_named():
    found = step()
    store = next(call for call in found.calls if call.kind.isStore)
    old = next(value for target, value in found.held if target is store.options["target"])
    reader = next(call for call in found.calls if old in [v.root for v in call.values()] and not call.kind.isView)
    found.calls = [*(call for call in found.calls if call is not reader), reader]
    with pytest.raises(PassError):
        validate(found)


def test_what_a_pass_gives_is_written_to_a_folder_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_DUMP", str(tmp_path))
    step()
    files = sorted(tmp_path.rglob("*.txt"))
    assert [path.stem.split("-")[1] for path in files] == [each.__name__ for each in pipeline.TRACED]
    assert "matmul" in files[0].read_text() and "float32[4, 8]" in files[0].read_text()
