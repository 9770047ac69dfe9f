"""Data: splitting, digits, IDX files, Fashion-MNIST, batches and prefetching."""

import gzip
import struct
import sys
import threading
import traceback
import tracemalloc

import h5py
import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Calculator,
    Concat,
    CrossEntropy,
    Graph,
    Input,
    Linear,
    Sequential,
    Trainer,
    Validator,
)
from puregraph.core.errors import DataError
from puregraph.data import Arrays, Prefetch, Stream, digits, fashion, readIdx, split
from puregraph.data.batches import batchesFrom, groups

CODES = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def idx(array, code="u1"):
    """The bytes of an IDX file, by hand."""
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, CODES[code], array.ndim]) + shape + array.astype(code).tobytes()


class Table:
    """Something with values and no dtype, as a DataFrame of pandas."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values


class Column(Table):
    """Something that finds rows by their label, as a Series of pandas."""

    iloc = None

    @property
    def dtype(self):
        return self.values.dtype

    def __getitem__(self, labels):
        return self.values[::-1][labels]


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


# Split --------------------------------------------------------------------------------------------------------


def test_a_split_holds_out_a_part_of_every_class(rng):
    target = np.repeat([3, 7, 9], [40, 100, 61])
    (x, t), (a, b) = split(np.arange(201), target, part=0.25, seed=1)
    assert len(b) == round(0.25 * 201) and len(t) == 201 - len(b)
    for label, size in ((3, 40), (7, 100), (9, 61)):
        assert abs(np.sum(b == label) - size / 4) < 1
    assert sorted([*x, *a]) == list(range(201))
    assert np.array_equal(target[x], t) and np.array_equal(target[a], b)
    assert np.all(np.diff(x) > 0) and np.all(np.diff(a) > 0)


def test_a_split_repeats_with_its_seed_and_changes_with_another():
    target = np.arange(60) % 3
    held = [split(np.arange(60), target, seed=seed)[1][0].tolist() for seed in (5, 5, 6)]
    assert held[0] == held[1] != held[2]


def test_a_split_without_classes_draws_from_all_samples():
    (x, t), (a, b) = split([np.arange(10), np.arange(10) * 2], np.linspace(0, 1, 10), 0.3, stratify=False)
    assert [len(part) for part in x] == [7, 7] and [len(part) for part in a] == [3, 3]
    assert np.array_equal(a[0] * 2, a[1]) and np.allclose(a[0] / 9, b) and len(t) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros(4), np.zeros(5, int)), "4 samples, target 5"),
        ((np.zeros(4), np.zeros(4)), "stratify: wanted a target of one whole number"),
        ((np.zeros(4), np.zeros(4, int), 1.0), "part: wanted"),
        ((np.zeros(4), np.zeros(4, int), 0.01), "part: wanted"),
        ((np.zeros(0), np.zeros(0, int)), "at least one sample"),
        ((np.zeros(4), None), "data alone"),
        (({"a": np.zeros(4)},), "data alone; of a table the target is one of its columns"),
    ],
)
def test_a_split_that_cannot_be_made_says_why(arguments, words):
    with pytest.raises(DataError, match=words):
        split(*arguments)


# Digits -------------------------------------------------------------------------------------------------------


def test_a_split_of_dicts_and_tables_gives_the_same_samples_as_that_of_arrays(rng):
    x, t = rng.normal(size=(40, 3)), np.arange(40) % 4
    names = np.array([f"class {k}" for k in t], object)
    (kept, labels), (held, heldLabels) = split(x, t)
    (first, _), (second, texts) = split({"x": x, "text": names}, names)
    assert np.array_equal(first["x"], kept) and np.array_equal(second["x"], held)
    assert second["text"].tolist() == texts.tolist() == [f"class {k}" for k in heldLabels]
    (_, (_, found)) = split(x, {"t": t})
    assert np.array_equal(found["t"], heldLabels) and len(labels) == 30
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": x[:, 0], "text": names})
    (rest, _), (part, _) = split(frame, frame["text"])
    assert np.array_equal(rest["x"], kept[:, 0]) and np.array_equal(part["x"], held[:, 0])


def test_tables_with_their_rows_in_another_order_are_refused(rng):
    pandas = pytest.importorskip("pandas")
    x, t = pandas.DataFrame(rng.normal(size=(40, 3)), dtype="float32"), pandas.Series(np.arange(40) % 4)
    mixed = t.sample(frac=1, random_state=0)
    words = r"wanted rows in one order, got the same labels of rows in another; .* target.loc\[data.index\] brings them"
    trainer = Trainer(Sequential(Linear(3, 4)), CrossEntropy(), SGD(0.1), progress="none")
    for use in (
        lambda: split(x, mixed),
        lambda: trainer.train(x, mixed),
        lambda: trainer.train(x, mixed, sampleWeight=np.ones(40)),
        lambda: trainer.train(x, t, validation=(x, mixed)),
        lambda: Validator(trainer.net, CrossEntropy()).validate(x, mixed),
    ):
        with pytest.raises(DataError, match=words):
            use()
    with pytest.raises(DataError, match="target and sampleWeight: wanted rows in one order"):
        trainer.train(x, t, sampleWeight=mixed)
    trainer.train(x.loc[mixed.index], mixed)
    trainer.train(x, t.reset_index(drop=True).rename(lambda row: row + 40))  # other labels say nothing of the order


def test_a_list_of_samples_is_told_how_to_become_arrays(rng):
    samples = [(x, 1) for x in rng.normal(size=(8, 3)).astype(np.float32)]
    trainer = Trainer(Sequential(Linear(3, 4)), CrossEntropy(), SGD(0.1), progress="none")
    with pytest.raises(
        DataError, match=r"got a single number; of a list of samples, data, target = map\(np.stack, zip"
    ):
        trainer.train(samples)
    trainer.train(*map(np.stack, zip(*samples)))


@pytest.mark.parametrize("data", [{}, {"a": np.ones(8), "b": np.ones(7)}, {"a": np.ones(7)}])
def test_a_split_of_a_dict_of_other_lengths_is_refused(data):
    with pytest.raises(
        DataError,
        match="of one length, got 8 samples of 'a', 7 of 'b'|at least one array, got none|wanted one target for",
    ):
        split(data, np.zeros(8, int))


def test_the_digits_are_1797_images_split_by_class():
    pytest.importorskip("sklearn")
    (x, t), (a, b) = digits()
    assert x.shape == (1348, 1, 8, 8) and a.shape == (449, 1, 8, 8)
    assert x.dtype == np.float32 and t.dtype == np.int64
    assert x.min() == 0.0 and x.max() == 1.0
    counts = np.bincount(np.concatenate([t, b]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.all(np.abs(np.bincount(b) - counts / 4) < 1)
    assert not np.array_equal(digits(seed=1)[1][1], b)


def test_the_digits_are_those_of_scikit_learn_whoever_reads_its_file(monkeypatch):
    pytest.importorskip("sklearn")
    own = digits()
    monkeypatch.setattr(sys.modules["puregraph.data.digits"], "find_spec", lambda name: None)
    for one, two in zip(own, digits()):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_digits_without_scikit_learn_name_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install scikit-learn.*puregraph\[examples\]"):
        digits()


# IDX ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(CODES))
@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
def test_idx_files_of_each_dtype_are_read(tmp_path, rng, code, name):
    array = rng.integers(0, 100, (3, 2, 4)).astype(np.dtype(code).newbyteorder("="))
    found = readIdx(write(tmp_path / name, idx(array, code)))
    assert found.dtype == array.dtype and found.dtype.isnative and np.array_equal(found, array)
    assert found.flags.writeable


def test_idx_knows_a_gzipped_file_by_its_bytes(tmp_path):
    path = tmp_path / "zipped"
    path.write_bytes(gzip.compress(idx(np.arange(5))))
    assert readIdx(str(path)).tolist() == [0, 1, 2, 3, 4]


GOOD = idx(np.arange(12).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\0\0", "begins with 00 00"),
        (b"\0\1" + GOOD[2:], "wanted an IDX file"),
        (b"\0\0\x0a" + GOOD[3:], "wanted an IDX file"),
        (GOOD[:7], "the sizes of 2 axes"),
        (GOOD[:-1], r"shape \(3, 4\) of uint8 takes 12 bytes, got 11"),
        (GOOD + b"x", "takes 12 bytes, got more"),
        (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"x", "at most 32 axes, got 255"),
        (b"\0\0\x0e\x04" + b"\xff" * 16 + b"x", "bytes, got 1"),
    ],
)
@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
def test_a_wrong_idx_file_is_named_with_what_is_wrong(tmp_path, content, words, name):
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=words) as error:
        readIdx(path)
    assert str(path) in str(error.value)


def test_a_damaged_gzip_file_is_named(tmp_path):
    content = gzip.compress(idx(np.arange(200)), mtime=0)
    for number, broken in enumerate((content[:-9], content[:20], content[:60] + b"zzzz" + content[64:])):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(broken)
        with pytest.raises(DataError, match=f"{number}.gz: the gzipped data is cut off or damaged"):
            readIdx(path)


def test_a_gzipped_idx_file_that_would_fill_the_memory_is_refused(tmp_path):
    size = 60_000_000
    path = tmp_path / "a.gz"
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(">4BI", 0, 0, 8, 1, size))
        for _ in range(size // 10_000_000):
            file.write(bytes(10_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(
            DataError, match=r"a.gz: wanted at most 3\d,\d{3},\d{3} bytes .*; unpack the file if you trust"
        ):
            readIdx(path)
        assert tracemalloc.get_traced_memory()[1] < 45_000_000
    finally:
        tracemalloc.stop()
    assert readIdx(write(tmp_path / "zeros.gz", idx(np.zeros(60_000)))).shape == (60_000,)


def test_an_idx_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.gz: cannot be read: No such file"):
        readIdx(tmp_path / "none.gz")


# Fashion-MNIST ------------------------------------------------------------------------------------------------


@pytest.fixture
def clothes(tmp_path, rng):
    """A folder with a few images in the files of Fashion-MNIST."""
    for part, count in (("train", 6), ("t10k", 3)):
        images, labels = rng.integers(0, 256, (count, 28, 28)), np.arange(count) % 10
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", idx(images))
        write(tmp_path / f"{part}-labels-idx1-ubyte.gz", idx(labels))
    return tmp_path


def test_fashion_is_read_from_a_folder(clothes):
    (x, t), (a, b) = fashion(clothes)
    assert x.shape == (6, 1, 28, 28) and a.shape == (3, 1, 28, 28) and x.dtype == np.float32
    raw = readIdx(clothes / "train-images-idx3-ubyte.gz")
    assert np.array_equal(x[:, 0], raw / np.float32(255)) and x.max() <= 1
    assert t.tolist() == [0, 1, 2, 3, 4, 5] and b.dtype == np.int64


def test_fashion_is_found_by_the_environment_variable(clothes, monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_DATA", str(clothes))
    assert len(fashion()[0][0]) == 6
    inner = tmp_path / "all" / "fashion-mnist"
    inner.mkdir(parents=True)
    for path in clothes.glob("*.gz"):
        (inner / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("PUREGRAPH_DATA", str(inner.parent))
    assert len(fashion()[1][0]) == 3


def test_fashion_that_is_nowhere_names_package_and_variable(tmp_path):
    words = r"sudo apt-get install dataset-fashion-mnist.*PUREGRAPH_DATA"
    with pytest.raises(DataError, match=words):
        fashion(tmp_path)


def test_fashion_with_a_missing_file_names_it(clothes):
    (clothes / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="without t10k-labels-idx1-ubyte"):
        fashion(clothes)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train-images-idx3-ubyte.gz", np.zeros((6, 28, 27)), r"wanted images \(n, 28, 28\)"),
        ("train-labels-idx1-ubyte.gz", np.full(6, 10), "wanted labels"),
        ("train-labels-idx1-ubyte.gz", np.zeros((6, 1)), "wanted labels"),
        ("t10k-labels-idx1-ubyte.gz", np.zeros(4), "holds 3 images, t10k-labels-idx1-ubyte 4 labels"),
    ],
)
def test_fashion_with_a_wrong_file_names_it(clothes, name, content, words):
    write(clothes / name, idx(content))
    with pytest.raises(DataError, match=words):
        fashion(clothes)


# Batches ------------------------------------------------------------------------------------------------------


def test_batches_cover_every_sample_once_in_the_given_order(rng):
    source = Arrays(np.arange(10), np.arange(10) * 3, batchsize=4)
    order = source.order(rng)
    batches = list(source.batches(order))
    assert [b.size for b in batches] == [4, 4, 2] and source.count == 3
    assert np.concatenate([b.data[0] for b in batches]).tolist() == order.tolist()
    assert all(np.array_equal(b.data[0] * 3, b.target[0]) for b in batches)
    later = list(source.batches(order, start=2))
    assert len(later) == 1 and np.array_equal(later[0].data[0], batches[2].data[0])


def test_a_last_batch_that_would_be_smaller_is_left_out_where_that_is_wanted(rng):
    source = Arrays(np.arange(10), np.arange(10), batchsize=4, dropLast=True)
    assert source.count == 2 and source.sizes() == [4]
    order = source.order(rng)
    batches = list(source.batches(order))
    assert np.concatenate([b.data[0] for b in batches]).tolist() == order[:8].tolist()
    assert len(list(source.batches(order, start=1))) == 1 and source.few(1).count == 1
    assert Arrays(np.arange(8), None, 4, dropLast=True).count == 2
    with pytest.raises(DataError, match="dropLast: wanted at least the 4 samples of a batch, got 3"):
        Arrays(np.arange(3), None, 4, dropLast=True)


def test_batches_in_order_are_views():
    data = np.arange(8.0)
    assert all(np.shares_memory(b.data[0], data) for b in Arrays(data, None, 3).batches())


@pytest.mark.parametrize(
    ("data", "target", "words"),
    [
        (np.zeros(3), np.zeros(4), "data has 3 samples, target 4"),
        (
            [np.zeros(3), np.zeros(2)],
            np.zeros(3),
            r"wanted arrays of one length, got 3 samples of 'data\[0\]', 2 of 'data\[1\]'",
        ),
        (np.zeros((0, 5)), np.zeros(0), r"at least one sample, got data of shape \(0, 5\)"),
        (np.array([None, 1]), np.zeros(2), "data: wanted numbers, got dtype object"),
        (np.array(["a", "b"]), np.zeros(2), "wanted numbers, got dtype <U1"),
        (np.zeros(2), [np.zeros(2), np.array([1j, 2])], r"target\[1\]: wanted numbers, got dtype complex128"),
        ([[1, 2], [3]], np.zeros(2), "got values that make none"),
        (np.float32(1), np.zeros(1), "got a single number"),
        (list(np.zeros((9, 3))), np.zeros(9), r"9 arrays is 9 inputs, np.stack\(data\) makes one"),
        (np.ma.masked_array([1, 2], [True, False]), np.zeros(2), "data: wanted a plain array, got a masked array"),
        ((np.zeros(3), np.zeros(3)), None, "give both, one after the other"),
        (Table(np.zeros(3)), None, "got data alone"),
        (np.zeros(3), None, "got data alone"),
        ([np.zeros(3)], None, "got data alone"),
        (7, None, "wanted arrays, an iterable of batches, or a function, got int"),
        ("data.npy", None, "wanted arrays, an iterable of batches, or a function, got str"),
        (list(np.zeros((9, 3))), list(np.zeros((9, 1))), "a list of 9 arrays is 9 inputs"),
    ],
)
def test_what_makes_no_batches_is_refused(data, target, words):
    with pytest.raises(DataError, match=words):
        batchesFrom(data, target, 2)


@pytest.mark.parametrize("batchsize", [0, -1, 2.5, True, "8"])
def test_a_batch_holds_a_whole_number_of_samples(batchsize):
    with pytest.raises(DataError, match="batchsize: wanted a whole number of at least 1"):
        batchesFrom(np.zeros(3), np.zeros(3), batchsize)


def test_lists_of_numbers_become_arrays():
    (batch,) = batchesFrom([[1, 2], [3, 4]], [0, 1], 8).batches()
    assert batch.data[0].shape == (2, 2) and batch.target[0].tolist() == [0, 1]
    (batch,) = batchesFrom([[1, 2], [3, 4]], [np.int64(0), np.int64(1)], 8).batches()
    assert batch.target[0].tolist() == [0, 1]


@pytest.mark.parametrize("kind", [Table, Column])
def test_rows_of_tables_are_found_by_their_place_and_not_by_their_label(kind):
    values = np.arange(6.0)
    batches = batchesFrom(values, kind(values), 4).batches(np.array([5, 3, 1, 0, 2, 4]))
    assert [batch.target[0].tolist() for batch in batches] == [[5, 3, 1, 0], [2, 4]]


@pytest.mark.peers
def test_tensors_of_torch_become_arrays():
    import torch

    (batch,) = batchesFrom(torch.ones(3, 2), [torch.tensor([1, 2, 3])], 8).batches()
    assert type(batch.data[0]) is np.ndarray and batch.target[0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="data: wanted an array .* requires grad"):
        batchesFrom(torch.ones(3, requires_grad=True), np.zeros(3), 8)


def test_arrays_of_an_hdf5_file_are_read_batch_by_batch(tmp_path, rng):
    values = rng.standard_normal((10, 3))
    with h5py.File(tmp_path / "data.h5", "w") as file:
        stored = file.create_dataset("x", data=values)
        order = rng.permutation(10)
        batches = list(Arrays(stored, values, 4).batches(order))
        for batch in batches:
            assert np.array_equal(batch.data[0], batch.target[0])
        assert np.array_equal(np.concatenate([b.data[0] for b in batches]), values[order])
        (x, t), (a, b) = split(stored, np.repeat([0, 1], 5), part=0.4)
        assert len(x) == 6 and len(a) == 4 and np.isin(x[:, 0], values[:, 0]).all()


def test_a_function_gets_the_number_of_the_epoch_if_it_takes_one():
    asked = []

    def fresh(epoch):
        asked.append(epoch)
        yield np.zeros(2), np.zeros(2)

    list(Stream(fresh).batches(epoch=3))
    assert asked == [3]
    assert len(list(Stream(lambda: iter([(np.zeros(2), np.zeros(2))] * 4)).batches(start=1))) == 3


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (np.zeros(3), r"batch 2: wanted a pair \(data, target\), got array of shape \(3,\)"),
        ((np.zeros(3),) * 4, "batch 2: wanted a pair .* got tuple of 4"),
        ((np.zeros(3), np.zeros(2)), "batch 2: data has 3 samples, target 2"),
        ((np.array(["a"]), np.zeros(1)), "batch 2: data: wanted numbers"),
    ],
)
def test_a_wrong_batch_is_named(batch, words):
    with pytest.raises(DataError, match=words):
        list(Stream([(np.zeros(3), np.zeros(3)), batch]).batches())


def test_groups_end_with_what_is_left():
    assert [len(g) for g in groups(iter(range(7)), 3)] == [3, 3, 1]
    assert list(groups(iter(()), 3)) == []


# Prefetch -----------------------------------------------------------------------------------------------------


def alive(before):
    return [t for t in threading.enumerate() if t not in before]


def test_prefetched_items_keep_their_order():
    with Prefetch(iter(range(100)), 3) as items:
        assert list(items) == list(range(100))
        assert list(items) == []


def test_no_more_than_the_depth_is_made_ahead():
    made = []

    def source():
        for number in range(10):
            made.append(number)
            yield number

    with Prefetch(source(), 2) as items:
        for number in items:
            assert len(made) <= number + 4  # this one, two ready, and one that replaces the one just taken
    assert made == list(range(10))


def test_an_exception_comes_in_its_place_with_its_traceback():
    def faulty():
        yield 1
        raise KeyError("deep")

    with Prefetch(faulty()) as items:
        assert next(items) == 1
        with pytest.raises(KeyError, match="deep") as error:
            next(items)
        assert any(frame.name == "faulty" for frame in traceback.extract_tb(error.value.__traceback__))
        assert list(items) == []


def test_the_thread_ends_however_the_loop_ends():
    before = set(threading.enumerate())
    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(threading.current_thread())

    with pytest.raises(ZeroDivisionError), Prefetch(endless()) as items:
        next(items)
        raise ZeroDivisionError
    assert not alive(before)
    assert len(closed) == 1 and closed[0] is not threading.current_thread()


def test_what_is_no_iterable_fails_in_the_loop():
    before = set(threading.enumerate())
    with Prefetch(7) as items, pytest.raises(TypeError, match="not iterable"):
        next(items)
    assert not alive(before)


@pytest.mark.peers
def test_a_dataloader_of_pytorch_is_data():
    torch = pytest.importorskip("torch")
    x, y = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
    found = list(Stream(loader).batches())
    np.testing.assert_array_equal(np.concatenate([batch.data[0] for batch in found]), x.numpy())
    np.testing.assert_array_equal(np.concatenate([batch.target[0] for batch in found]), y.numpy())
    assert [batch.size for batch in found] == [16, 16, 16, 2] and Stream(loader).count == 4


def twoInputs():
    a, b = Input(name="a").node(), Input(name="b").node()
    return Graph([a, b], Linear(2, 2, name="l")(Concat(axis=1, name="c")(a, b)), name="net")


RUNS = {
    "trainer": lambda data, target: Trainer(twoInputs(), MSE(), SGD(0.1), progress="none").train(data, target),
    "validation": lambda data, target: Trainer(twoInputs(), MSE(), SGD(0.1), progress="none").train(
        [np.ones((6, 1), np.float32)] * 2, np.ones((6, 2), np.float32), validation=(data, target)
    ),
    "validator": lambda data, target: Validator(twoInputs(), MSE()).validate(data, target),
    "calculator": lambda data, target: Calculator(twoInputs()).calculate(data),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("make", [np.float32, list, np.ndarray.tolist], ids=["arrays", "lists of arrays", "lists"])
def test_inputs_of_several_lengths_are_refused_with_their_names_and_lengths(run, make):
    one, other, target = np.ones((6, 1), np.float32), np.ones((5, 1), np.float32), np.ones((6, 2), np.float32)
    with pytest.raises(DataError, match="data: wanted arrays of one length, got 6 samples of 'a', 5 of 'b'"):
        RUNS[run]({"b": make(other), "a": make(one)}, target)
    with pytest.raises(DataError, match=r"data: .* got 6 samples of 'data\[0\]', 5 of 'data\[1\]'"):
        RUNS[run]([one, other], target)


def test_inputs_by_name_may_be_lists_of_numbers():
    net, a, b = twoInputs(), [[1.0], [2.0]], [[3.0], [4.0]]
    wanted = Calculator(net).calculate([np.float32(a), np.float32(b)])
    np.testing.assert_array_equal(Calculator(net).calculate({"a": a, "b": b}), wanted)
