"""PyTorch's own cases of its modules: values and gradients in float64, next to modules here with the same weights."""

from collections import Counter

import numpy as np
import pytest

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which torch's cases import

import torchcases  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torchcases import LEFT, MAKERS, casesOf, compare  # noqa: E402

INFOS = {info.module_cls.__name__: info for info in module_db}
EVERY = {
    "LinearCrossEntropyLoss": 40,
    "CrossEntropyLoss": 6,
    "NLLLoss": 2,
    "Transformer": 5,
    "TransformerDecoderLayer": 5,
    "TransformerEncoder": 3,
    "TransformerEncoderLayer": 3,
}  # of many cases that differ little, one of so many
COUNTS = Counter()


def chosen(name, training):
    """The cases of a name that are compared."""
    torch.manual_seed(0)
    isLeft, why = LEFT.get(name, (lambda *_: False, ""))
    if isLeft is None:
        COUNTS[why] += 1
        return
    for i, (m, inputs) in enumerate(casesOf(INFOS[name], training)):
        if i % EVERY.get(name, 1) == 0:
            isLeftOut = bool(isLeft(m, *inputs))
            COUNTS[why if isLeftOut else "compared"] += 1
            if not isLeftOut:
                yield m, inputs


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", INFOS)
def test_a_module_of_torch_has_the_values_and_gradients_of_ours(name, training):
    rng, far = np.random.default_rng(0), []
    for i, (m, inputs) in enumerate(chosen(name, training)):
        try:
            compare(m, inputs, MAKERS[name](m, *inputs), rng)
        except AssertionError as error:
            far.append(f"case {i}, {m}: {error}")
    assert not far, "\n".join(far)


def test_every_case_is_compared_or_left_out_with_a_reason(capsys):
    if not COUNTS:
        pytest.skip("runs after the comparisons of this file")
    left = [f"{count} {why}" for why, count in COUNTS.most_common() if why != "compared"]
    with capsys.disabled():
        print(
            f" {COUNTS['compared']} cases of torch.nn compared, {sum(COUNTS.values()) - COUNTS['compared']} left out: {'; '.join(left)}"
        )
    assert COUNTS["compared"] > 1000 and set(INFOS) <= {*MAKERS, *LEFT}


def test_a_difference_is_seen():
    m = torch.nn.LeakyReLU(0.25)
    x = torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True)
    twin = torchcases.Twin(torchcases.pg.LeakyRelu(0.2500001))
    with pytest.raises(AssertionError, match="output 0: differs by 1e-07 of 2"):
        compare(m, [x], twin, np.random.default_rng(0))
