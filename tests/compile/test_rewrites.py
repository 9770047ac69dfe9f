"""Random graphs and equal rewrites of them agree, by themselves and compiled."""

import os
import random
import sys

import pytest
import rewrites
from graphcompare import Comparison
from graphgrammar import RULES, randomSpec
from graphshrink import script, shrunk
from graphspec import GraphSpec, NodeSpec
from natively import needsNative, unverified
from rewrites import KINDS, RewrittenComparison, rewriteFailure, rewritten

DAILY = 150
COUNT = int(os.environ.get("PUREGRAPH_TEST_GRAPHS", "20000"))
START = int(os.environ.get("PUREGRAPH_TEST_FIRST", str(DAILY)))


def specOf(seed):
    """The graph of a seed: every fourth has booleans and integers, every eighth the sizes of layers."""
    return randomSpec(seed, isDiscrete=seed % 4 == 1, isWide=seed % 8 == 2)


def check(seeds):
    """Try the graphs of some seeds; each that fails is printed at once, and the first in the end with its smallest graph."""
    failed = []
    for seed in seeds:
        if (failure := rewriteFailure(seed, specOf(seed))) is not None:
            print(f"seed {seed} fails: {failure.kind}: {failure.text}", file=sys.stderr, flush=True)
            failed.append((seed, failure))
    if failed:
        seed, failure = failed[0]
        small, failure = shrunk(specOf(seed), RULES, failure, check=lambda spec, rules: rewriteFailure(seed, spec))
        other = rewritten(seed, small)
        part = f", the part that is a graph: {other.part}" if other.part else ""
        text = f"{script(other.base, rewrites.RULESHERE)}\n\nrewritten by {other.kinds}:\n{other.spec}{part}"
        pytest.fail(f"seeds {[s for s, _ in failed]} fail; seed {seed}: {failure.text}\n\n{text}", pytrace=False)


@pytest.mark.costly
@needsNative
@pytest.mark.usefixtures("quickly")
def test_graphs_and_equal_rewrites_of_them_agree():
    check(range(DAILY))


@needsNative
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_20000_graphs_and_equal_rewrites_of_them_agree():
    """PUREGRAPH_TEST_GRAPHS sets how many, PUREGRAPH_TEST_FIRST the first seed."""
    check(range(START, START + COUNT))


@unverified
@needsNative
@pytest.mark.parametrize("seed", [1053, 7194, 7866, 10922])
def test_what_overflows_in_another_way_where_a_sum_is_ordered_otherwise_is_no_difference(quickly, seed):
    assert rewriteFailure(seed, specOf(seed)) is None


def test_every_kind_of_rewrite_is_drawn():
    assert {kind for seed in range(60) for kind in rewritten(seed, randomSpec(seed)).kinds} == set(KINDS)


@needsNative
def test_a_rewrite_that_is_off_in_the_last_bits_is_found(quickly, monkeypatch):
    monkeypatch.setattr(rewrites.Rewrite, "zero", rewrites.Rewrite.weighted)
    monkeypatch.setattr(rewrites, "INEXACT", set())
    monkeypatch.setattr(rewrites, "KINDS", ("zero",))
    assert "last bits" in {failure.kind for seed in range(6) if (failure := rewriteFailure(seed, randomSpec(seed)))}


@needsNative
def test_a_rewritten_graph_that_is_compiled_wrongly_is_found(quickly, monkeypatch):
    right = Comparison.compiled
    monkeypatch.setattr(
        RewrittenComparison,
        "compiled",
        lambda self, dtype: {k: x if x is None else x + x.dtype.type(1) for k, x in right(self, dtype).items()},
    )
    assert rewriteFailure(3, randomSpec(3)).kind == "rewritten"


def test_a_value_less_itself_stays_zero_where_its_readers_read_an_inexact_rewrite():
    lines = (NodeSpec("input", shape=(3, 4)), NodeSpec("arithmetic", 2, ((0, 0), (0, 0))))
    for seed in range(20):
        result = rewrites.Rewrite(GraphSpec(lines, ((1, 0),)), random.Random(seed))
        result.apply("weighted")
        (difference,) = (line for line in result.spec.lines if line.rule == "arithmetic")
        assert len(set(difference.parents)) == 1
