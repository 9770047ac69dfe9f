"""Networks that NNSmith draws, exported by PyTorch: read and compiled they give PyTorch's values, gradients and updates."""

import os
import sys
import warnings

import numpy as np
import onnx
import pytest
from graphcompare import Failure
from natively import needsNative

pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it asks for a program that draws graphs
    pytest.importorskip("nnsmith", reason="NNSmith is not installed: puregraph[peers] brings it")
    from nnsmith.abstract.op import Sigmoid
    from nnsmithnets import NetComparison, netFailure, randomNet, written

pytestmark = [pytest.mark.peers, needsNative]
DAILY = 100
COUNT = int(os.environ.get("PUREGRAPH_TEST_GRAPHS", "20000"))
START = int(os.environ.get("PUREGRAPH_TEST_FIRST", str(DAILY)))


def check(seeds, folder):
    """Try the networks of some seeds; each that fails is printed at once and written to a folder, cut down."""
    failed = []
    for seed in seeds:
        try:
            failure = netFailure(spec := randomNet(seed))
        except Exception as error:  # the others are tried all the same
            failure, spec = Failure(type(error).__name__, str(error)), None
        if failure is not None:
            print(f"seed {seed} fails: {failure.kind}: {failure.text}", file=sys.stderr, flush=True)
            failed.append(seed)
        if failure is not None and spec is not None:
            written(spec, failure, folder / str(seed))
        if seed % 100 == 99:
            print(f"up to seed {seed}: {len(failed)} fail", file=sys.stderr, flush=True)
    assert not failed, f"seeds {failed} fail; their smallest networks are in {folder}"


@pytest.mark.costly
@pytest.mark.usefixtures("quickly")
def test_networks_of_nnsmith_give_what_pytorch_gives(tmp_path):
    check(range(DAILY), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_20000_networks_of_nnsmith_give_what_pytorch_gives(tmp_path):
    """PUREGRAPH_TEST_GRAPHS sets how many, PUREGRAPH_TEST_FIRST the first seed."""
    check(range(START, START + COUNT), tmp_path)


def test_a_network_is_the_same_each_time_and_most_have_parameters():
    count = 0
    for seed in (1, 9, 11, 13):
        one, other = (NetComparison(randomNet(seed)) for _ in range(2))
        kinds = [[node.op_type for node in each.model.graph.node] for each in (one, other)]
        assert kinds[0] == kinds[1]
        assert all(p.equal(q) for p, q in zip(one.net.parameters(), other.net.parameters(), strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(one.data[0], other.data[0]))
        count += any(p.is_floating_point() for p in one.net.parameters())
    assert count >= 2


@pytest.mark.usefixtures("quickly")
def test_a_network_that_an_exporter_narrows_inside_is_as_exact_as_float32():
    spec = randomNet(620)
    assert spec.dtype == "float64" and NetComparison(spec).precision("difference") == np.float32
    assert netFailure(spec) is None


@pytest.mark.usefixtures("quickly")
def test_places_that_pytorch_rounds_while_interpolating_are_no_difference():
    spec = randomNet(5908)
    comparison = NetComparison(spec)
    eager, *both = comparison.eagerly(None), comparison.byTorch(False), comparison.byTorch(True)
    single, double = (np.abs(eager[name] - each[name]).max() for each in both for name in ["output 1 of step 0"])
    assert double < 2e-6 < 2e-5 < single
    assert netFailure(spec) is None


@pytest.mark.usefixtures("quickly")
def test_an_update_by_what_cancels_before_a_normalisation_is_no_difference():
    assert netFailure(randomNet(6283)) is None


@pytest.fixture
def noSigmoid(monkeypatch):
    """Have no network with a Sigmoid be compiled."""
    right = NetComparison.compiled

    def compiled(self, dtype):
        if any(node.op_type == "Sigmoid" for node in self.model.graph.node):
            raise ValueError("planted")
        return right(self, dtype)

    monkeypatch.setattr(NetComparison, "compiled", compiled)


def test_a_failing_network_is_cut_down_and_written_with_its_data(noSigmoid, quickly, tmp_path):
    spec = randomNet(27)
    assert len(spec.lines) > 5 and any(isinstance(line.op, Sigmoid) for line in spec.lines)
    failure = written(spec, netFailure(spec), tmp_path)
    assert failure.kind == "ValueError"
    model = onnx.load(str(tmp_path / "model.onnx"))
    assert [node.op_type for node in model.graph.node] == ["Sigmoid"]
    arrays = np.load(tmp_path / "data.npz")
    assert arrays["input_0"].shape == tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    assert "seed 27: ValueError: ValueError: planted" in (tmp_path / "failure.txt").read_text()


@pytest.mark.usefixtures("quickly")
def test_an_update_that_is_off_is_found():
    specs = [randomNet(seed) for seed in (9, 29)]
    assert [netFailure(spec) for spec in specs] == [None, None]
    found = [netFailure(spec._replace(optimizer="SGD(0.051)")) for spec in specs]
    assert [failure.kind for failure in found] == ["torch", "torch"]
