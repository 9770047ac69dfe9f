"""Whole trainings on a GPU, as a tracer for CuPy carries them out: they learn what the CPU learns, and wait for nobody."""

import math
import threading

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator
from spread import spread

from puregraph.core import device, initial
from puregraph.core.errors import DataError, PuregraphError
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Conv2D, Dropout, Flatten, Linear, MaxPool2D, MulAddConst, Relu, Reshape
from puregraph.modules.costs import MSE, CrossEntropy
from puregraph.optimizers import EMA, LAMB, SGD, Adafactor, Adam, AdamW, MomentumSGD, MultiOptimizer, Muon
from puregraph.train import (
    MAE,
    Accuracy,
    Calculator,
    Callback,
    Checkpoint,
    Confusion,
    CsvLog,
    EarlyStop,
    Meters,
    TopK,
    Trainer,
    Validator,
)
from puregraph.train.callbacks.progress import Bar

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore:accumulate=")]
FIGURES = ("epoch", "step", "loss", "accuracy", "top3", "val loss", "val accuracy", "val top3", "rate")


def digits(rng, n=53):
    """Data like that of the digits: 64 numbers from 0 to 1, and a label of ten."""
    return rng.random((n, 64)).astype(np.float32), rng.integers(0, 10, n)


def rows():
    return Sequential(Linear(64, 12, useBias=False), BatchNorm(12), Relu(), Dropout(0.2), Linear(12, 10))


def maps():
    layers = Reshape((-1, 1, 8, 8)), Conv2D(1, 3, 3), Relu(), MaxPool2D(2), Flatten(), Linear(27, 10)
    return Sequential(*layers)


def close(got, wanted, tolerance=3e-5):
    got, wanted = np.asarray(device.toHost(got), float), np.asarray(device.toHost(wanted), float)
    assert got.shape == wanted.shape
    assert (np.isnan(got) == np.isnan(wanted)).all()
    got, wanted = np.nan_to_num(got), np.nan_to_num(wanted)
    assert np.abs(got - wanted).max(initial=0) <= tolerance * max(np.abs(wanted).max(initial=0), 1e-2)


def sameNet(far, near):
    for path, stored in {**near.params, **near.states}.items():
        there = {**far.params, **far.states}[path]
        assert device.isDeviceArray(there.data)
        close(there.data, stored.data)


def sameHistory(far, near):
    assert far.names() == near.names()
    for row, other in zip(far, near, strict=True):
        for name in row.keys() - {"seconds"}:
            assert row[name] == pytest.approx(other[name], rel=1e-4, nan_ok=True), name


def onBoth(monkeypatch, go, **faults):
    """What is done on the CPU, and then on a GPU, and its machine."""
    with device.useDevice("cpu"):
        near = go()
    cupy = useGpu(monkeypatch, **faults)
    return near, go(), cupy.machine


def trainer(make=rows, optimizer=None, **options):
    initial.seed(1)
    options = {"batchsize": 8, "metrics": [Accuracy(), TopK(3)], "progress": "none", **options}
    return Trainer(make(), CrossEntropy(), optimizer or Adam(0.01), **options)


# What is learnt --------------------------------------------------------------------------------------------------------


def cosine(step):
    """Half a wave over twelve updates."""
    return 0.5 + 0.5 * math.cos(math.pi * step / 12)


OPTIMIZERS = {
    "plain": lambda: SGD(0.1),
    "schedule": lambda: Adam(0.01, schedule=lambda step: 1 / (1 + step)),
    "clipped": lambda: MomentumSGD(0.1, clipNorm=0.3),
    "clipped by value": lambda: SGD(0.1, clipValue=0.01, decay=0.1),
    "several": lambda: MultiOptimizer({"*.b": MomentumSGD(0.1), "*": Adam(0.01, schedule=cosine)}, clipNorm=0.3),
    "looking": lambda: AdamW(0.01, onNonFinite="skip"),
    "rows and columns": lambda: Adafactor(0.05, onNonFinite="skip"),
    "orthogonal": lambda: Muon(0.01, clipNorm=0.3),
    "norms": lambda: LAMB(0.01, average=EMA(0.9)),
}


@pytest.mark.parametrize(("optimizer", "accumulate"), spread(2, OPTIMIZERS, (1, 3)))
def test_two_epochs_teach_what_they_teach_on_the_cpu(monkeypatch, rng, optimizer, accumulate):
    x, t = digits(rng)
    make = maps if optimizer == "clipped" else rows

    def go():
        found = trainer(make, OPTIMIZERS[optimizer](), accumulate=accumulate)
        found.train(x, t, epochs=2, validation=(x[:21], t[:21]))
        return found

    near, far, machine = onBoth(monkeypatch, go)
    assert machine.reads == 0
    assert machine.replays > 12
    assert set(FIGURES) < set(far.history.names())
    sameHistory(far.history, near.history)
    sameNet(far.net, near.net)
    assert far.optimizer.step == near.optimizer.step == far.step


