"""Trainer(repeatable="threads"): eager passes, too, end with the same bits for any number of BLAS threads."""

import hashlib

import numpy as np
import pytest

from puregraph import Adam, CrossEntropy, DataError, Trainer, models, seed
from puregraph.core import device
from puregraph.ops.native.threads import blas, numthreads, pool
from puregraph.ops.native.threads.blas import openBlas

pytestmark = pytest.mark.usefixtures("quickly")
needsOpenBlas = pytest.mark.skipif(openBlas() is None, reason="numpy with another BLAS")


@pytest.fixture
def count():
    """A function that sets the threads of the BLAS and of the pool; what there was is there afterwards."""
    before, wanted, threads = openBlas().read(), list(numthreads.WANTED), pool.threads()

    def change(number):
        openBlas().set(number)
        pool.setThreads(number)

    yield change
    openBlas().set(before)
    pool.setThreads(threads)
    numthreads.WANTED[:] = wanted


def lenetTrainer(**options):
    """A trainer of a network that always begins with the same weights."""
    seed(0)
    return Trainer(models.lenet(), CrossEntropy(), Adam(1e-3), batchsize=16, progress="none", **options)


def pictures(count=48):
    rng = np.random.default_rng(1)
    return rng.standard_normal((count, 1, 28, 28), np.float32), rng.integers(0, 10, count)


def hashOf(net):
    return hashlib.sha256(b"".join(p.data.tobytes() for p in net.params.values())).hexdigest()


@needsOpenBlas
def test_eager_training_ends_with_one_hash_for_any_number_of_blas_threads(count):
    found = set()
    for number in (1, 2, 4):
        count(number)
        trainer = lenetTrainer(compile=False, repeatable="threads")
        trainer.train(*pictures())
        found.add(hashOf(trainer.net))
    assert len(found) == 1


@needsOpenBlas
def test_the_blas_has_one_thread_within_a_run_and_its_own_number_afterwards(count):
    count(2)
    before, seen = openBlas().read(), []
    trainer = lenetTrainer(repeatable="threads", callbacks=[lambda trainer: seen.append(openBlas().read())])
    trainer.train(*pictures(16))
    assert seen == [1]
    assert openBlas().read() == before
    with pytest.raises(DataError):
        trainer.train(*pictures(16), epochs="many")
    assert openBlas().read() == before


@needsOpenBlas
def test_runs_that_overlap_leave_the_blas_with_the_number_of_threads_it_had(count):
    count(2)
    before, one, two = openBlas().read(), blas.oneThread(openBlas()), blas.oneThread(openBlas())
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert openBlas().read() == 1
    two.__exit__(None, None, None)
    assert openBlas().read() == before


@needsOpenBlas
def test_a_run_goes_on_with_another_number_of_threads_as_if_it_had_not_stopped(count, tmp_path):
    count(1)
    trainer = lenetTrainer()
    trainer.train(*pictures(), epochs=2)
    first = lenetTrainer()
    first.train(*pictures())
    first.save(tmp_path / "run.pg")
    count(3)
    second = lenetTrainer().resume(tmp_path / "run.pg")
    second.train(*pictures())
    assert hashOf(second.net) == hashOf(trainer.net)


def test_what_cannot_be_repeated_is_refused(monkeypatch):
    with pytest.raises(DataError, match='repeatable: expected None or "threads", got True'):
        lenetTrainer(repeatable=True)
    monkeypatch.setattr("puregraph.train.prechecks.openBlas", lambda: None)
    with pytest.raises(DataError, match="expected numpy with OpenBLAS, got another BLAS.*MKL_NUM_THREADS"):
        lenetTrainer(repeatable="threads")
    monkeypatch.setattr(device, "name", lambda: "cuda")
    with pytest.raises(DataError, match="expected the CPU, got a GPU; set PUREGRAPH_DEVICE=cpu"):
        lenetTrainer(repeatable="threads")
