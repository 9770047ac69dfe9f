"""Thousands of damaged and forged weight files: no crash, no hang, no code run, no other file opened, no wrong number."""

import functools
import re

import limited
import pytest
import spoiledweights
import test_npzfiles
import test_safetensors
import test_torchfiles
import torchfiles

MEGABYTE = 1 << 20


def check(folder, cases):
    """Read files, each (name, bytes, arrays that it must give if it is read, or None), within the limits of one."""
    folder.joinpath("secret").write_bytes(b"secret")
    inner = folder / "set"
    inner.mkdir()
    files = spoiledweights.sound(inner)
    for name, data in files.items():
        inner.joinpath(name).write_bytes(data)
        spoiledweights.read(inner / name)  # imports what it takes
    opens = [inner / name for name in [*files, *spoiledweights.SHARDS, *(name for name, _, _ in cases)]]
    isShard = re.compile(rf"open {re.escape(str(inner))}/[^/]+\.(safetensors|bin|pt|pth)")

    def write(case):
        path = inner / case[0]
        path.write_bytes(case[1])
        return path, case[2]

    def call(item):
        path, wanted = item
        found = spoiledweights.read(path)
        assert wanted is None or spoiledweights.equal(found, wanted), "numbers or names are not those that were written"

    found = limited.outcomes(call, cases, opens, write)
    wrong = []
    for (name, data, _), outcome in zip(cases, found, strict=True):
        events = [event for event in outcome.events if name != spoiledweights.INDEX or not isShard.fullmatch(event)]
        fault = limited.fault(outcome._replace(events=events), megabytes=2 * len(data) / MEGABYTE + 100)
        if fault:
            wrong.append(f"{name} of {len(data)} bytes: {fault}")
    assert not wrong, "\n".join(wrong[:20])
    return [outcome.text for outcome in found], found


@functools.cache
def proven(name, data):
    """What a file with checksums has."""
    return spoiledweights.read(data) if name in spoiledweights.PROVEN else None


@pytest.mark.parametrize("many", [240, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_give_the_right_numbers(many, tmp_path):
    (tmp_path / "sound").mkdir()
    files = spoiledweights.sound(tmp_path / "sound")
    cases = [spoiledweights.damaged(files, seed) for seed in range(many)]
    texts, found = check(tmp_path, [(name, data, proven(name, files[name])) for name, data in cases])
    print(many, "damaged:", texts.count("refused"), "refused", numbers(found))
    assert texts.count("refused") > 0.6 * many


@pytest.mark.parametrize("many", [160, pytest.param(2000, marks=pytest.mark.slow)])
def test_forged_files_are_refused_or_read_within_their_limits(many, tmp_path):
    (tmp_path / "sound").mkdir()
    files = spoiledweights.sound(tmp_path / "sound")
    cases = [(*spoiledweights.forged(files, seed), None) for seed in range(many)]
    cases += [("a.safetensors", data, None) for data, _ in test_safetensors.LIES.values()]
    cases += [("a.npz", data, None) for data, _ in test_npzfiles.lies().values()]
    for body, _ in test_torchfiles.LIES.values():
        cases += [("a.pt", torchfiles.zipped(body), None), ("older.pt", torchfiles.older(body), None)]
    assert len(cases) >= many + 150
    texts, found = check(tmp_path, cases)
    print(len(cases), "forged:", texts.count("refused"), "refused", numbers(found))
    assert texts.count("refused") > 0.6 * len(cases)


@pytest.mark.costly
def test_small_files_that_would_cost_much_are_refused_or_read_within_two_seconds_and_100_megabytes(tmp_path):
    cases = [(name, make(), None) for name, make in spoiledweights.COSTLY.items()]
    texts, _ = check(tmp_path, cases)
    assert [name for name, text in zip(spoiledweights.COSTLY, texts) if text == "refused"] == spoiledweights.REFUSED


def numbers(found):
    """The most that a file took."""
    return f"at most {max(o.seconds for o in found):.2f} s and {max(o.megabytes for o in found)} MB"