def test_batches_of_many_sizes_are_learnt_from_compiled_or_not(monkeypatch, rng):
    sizes = [5, 7, 3, 8, 2, 6, 5]
    batches = [digits(rng, n) for n in sizes]

    def go():
        found = trainer(maps, MomentumSGD(0.1))
        found.train(lambda epoch: iter(batches[epoch:]), epochs=2, validation=batches[:3])
        return found

    near, far, machine = onBoth(monkeypatch, go)
    sameHistory(far.history, near.history)
    sameNet(far.net, near.net)


def test_without_compiling_a_gpu_learns_the_same(monkeypatch, rng):
    x, t = digits(rng)

    def go():
        found = trainer(compile=False, accumulate=2)
        found.train(x, t, epochs=2, validation=(x[:21], t[:21]))
        return found

    near, far, machine = onBoth(monkeypatch, go)
    sameHistory(far.history, near.history)
    sameNet(far.net, near.net)


def test_data_may_lie_on_the_gpu(monkeypatch, rng):
    x, t = digits(rng)

    def go(toDevice=lambda a: a):
        found = trainer()
        found.train(toDevice(x), toDevice(t), epochs=2, validation=(toDevice(x[:21]), toDevice(t[:21])))
        return found, Calculator(found.net, batchsize=20).calculate(toDevice(x))

    with device.useDevice("cpu"):
        near, wanted = go()
    cupy = useGpu(monkeypatch)
    far, got = go(device.toDevice)
    assert cupy.machine.reads == 0
    sameHistory(far.history, near.history)
    sameNet(far.net, near.net)
    assert type(got) is np.ndarray
    close(got, wanted)


def test_labels_of_floats_on_the_gpu_are_looked_at(monkeypatch, rng):
    x, t = digits(rng)
    useGpu(monkeypatch)
    found = trainer()
    found.train(device.toDevice(x), device.toDevice(t.astype(np.float32)))
    t = t + 0.5
    with pytest.raises(DataError, match="target: wanted whole numbers .labels, token ids., got float64 with "):
        found.train(device.toDevice(x), device.toDevice(t))


# Callbacks, files ------------------------------------------------------------------------------------------------------


class Telling(Callback):
    """Notes what it is told."""

    def __init__(self):
        self.told = []

    def note(self, trainer, event):
        self.told.append((event, trainer.epoch, trainer.step))

    def onTrainBegin(self, trainer):
        self.note(trainer, "train")

    def onEpochBegin(self, trainer):
        self.note(trainer, "epoch")

    def onBatchEnd(self, trainer):
        self.note(trainer, "batch")

    def onEpochEnd(self, trainer):
        self.note(trainer, f"end {trainer.history[-1]['loss']:.3f}")

    def onTrainEnd(self, trainer):
        self.note(trainer, "trained")


def test_callbacks_are_told_the_same(monkeypatch, rng, tmp_path):
    x, t = digits(rng)

    def go():
        telling, log = Telling(), CsvLog(tmp_path / f"{device.name()}.csv")
        stop = EarlyStop("val loss", patience=1, mode="max")
        found = trainer(optimizer=SGD(0.1), callbacks=[telling, stop, log])
        found.train(x, t, epochs=5, validation=(x[:21], t[:21]))
        return found, telling.told

    (near, wanted), (far, got), machine = onBoth(monkeypatch, go)
    assert got == wanted
    assert machine.reads == 0
    assert len(far.history) == len(near.history) < 5
    texts = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("cpu", "cuda")]
    assert texts[0][0] == texts[1][0] and len(texts[0]) == len(texts[1]) == 1 + len(near.history)


@pytest.mark.parametrize("every", ["epoch", 5])
def test_a_training_goes_on_from_a_file_on_either_device(monkeypatch, rng, tmp_path, every):
    x, t = digits(rng)

    def stop(found):
        if found.step == 10:
            raise KeyboardInterrupt

    def first():
        path = tmp_path / f"{device.name()}.h5"
        found = trainer(callbacks=[Checkpoint(path, every=every), stop])
        with pytest.raises(KeyboardInterrupt):
            found.train(x, t, epochs=3)
        return path

    def second(path):
        found = trainer().resume(path)
        found.train(x, t, epochs=3)
        return found

    with device.useDevice("cpu"):
        whole = trainer()
        whole.train(x, t, epochs=3)
        near = first()
    useGpu(monkeypatch)
    far = first()
    for path in (near, far):
        found = second(path)
        sameHistory(found.history, whole.history)
        sameNet(found.net, whole.net)
    with device.useDevice("cpu"):
        found = second(far)
        sameHistory(found.history, whole.history)


