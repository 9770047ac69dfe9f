"""Thousands of damaged checkpoints: none is loaded as if it were whole, none crashes the process, none hangs."""

import json
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from processes import environment

MANY = 10_000
EACH = 2500  # mutations that a process takes
LIMIT = 200  # seconds for a piece: a hang is a failure


def outcome(kind, start, stop):
    """Refused, unchanged, loaded though changed, and anything else, over some of the mutations.

    The C library checks its heap (MALLOC_CHECK_) and fills what is freed, so that a write beyond an array ends the process.
    """
    variables = environment(MALLOC_CHECK_="3", MALLOC_PERTURB_="165")
    command = [sys.executable, str(Path(hostile.__file__).with_name("damage.py")), kind, str(start), str(stop)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=variables)
    assert done.returncode == 0, f"the process died with {done.returncode}: {done.stderr[-3000:]}"
    *details, counts = done.stdout.splitlines()
    refused, unchanged, loaded, other = (int(n) for n in counts.split())
    assert other == 0, details
    return refused, unchanged, loaded


def damage(kind, many=MANY):
    """The sums over all mutations of a kind."""
    pieces = max(1, many // EACH)
    edges = [many * i // pieces for i in range(pieces + 1)]
    return [sum(n) for n in zip(*(outcome(kind, a, b) for a, b in zip(edges, edges[1:], strict=False)), strict=True)]


@pytest.mark.parametrize("many", [800, pytest.param(MANY, marks=pytest.mark.slow)])
def test_of_many_damaged_files_none_is_loaded(many):
    refused, unchanged, loaded = damage("plain", many)
    assert loaded == 0
    assert refused + unchanged == many and refused > 0.9 * many


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("many", [160, pytest.param(25_000, marks=pytest.mark.slow)])
def test_of_many_forged_manifests_with_right_checksums_none_does_harm(many):
    refused, unchanged, loaded = damage("signed", many)
    assert refused + unchanged + loaded == many and refused > 0.5 * many


def test_a_small_file_that_would_cost_much_is_refused_within_two_seconds_and_200_megabytes():
    names = [make.__name__ for make in hostile.FILES]
    command = [sys.executable, hostile.__file__, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == names
    for name, loading, listing, seconds, megabytes in rows:
        assert seconds < 2 and megabytes < 200, f"{name} took {seconds:.1f} s and {megabytes} MB"
        sound = name in ("shortFormula", "power", "squares", "manyModules")  # only as large as they look
        assert loading.startswith("CheckpointError: cannot load") or sound and loading == "loaded", f"{name}: {loading}"
        assert listing.startswith("CheckpointError: cannot load") or listing == "loaded", f"{name}: {listing}"


@pytest.mark.slow
def test_of_ten_thousand_damaged_files_of_puzzlelib_none_does_harm():
    refused, unchanged, loaded = damage("foreign")
    assert refused + unchanged + loaded == MANY and refused > 0.1 * MANY


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("many", [200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_hdf5_whose_structure_lies_is_refused_or_gives_the_same_values(many):
    refused, unchanged, loaded = damage("forged", many)
    assert refused + unchanged + loaded == many and refused > 0.4 * many
    assert loaded <= 0.002 * many, "without checksums, an address may lead to bytes that are of nothing else; no more"
