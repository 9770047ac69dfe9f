"""What libraries compute beside a product or attention: gradients of biases, GELU both ways, strided gradients."""

import pytest
from fakecupy import useGpu
from gpunets import close, images, trained
from launches import needsEmulator

from puregraph.core import device
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, Attention, Embedder, Flatten, Gelu, Linear, Relu, Reshape, Split, Transpose
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.product.cuda import cublaslt, librarygemm
from puregraph.optimizers import SGD

pytestmark = [needsEmulator]

GELUKEPT = cublaslt.GELU | cublaslt.BIAS | cublaslt.KEPT


def projected(order=(0, 1, 2), width=24):
    """Words, attention of one projection that is split, and two layers with GELU between."""
    words = Input().node()
    x = Embedder(11, 16).node(words)
    split = Split(axis=2, sections=(16, 16, 16)).node(Linear(16, 48).node(x))
    parts = [Transpose((0, 2, 1, 3)).node(Reshape((-1, 6, 2, 8)).node((split, i))) for i in order]
    y = Reshape((-1, 6, 16)).node(Transpose((0, 2, 1, 3)).node(Attention(causal=True).node(*parts)))
    x = Add().node(x, Linear(16, 16).node(y))
    inner = Linear(width, 16).node(Gelu(approximate=True).node(Linear(16, width).node(x)))
    return Graph(words, Linear(96, 4).node(Flatten().node(Add().node(x, inner))))


def onBoth(monkeypatch, make, batches, precision="float32"):
    """The program, the tasks of its library calls and its launches; all trains as on the CPU."""
    with device.useDevice("cpu"):
        _, near, wanted = trained(make, batches, SGD())
    useGpu(monkeypatch)
    program, far, got = trained(lambda: make().calcMode(precision), batches, SGD())
    tolerance = 2e-5 if precision == "float32" else 3e-2
    for each, other in zip(got, wanted, strict=True):
        close(each[0], other[0], tolerance)
    for name, param in near.params.items():
        close(far.params[name].data, param.data, tolerance)
    calls = [call for call in program.executable.schedule.calls if call.kind.isNative]
    works = [task.what for call in calls for task in call.function.works]
    tasks = [work.task for work in works if not isinstance(work, Launch)]
    return program, tasks, [work for work in works if isinstance(work, Launch)]


def epilogues(tasks):
    """The epilogues of the products among tasks."""
    return [task.epilogue for task in tasks if isinstance(task, librarygemm.GemmTask)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_gelu_and_its_gradient_are_epilogues_of_the_products_beside_them(monkeypatch, rng, precision):
    program, tasks, launches = onBoth(monkeypatch, projected, images(rng, 3, None), precision)
    assert epilogues(tasks).count(GELUKEPT) == 1
    assert epilogues(tasks).count(cublaslt.BACKGELU) == 1
    assert not any("sigmoid" in each.name for each in launches)
    assert "gelu" in str(program.table())


def test_gelu_of_rows_that_the_library_cannot_keep_is_a_pass_of_its_own(monkeypatch, rng):
    _, tasks, launches = onBoth(monkeypatch, lambda: projected(width=12), images(rng, 2, None))
    assert GELUKEPT not in epilogues(tasks) and cublaslt.BACKGELU not in epilogues(tasks)
    assert any("sigmoid" in each.name for each in launches)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradients_of_biases_are_summed_by_the_product_that_reads_the_same_rows(monkeypatch, rng, precision):
    def make():
        return Sequential(Linear(7, 16), Relu(), Linear(16, 8), Relu(), Linear(8, 4))

    _, tasks, launches = onBoth(monkeypatch, make, images(rng, 3, 7), precision)
    assert epilogues(tasks).count(cublaslt.TOTALA) == 3
    assert "columns" not in [each.entry for each in launches]


def test_gradients_of_one_projection_are_written_where_it_reads_them(monkeypatch, rng):
    _, tasks, launches = onBoth(monkeypatch, projected, images(rng, 3, None))
    (task,) = [task for task in tasks if isinstance(task, attention.AttentionTask) and task.grads]
    assert task.grads[1:] == (task.q, task.k, task.v) and task.q.strides[2] == 48
    assert "copy" not in [each.name for each in launches]


def test_gradients_that_are_concatenated_in_another_order_are_copied(monkeypatch, rng):
    _, tasks, launches = onBoth(monkeypatch, lambda: projected(order=(2, 0, 1)), images(rng, 2, None))
    assert [each.name for each in launches].count("copy") == 3
