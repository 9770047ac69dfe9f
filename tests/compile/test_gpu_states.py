"""States on a GPU: those that no reduction can store are updated together, and none where a step is left out."""

import numpy as np
from fakecupy import useGpu
from gpunets import close, images, residual, trained
from launches import needsEmulator

from puregraph.core import device
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Linear, Relu
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.optimizers import SGD, Adam

pytestmark = [needsEmulator]


def statesOf(net):
    return {name: np.array(device.toHost(state.data)) for name, state in net.states.items()}


def onBoth(monkeypatch, make, batches, optimizer, **options):
    """The program and the graph on the GPU, after a step for each batch; all states are those of the CPU."""
    with device.useDevice("cpu"):
        _, near, _ = trained(make, batches, optimizer(), **options)
        wanted = statesOf(near)
    useGpu(monkeypatch)
    program, far, _ = trained(make, batches, optimizer(), **options)
    for name, state in statesOf(far).items():
        assert state.dtype == wanted[name].dtype
        close(state, wanted[name])
    return program, far


def works(program):
    """The launches and library calls of a program."""
    calls = [call for call in program.executable.schedule.calls if call.kind.isNative]
    return [task.what for call in calls for task in call.function.works]


def updates(program):
    """How many launches update parameters or states."""
    return [work.entry for work in works(program) if isinstance(work, Launch)].count("update")


def test_counters_of_all_normalisations_are_one_launch_and_no_copies(monkeypatch, rng):
    program, net = onBoth(monkeypatch, residual, images(rng, 3, 3, 6, 6), SGD)
    assert [int(v) for name, v in statesOf(net).items() if name.endswith("count")] == [3, 3, 3]
    assert not program.executable.plan.copies
    assert updates(program) == 2  # of parameters and of counters
    assert not any(work.name == "x0 + 1.0" for work in works(program))


def test_states_of_a_step_that_is_left_out_stay_and_are_chosen_in_few_launches(monkeypatch, rng):
    batches = images(rng, 4, 3, 6, 6)
    batches[3][0][0, 0, 0, 0] = np.nan
    program, net = onBoth(monkeypatch, residual, batches, lambda: Adam(onNonFinite="skip"), guarded=True)
    assert [int(v) for name, v in statesOf(net).items() if name.endswith("count")] == [3, 3, 3]
    assert not program.executable.plan.copies
    assert updates(program) == 3  # the third is of floats


def test_a_counter_that_others_read_is_updated_where_they_are(monkeypatch, rng):
    def make():
        return Sequential(Linear(7, 5), BatchNorm(5, momentum=None), Relu(), BatchNorm(5, momentum=None), Linear(5, 4))

    onBoth(monkeypatch, make, images(rng, 3, 7), SGD)
