"""Every network with every `shard`, clipped, accumulated, with a smaller last batch: on 1 to 8 processes, and resumed."""

import json
from functools import cache

import pytest
import recipes
from launched import launched

pytestmark = [
    pytest.mark.filterwarnings("ignore:accumulate=2"),  # which BatchNorm does not see as one batch
    pytest.mark.timeout(3600),
]

SHARDS = (None, "state", "gradients", "parameters")
STAGES = ((2, None), (4, None), (2, "state"), (4, "gradients"), (2, "parameters"))
PRODUCT = """
import json, recipes
from pathlib import Path
from puregraph.distributed import world
ways = [dict(shard=shard) for shard in {shards!r}]
ways += [dict(stages=stages, shard=shard) for stages, shard in {stages!r}]
found = dict((name, [recipes.hashOf(recipes.trained(name, **way)) for way in ways]) for name in {names!r})
Path(f"found-{{world().rank}}").write_text(json.dumps(found))
"""
SAVED = """
import recipes
from puregraph.train import FunctionCallback
for shard in {shards!r}:
    def save(trainer, shard=shard):
        if trainer.step in {steps!r}:
            trainer.save(f"{{name}}-{{shard}}-{{trainer.step}}.h5")
    for name in {names!r}:
        recipes.trained(name, shard=shard, callbacks=[FunctionCallback(save)])
"""
RESUMED = """
import json, recipes
from pathlib import Path
from puregraph.distributed import world
found = []
for path in sorted(Path().glob("*-*.h5")):
    name, shard, _ = path.stem.split("-")
    trainer, data, target = recipes.PRODUCT[name](shard=None if shard == "None" else shard)
    found.append([name, recipes.hashOf(recipes.trained(name, trainer.resume(path), data, target))])
Path(f"found-{world().rank}").write_text(json.dumps(found))
"""


def rowsOf(done, folder):
    """What each process has found, in a file of its own: lines as long as these may be mixed where all print."""
    done.check_returncode()
    paths = list(folder.glob("found-*"))
    rows = [json.loads(path.read_text()) for path in paths]
    for path in paths:
        path.unlink()
    return rows


@cache
def alone(name):
    """The hash of one process that nobody has launched."""
    return recipes.hashOf(recipes.trained(name))


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_all_networks_end_alike_with_every_shard_and_in_stages_on_any_number_of_processes(count, tmp_path):
    text = PRODUCT.format(shards=SHARDS, stages=STAGES, names=tuple(recipes.PRODUCT))
    found = rowsOf(launched(count, tmp_path, text, timeout=1800), tmp_path)
    assert found == [{name: [alone(name)] * (len(SHARDS) + len(STAGES)) for name in recipes.PRODUCT}] * count


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("steps", "names", "shards", "counts"),
    [
        pytest.param((13,), ("plain",), ("parameters",), (3,), marks=pytest.mark.slow),
        pytest.param((1, 13, 29), tuple(recipes.PRODUCT), SHARDS, (1, 3, 8), marks=pytest.mark.slow),
    ],
)
def test_what_four_processes_have_saved_any_number_ends_as_if_it_had_not_stopped(
    steps, names, shards, counts, tmp_path
):
    launched(4, tmp_path, SAVED.format(shards=shards, steps=steps, names=names), timeout=1800).check_returncode()
    for count in counts:
        rows = rowsOf(launched(count, tmp_path, RESUMED, timeout=1800), tmp_path)
        assert len(rows) == count
        for found in rows:
            assert len(found) == len(steps) * len(names) * len(shards)
            assert all(hash == alone(name) for name, hash in found)
