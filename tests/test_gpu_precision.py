"""What is kept in half as many bits on a GPU, what is not, and that training goes where float32 goes."""

import numpy as np
import pytest
from fakecupy import useGpu
from gpunets import MODELS, close, images, trained
from launches import needsEmulator

from puregraph import device
from puregraph.cuda import cudnn, product

pytestmark = needsEmulator


def tasks(program):
    """What cuBLASLt and cuDNN are told to compute in."""
    found = []
    for call in program.built.schedule.calls:
        for task in call.function.works if call.kind == "native" else ():
            if isinstance(task.what, product.Product):
                found.append(task.what.task.compute)
            elif isinstance(task.what, cudnn.Call):
                found.append(task.what.task.kind)
    return found


def inPrecision(name, make, **exceptions):
    """What makes a network that calculates so, but for some modules."""

    def made():
        net = make().calcMode(name)
        for path, other in exceptions.items():
            net[path].calcMode(other)
        return net

    return made


# TF32 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lenet", "transforming"])
def test_tf32_reaches_all_products_and_convolutions_and_nothing_else(monkeypatch, rng, name):
    make, shape, optimizer = MODELS[name]
    batches = images(rng, 2, *(shape or (None,)))
    with device.useDevice("cpu"):
        _, _, wanted = trained(make, batches, optimizer())
    useGpu(monkeypatch)
    plain, _, exact = trained(make, batches, optimizer())
    program, _, got = trained(inPrecision("tf32", make), batches, optimizer())
    assert set(tasks(plain)) == {"float32"}
    assert set(tasks(program)) == {"tf32"} and len(tasks(program)) == len(tasks(plain))
    assert program.bytes == plain.bytes
    for each, other in zip(got, wanted, strict=True):
        close(each[0], other[0], 3e-3)
    assert any(np.abs(device.toHost(y[1]) - z[1]).max() > 1e-5 for y, z in zip(got, wanted))
    close(exact[0][1], wanted[0][1])


def test_a_module_may_be_an_exception_from_tf32(monkeypatch, rng):
    make, shape, optimizer = MODELS["perceptron"]
    useGpu(monkeypatch)
    program, *_ = trained(inPrecision("tf32", make, linear2="float32"), images(rng, 1, *shape), optimizer())
    assert sorted(tasks(program)) == ["float32", "float32", "float32", "tf32", "tf32"]
