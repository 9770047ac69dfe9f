"""Every metric of the library is equal to the bit for one process and for several."""

import json

import metricruns
import pytest
from launched import lines
from rankpool import ran

from puregraph.train import metrics
from puregraph.train.metrics import ClassCounts, GatheredMetric, Metric, RankingMetric

FIGURES = """
import json, metricruns
print(json.dumps(metricruns.figures()))
"""


def names():
    """The metrics of the library by name."""
    bases = (ClassCounts, GatheredMetric, Metric, RankingMetric)
    return [n for n, k in vars(metrics).items() if isinstance(k, type) and issubclass(k, Metric) and k not in bases]


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)]])
def test_every_metric_of_several_processes_is_that_of_one(count, tmp_path):
    alone = json.dumps(metricruns.figures())
    seen = {key for row in json.loads(alone) for key in row}
    assert {name.lower() for name in names()} - seen == {"topk"} and "top2" in seen
    assert lines(ran(count, tmp_path, FIGURES)) == [alone] * count
