"""TensorBoard: what its event files hold, read as they stand on the disk."""

import copy
import importlib.util
import pickle
import struct

import numpy as np
import pytest

from puregraph import SGD, Accuracy, ArgumentError, CrossEntropy, DataError, Linear, TensorBoard, Trainer

HASBOARD = importlib.util.find_spec("tensorboardX") is not None
X = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)
needsBoard = pytest.mark.skipif(not HASBOARD, reason="tensorboardX is not installed")


def trainerWith(folder, **options):
    board = TensorBoard(folder, **options.pop("board", {}))
    return Trainer(
        Linear(3, 3, name="fc"),
        CrossEntropy(),
        SGD(0.5),
        8,
        [Accuracy()],
        callbacks=[board],
        progress="none",
        **options,
    )


def events(folder):
    """(tag, kind, value, step) of everything in the event files of a folder: records with their lengths."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack("<Q", data[at : at + 8])
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                found.append((value.tag, kind, getattr(value, kind), event.step))
    return found


@needsBoard
def test_figures_of_training_and_validation_are_written_at_the_step_of_each_epoch(tmp_path):
    trainer = trainerWith(tmp_path)
    history = trainer.train(X, X.argmax(1), epochs=2, validation=0.2)
    found = {(tag, step): value for tag, kind, value, step in events(tmp_path) if kind == "simple_value"}
    assert {tag for tag, _ in found} == {
        f"{base}/{part}" for base in ("loss", "accuracy") for part in ("training", "validation")
    } | {"rate/training"}
    for row in history:
        np.testing.assert_allclose(found["loss/training", row["step"]], row["loss"], rtol=1e-6)
        np.testing.assert_allclose(found["accuracy/validation", row["step"]], row["val accuracy"], rtol=1e-6)


@needsBoard
def test_histograms_of_parameters_count_every_element_and_the_network_is_a_text(tmp_path):
    trainerWith(tmp_path).train(X, X.argmax(1))
    found = {tag: value for tag, kind, value, _ in events(tmp_path) if kind == "histo"}
    assert {"weights/fc.W", "weights/fc.b"} <= set(found) and found["weights/fc.W"].num == 9
    texts = [value for tag, kind, value, _ in events(tmp_path) if kind == "tensor"]
    assert len(texts) == 1 and b"Linear" in texts[0].string_val[0]


@needsBoard
def test_without_histograms_there_are_none_and_a_fast_run_writes_nothing(tmp_path):
    trainerWith(tmp_path / "a", board={"histograms": False}).train(X, X.argmax(1))
    assert not [tag for tag, kind, _, _ in events(tmp_path / "a") if kind == "histo"]
    trainerWith(tmp_path / "b", fastRun=True).train(X, X.argmax(1))
    assert not (tmp_path / "b").exists()


@needsBoard
def test_a_run_that_goes_on_writes_another_file_and_the_text_once(tmp_path):
    trainer = trainerWith(tmp_path)
    trainer.train(X, X.argmax(1))
    trainer.train(X, X.argmax(1))
    found = events(tmp_path)
    assert [step for tag, _, _, step in found if tag == "loss/training"] == [3, 6]
    assert len([kind for _, kind, _, _ in found if kind == "tensor"]) == 1


@needsBoard
def test_it_is_copied_and_pickled_between_runs(tmp_path):
    trainer = trainerWith(tmp_path)
    trainer.train(X, X.argmax(1))
    for twin in (copy.deepcopy(trainer.callbacks[0]), pickle.loads(pickle.dumps(trainer.callbacks[0]))):
        assert twin.folder == tmp_path


@needsBoard
def test_a_file_in_place_of_the_folder_is_refused_when_training_begins(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="TensorBoard: cannot write into .*file"):
        trainerWith(tmp_path / "file").train(X, X.argmax(1))


def test_without_tensorboardx_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"pip install puregraph\[tensorboard\]"):
        TensorBoard(tmp_path)
