"""Optimizers on a GPU: one launch updates all parameters, in the emulator, as each optimizer itself does."""

import numpy as np
import pytest
from launches import misplaced, needsEmulator, runAll

from puregraph.core.param import Param
from puregraph.ops.cuda.nests.optimizerstep import launches
from puregraph.ops.formula import Formula
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD, Slot

pytestmark = needsEmulator
SHAPES = (), (1,), (31, 33), (257,), (8193,), (0, 4), (4, 8)


def slotsOf(rng, *dtypes):
    """Parameters with gradients, some of them at odd addresses or in Fortran's order, with factors of their own."""
    found = []
    for i, shape in enumerate(SHAPES):
        param = Param(shape, dtype=dtypes[i % len(dtypes)])
        param.data, param.grad = (rng.standard_normal(shape).astype(param.dtype) for _ in range(2))
        if i == 3:
            param.array = misplaced(param.data)
        if shape == (4, 8):
            param.array, param.grad = np.asfortranarray(param.data), np.asfortranarray(param.grad)
        param.rate = 1.0 + i
        found.append(Slot(str(i), param))
    return found


def arraysOf(optimizer, slot):
    optimizer.prepare(slot)
    return {"param": slot.param.data, "grad": slot.param.grad, **slot.arrays}


def copied(arrays):
    return {name: x.copy(order="K") for name, x in arrays.items()}


@pytest.mark.parametrize(
    ("optimizer", "dtypes"),
    [
        (SGD(0.1, clipValue=0.5), ["f4"]),
        (MomentumSGD(0.1, clipNorm=1.0), ["f4", "f2"]),
        (Adam(0.1, decay=0.2), ["f8"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else " ".join(value),
)
def test_parameters_are_updated_at_once(rng, optimizer, dtypes):
    slots = slotsOf(rng, *dtypes)
    formulas = optimizer.formulas(bool(optimizer.decay))
    arrays = [copied(arraysOf(optimizer, slot)) for slot in slots]
    for _ in range(2):
        numbers = [optimizer.numbers(slot, 0.1, 0.7) for slot in slots]
        found = launches(formulas, arrays, [{name: np.array(x) for name, x in each.items()} for each in numbers])
        assert len(found) == len(dtypes)
        runAll(found)
        for slot in slots:
            optimizer.advance(slot, 0.1, 0.7)
    for slot, each in zip(slots, arrays):
        for name, wanted in arraysOf(optimizer, slot).items():
            tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}[wanted.dtype.name]
            np.testing.assert_allclose(each[name], wanted, tolerance, tolerance, err_msg=name)


def test_weights_of_16_bits_are_written_beside_their_masters(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    optimizer, slots = AdamW(0.1), slotsOf(rng, "f4")
    arrays = [arraysOf(optimizer, slot) for slot in slots]
    arrays = [{**each, "grad": each["grad"].astype(bfloat16)} for each in arrays]
    copies = [{"param": np.zeros_like(each["grad"])} for each in arrays]
    numbers = [
        {name: x if name == "decay" else np.array(x, "f4") for name, x in optimizer.numbers(slots[0], 0.1).items()}
    ]
    before = copied(arrays[4])
    skip = np.array(1)
    runAll(launches(optimizer.formulas(True), arrays, numbers * len(arrays), copies, skip))
    np.testing.assert_array_equal(arrays[4]["param"], before["param"])
    assert not copies[4]["param"].any()
    skip[...] = 0
    runAll(launches(optimizer.formulas(True), arrays, numbers * len(arrays), copies, skip))
    assert (arrays[4]["param"] != before["param"]).all()
    for each, copy in zip(arrays, copies):
        np.testing.assert_array_equal(copy["param"], each["param"].astype(bfloat16))
    names = {name: float(x) for name, x in numbers[0].items()}
    for name, formula in optimizer.formulas(True).items():
        values = {**before, "grad": before["grad"].astype("f4"), **names}
        wanted = formula(**{each: values[each] for each in formula.names})
        np.testing.assert_allclose(arrays[4][name], wanted, 1e-5, 1e-6)


def test_arrays_that_do_not_lie_alike_are_left_to_others(rng):
    formulas = {"param": Formula("param - grad")}
    x = rng.standard_normal((4, 6)).astype("f4")
    for param, grad in ((x, x.T.copy().T), (x[:, ::2], x[:, ::2]), (x, x.astype("i4")), (x, x[:2])):
        assert launches(formulas, [{"param": param, "grad": grad}], [{}]) is NotImplemented
    assert launches(formulas, [{"param": x[:0], "grad": x[:0]}], [{}]) == []
