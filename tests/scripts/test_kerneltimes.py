"""What the script says of kernels that a GPU ran: their time, and the bytes that those of this library moved."""

import sys
from collections import Counter

from source import ROOT

if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import kerneltimes
import roofline


def test_kernels_are_added_by_their_names_the_longest_first():
    head, *rows, total = kerneltimes.table([("add", 1e-6), ("gemm", 9e-6), ("add", 3e-6)], {"add": 8_000_000})
    assert [row.split() for row in rows] == [["9", "1", "gemm"], ["4", "2", "0.01", "2.00", "add"]]
    assert total.split() == ["13", "3"]


def test_the_bytes_of_a_step_are_those_of_its_kernels_and_of_the_calls_of_libraries():
    plan = roofline.traffic.planOf("mlp")
    own, rows = kerneltimes.moved(plan), list(roofline.launches(plan))
    products = sum(size for _, name, size, *_ in rows if name.startswith("product "))
    assert own["update"] > 0 and sum(own.values()) + products == sum(
        size for path, _, size, *_ in rows if path != "copies"
    )
    assert isinstance(own, Counter) and "product" not in own
