"""What the scripts say of a step that is planned without a GPU: its launches, bytes and time, and its machine code."""

import sys

import pytest
from launches import needsNvrtc
from source import ROOT

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import machinecode
import roofline

from puregraph.ops.cuda.runtime import compiler
from puregraph.ops.cuda.runtime.compiler import Resources
from puregraph.ops.cuda.runtime.launch import Launch


def test_a_step_takes_the_bytes_and_launches_of_its_plan_and_no_less_time_than_these(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["roofline.py", "mlp", "--launches"])
    roofline.main()
    *rows, total = capsys.readouterr().out.splitlines()
    plan = roofline.traffic.planOf("mlp")
    count, size = roofline.traffic.totals(roofline.traffic.trafficOf(plan))
    assert len(rows) == count and f" {count} launches" in total and f"{size / 1e3:.2f} GB" in total
    seconds = sum(row[-1] for row in roofline.launches(plan))
    assert seconds >= size * 1e6 / roofline.BANDWIDTH + count * roofline.BETWEEN


def test_a_product_takes_the_time_of_its_operations_where_they_are_many():
    rows = [row for row in roofline.launches(roofline.traffic.planOf("gpt2")) if "16384x768x50304" in row[1]]
    (row,) = rows
    assert row[3] == 2 * 16384 * 768 * 50304
    assert row[4] == pytest.approx(row[3] / 600e12 + 1.2e-6)


def test_a_cell_takes_the_time_of_its_products_and_of_its_barriers():
    rows = [row for row in roofline.launches(roofline.traffic.planOf("lstm")) if row[1] == "recurrent" and row[3] > 1e9]
    step, steps = 2 * 32 * 256 * 1024, (64, 64, 65, 65)
    assert sorted(row[3] for row in rows) == [step * 64, *(step * n for n in steps)]  # one is the product of all inputs
    cells = sorted(row[4] for row in rows)[1:]
    wanted = [n * (step / roofline.OWN + roofline.BARRIER) + roofline.BETWEEN for n in steps]
    assert cells == pytest.approx(wanted)
    assert [round(products / barrier, 1) for *_, products, barrier in roofline.cells()] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
    ]


@pytest.mark.parametrize(
    "registers, block, shared, blocks, wanted",
    [
        (32, 256, 0, 10**6, 1.0),
        (78, 256, 8192, 10**6, 0.375),  # 80 registers: three blocks
        (32, 256, 0, 264, 0.25),  # two blocks for each processor
        (32, 256, 100 << 10, 10**6, 0.25),  # two blocks have that much shared memory
        (16, 32, 0, 10**6, 0.5),  # 32 blocks at most
    ],
)
def test_occupancy_is_bounded_by_registers_shared_memory_and_the_count_of_blocks(
    registers, block, shared, blocks, wanted
):
    launch = Launch("", "columns", "columns", (), (blocks, 1, 1), (block, 1, 1), shared)
    assert machinecode.occupancy(launch, Resources(registers, 0, 0, 0)) == wanted


@needsNvrtc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", machinecode.traffic.CASES)
def test_what_is_bound_by_memory_occupies_half_of_a_gpu(name, arch):
    plan = machinecode.traffic.planOf(name)
    compiler.compileAll([launch.source for launch, *_ in machinecode.kernels(plan)], arch)
    found = [*machinecode.boundByMemory(plan, arch)]
    few = {f"{launch.entry} {launch.grid} {launch.block}: {part:.0%}" for launch, _, part in found if part < 0.5}
    assert not few and (found or name in ("mlp", "lenet", "lstm"))


@needsNvrtc
def test_the_kernels_of_a_step_are_listed_with_what_they_take(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["machinecode.py", "mlp", "--all"])
    machinecode.main()
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title == "mlp 64 float32, sm_90"
    assert any("update: update" in row for row in rows)
    for row in rows:
        count, size, registers, spilled, shared, occupancy = row.split()[:6]
        assert 8 <= int(registers) <= 255 and spilled == "0" and 0 <= int(occupancy.rstrip("%")) <= 100