def test_metrics_of_every_kind_and_a_validation_alone(monkeypatch, rng):
    x, t = digits(rng)

    def go():
        initial.seed(1)
        metrics = [Accuracy(), Confusion(10), TopK(2)]
        found = Validator(maps(), CrossEntropy(), metrics, batchsize=7).validate(x, t)
        return found, metrics[1].value()

    (row, wanted), (figures, got), machine = onBoth(monkeypatch, go)
    assert machine.reads == 0
    assert figures == pytest.approx(row, rel=1e-5)
    assert got.tolist() == wanted.tolist()


# Who waits -------------------------------------------------------------------------------------------------------------


class Watching(Callback):
    """Notes what the host did after each step."""

    def __init__(self):
        self.ends = []

    def onBatchEnd(self, trainer):
        self.ends.append(len(device.arrays().machine.log))


def watched(monkeypatch, rng, late="null last", n=120, callbacks=(), **options):
    """What the host did in the second epoch of a training, step by step."""
    x, t = digits(rng, n)
    cupy = useGpu(monkeypatch, late=late)
    watching = Watching()
    found = trainer(batchsize=4, callbacks=[*callbacks, watching], **options)
    found.train(x, t, epochs=2)
    log, ends = cupy.machine.log, watching.ends[len(watching.ends) // 2 :]
    return found, cupy.machine, [log[a:b] for a, b in zip(ends, ends[1:])]


@pytest.mark.parametrize(
    ("late", "accumulate", "options"),
    [
        ("null first", 1, {}),
        ("null last", 1, {}),
        pytest.param("null last", 3, {}, marks=pytest.mark.slow),
        ("null first", 3, {"clipNorm": 1.0}),
        pytest.param("null last", 1, {"onNonFinite": "skip"}, marks=pytest.mark.slow),
        ("null first", 3, {"onNonFinite": "skip"}),
    ],
    ids=str,
)
def test_the_gpu_always_has_something_to_do(monkeypatch, rng, late, accumulate, options):
    optimizer = Adam(0.01, schedule=lambda step: 1 / (1 + step), **options)
    options = {"optimizer": optimizer, "accumulate": accumulate, "readEvery": 5}
    done = watched(monkeypatch, rng, late, 72 * accumulate, **options)
    found, machine, steps = done
    waits = [left for step in steps for what, left in step if what == "wait"]
    assert machine.reads == 0
    assert len(steps) == 17
    assert all(what in ("in", "out", "within", "graph", "wait", "pass") for step in steps for what, _ in step)
    assert waits and min(waits) >= 4, "somebody waited for a step that had just been started"


def test_costs_and_metrics_are_read_every_few_steps(monkeypatch, rng):
    read = []
    flush = Meters.flush

    def noting(self, most=None):
        read.append((self.samples // 4, most))
        flush(self, most)

    monkeypatch.setattr(Meters, "flush", noting)
    seen = []
    watched(monkeypatch, rng, callbacks=[lambda found: seen.append(found.loss)], readEvery=5)
    assert read == [(10, 5), (15, 5), (20, 5), (25, 5), (30, 5), (30, None)] * 2
    changes = [i for i in range(1, 30) if seen[i] != seen[i - 1] and np.isfinite(seen[i])]
    assert changes == [9, 14, 19, 24, 29]


def test_looking_on_makes_nobody_wait(monkeypatch, rng):
    shown = []
    bar = Bar()
    bar.begun, bar.first = 0.0, 0

    def look(found):
        assert found.speed() > 0
        shown.append((found.figures()["loss"], any("loss" in text for text in bar.tail(found))))

    found, machine, steps = watched(monkeypatch, rng, callbacks=[look], readEvery=5)
    assert min(left for step in steps for what, left in step if what == "wait") >= 4
    assert machine.reads == 0
    assert [known for _, known in shown] == ([False] * 9 + [True] * 21) * 2
    assert len({loss for loss, _ in shown if np.isfinite(loss)}) == 10


@pytest.mark.parametrize("late", ["null first", "null last"])
@pytest.mark.parametrize("little", [1 << 17, 0], ids=["little", "large"])
def test_a_validation_and_a_calculation_are_ahead_of_what_is_read(monkeypatch, rng, late, little):
    x, t = digits(rng, 160)

    def go():
        net = trainer().net
        return Calculator(net, batchsize=4).calculate(x), Validator(net, MSE(), [MAE()], batchsize=4).validate(
            x, net.evalMode()(device.toDevice(x)) * 0.5
        )

    with device.useDevice("cpu"):
        wanted, row = go()
    cupy = useGpu(monkeypatch, late=late)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.d2h.SAME_STREAM_BYTES", little)
    got, figures = go()
    waits = [left for what, left in cupy.machine.log if what == "wait"]
    assert cupy.machine.reads == 0
    assert len(waits) > 40
    assert sum(left == 0 for left in waits) <= 8, "only at the ends"
    close(got, wanted)
    assert figures == pytest.approx(row, rel=1e-5)


def test_results_on_their_way_are_not_written_over_by_the_next_step(monkeypatch, rng):
    x, t = digits(rng, 96)

    def go():
        found = trainer(callbacks=[lambda found: device.synchronize() if found.step % 3 == 0 else None])
        return found.train(x, t, epochs=2)

    monkeypatch.setattr("puregraph.compile.gpu.runtime.d2h.SAME_STREAM_BYTES", 0)
    near, far, machine = onBoth(monkeypatch, go, late="null first")
    sameHistory(far, near)


# Where batches come from ------------------------------------------------------------------------------------------------


def pictures():
    return Sequential(MulAddConst(1 / 255, -0.5), maps())


def fed(monkeypatch, rng, late, little=0, light=0, dtype=np.float32, make=maps, **options):
    """A training whose batches count as large, beside the same on the CPU; who made pinned memory, and the transfers."""
    x, t = digits(rng, 120)
    x = (x * (255 if dtype == np.uint8 else 1)).astype(dtype)

    def go():
        found = trainer(make=make, batchsize=5, optimizer=MomentumSGD(0.05), **options)
        found.train(x, t, epochs=2, validation=(x[:33], t[:33]))
        return found, Calculator(found.net, batchsize=5).calculate(x)

    monkeypatch.setattr("puregraph.data.batches.LIGHT", light)
    with device.useDevice("cpu"):
        near, wanted = go()
    cupy = useGpu(monkeypatch, late=late)
    for place in ("compile.gpu.runtime.h2d", "train.objective"):
        monkeypatch.setattr(f"puregraph.{place}.SAME_STREAM_BYTES", little)
    made, alloc = [], cupy.cuda.alloc_pinned_memory
    names = lambda size: made.append(threading.current_thread().name) or alloc(size)  # noqa: E731
    monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", names)
    far, got = go()
    sameHistory(far.history, near.history)
    sameNet(far.net, near.net)
    close(got, wanted)
    return made, cupy.machine, [p.executable.deviceInputs for p in far.objective.programs.kept.values()]


@pytest.mark.parametrize(
    ("late", "options"),
    [
        ("null first", {}),
        pytest.param("null last", {}, marks=pytest.mark.slow),
        ("null last", {"accumulate": 2}),
        ("null first", {"prefetch": 0}),
    ],
    ids=str,
)
def test_what_a_thread_makes_goes_to_the_gpu_from_where_it_is_made(monkeypatch, rng, late, options):
    made, machine, transfers = fed(monkeypatch, rng, late, dtype=np.float64, **options)
    isAhead = options.get("prefetch", 2) > 0
    assert made.count("puregraph prefetch") >= (48 if isAhead else 0)
    for each in transfers:
        data = each.offsets[each.inputs[0].number]
        for block in each.blocks:
            untouched = (block.bytes[data : data + 256] == 0xFF).all()
            assert untouched == isAhead, "the host copies each batch into pinned memory once"


@pytest.mark.parametrize("options", [{}, pytest.param({"compile": False}, marks=pytest.mark.slow)], ids=str)
def test_pictures_go_to_the_gpu_as_bytes_and_are_converted_there(monkeypatch, rng, options):
    made, machine, transfers = fed(monkeypatch, rng, "null last", dtype=np.uint8, make=pictures, **options)
    assert made.count("puregraph prefetch") >= (48 if transfers else 0)
    assert {each.inputs[0].dtype.name for each in transfers} == ({"uint8"} if not options else set())


def test_little_batches_go_with_the_numbers_in_one_transfer(monkeypatch, rng):
    made, machine, transfers = fed(monkeypatch, rng, "null last", little=1 << 17, light=1 << 18)
    assert "puregraph prefetch" not in made
    assert not any(each.isLarge for each in transfers)


@pytest.mark.parametrize("late", ["null first", "null last"])
def test_a_transfer_is_started_before_the_step_before_is_done(monkeypatch, rng, late):
    monkeypatch.setattr("puregraph.compile.gpu.runtime.h2d.SAME_STREAM_BYTES", 0)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.h2d.SMALL_COPY_BLOCKS", 2)
    found, machine, steps = watched(monkeypatch, rng, late)
    for step in steps[3:]:
        kinds = [what for what, _ in step]
        assert kinds.index("in") < kinds.index("graph")
        assert [left for what, left in step if what == "in"][0] >= 2, "what is sent waits for steps that are not done"
    assert min(left for step in steps[3:] for what, left in step if what == "wait") >= 1


# What is not finite ----------------------------------------------------------------------------------------------------


class Stubborn(SGD):
    """Updates in a way of its own."""

    def advance(self, slot, rate, shrink=1.0):
        super().advance(slot, rate / 2, shrink)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_optimizer_of_ones_own_learns_nothing_from_a_cost_that_is_not_finite(monkeypatch, rng, accumulate):
    x, t = digits(rng, 96)
    x[45] = np.inf

    def go():
        found = trainer(optimizer=Stubborn(0.1), batchsize=4, shuffle=False, accumulate=accumulate)
        with pytest.raises(PuregraphError, match="epoch 1, batch 12: the cost is nan"):
            found.train(x, t)
        return found

    near, far, machine = onBoth(monkeypatch, go)
    assert near.optimizer.step == far.optimizer.step == 11 // accumulate
    for path, param in far.net.params.items():
        close(param.data, near.net.params[path].data)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    ("wrong", "options"),
    [
        (0, {}),
        (83, {}),
        pytest.param(159, {}, marks=pytest.mark.slow),
        pytest.param(83, {"accumulate": 2}, marks=pytest.mark.slow),
        (159, {"accumulate": 2}),
        (83, {"compile": False, "accumulate": 2}),
    ],
    ids=str,
)
def test_a_cost_that_is_not_finite_is_named_and_nothing_is_learnt_from_it(monkeypatch, rng, options, wrong):
    x, t = digits(rng, 160)
    clean = x.copy()
    x[wrong] = np.inf

    def go():
        found = trainer(batchsize=4, shuffle=False, **options)
        with pytest.raises(PuregraphError) as caught:
            found.train(x, t, epochs=2)
        net = {path: np.array(device.toHost(stored.data)) for path, stored in found.net.params.items()}
        step = found.optimizer.step
        found.train(clean, t)
        return [str(caught.value), *getattr(caught.value, "__notes__", [])], net, step, found

    near, far, machine = onBoth(monkeypatch, go)
    assert far[0] == near[0]
    assert f"epoch 1, batch {wrong // 4 + 1}: the cost is nan" in far[0][0]
    assert far[2] == near[2] == wrong // 4 // options.get("accumulate", 1)
    for path, values in far[1].items():
        close(values, near[1][path])
    sameNet(far[3].net, near[3].net)
    sameHistory(far[3].history, near[3].history)


class Steep(Pointwise):
    """A root near 0, where its slope has no end."""

    formula = "where(abs(x) < 1e-20, sqrt(abs(x)), x)"


@pytest.mark.parametrize("wrong", [20, 39])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_gradient_that_is_not_finite_is_told_with_its_step(monkeypatch, rng, accumulate, wrong):
    x, t = digits(rng, 160)
    x[4 * wrong : 4 * wrong + 4] = 0

    def make():
        return Sequential(Linear(64, 12, useBias=False), Steep(), Linear(12, 10))

    def go():
        found = trainer(make, SGD(0.1, clipNorm=1.0), batchsize=4, shuffle=False, accumulate=accumulate)
        with pytest.raises(PuregraphError) as caught:
            found.train(x, t, epochs=2)
        return caught.value, found

    (wanted, near), (got, far), machine = onBoth(monkeypatch, go)
    update = wrong // accumulate
    batch = (update + 1) * accumulate
    assert str(wanted).startswith(f"SGD: at update {update} the gradient of 'linear.W' is not finite; try a lower")
    assert str(got).startswith(f"SGD: at update {update} a gradient is not finite; try a lower learnRate")
    for error in (wanted, got):
        assert "\n".join([str(error), *getattr(error, "__notes__", [])]).endswith(f"\nin epoch 1, batch {batch}")
    assert far.step == far.optimizer.step == near.step == near.optimizer.step == update
    sameNet(far.net, near.net)
