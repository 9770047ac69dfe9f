"""The table of foreign names: complete, made on its right side, and written to docs/coming.md as it is."""

import inspect
import sys

import numpy as np
import pytest
from foreignnames import KERAS, PUZZLELIB
from source import ROOT

import puregraph
import puregraph.data
from puregraph import block
from puregraph.core.counterparts import TABLE, counterparts, rows

if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import coming

EVERY = {title: {one.name: one for row in rows(text) for one in row} for title, text in TABLE.items()}
HERE = sorted({one.here for one in counterparts().values() if one.here})
BARE = {  # arguments of what has no examples
    "Step": (10,),
    "MultiStep": ([10, 20],),
    "Exponential": (0.9,),
    "Hold": (0.5,),
    "WarmUp": (10,),
    "CosineRestarts": (10,),
    "Cyclic": (10,),
    "Chain": ((puregraph.WarmUp(10), 10), puregraph.Cosine()),
    "SWA": (10,),
    **dict.fromkeys(("Confusion", "MeanIoU", "Kappa", "Matthews", "DiceScore"), (3,)),
    "Calculator": (puregraph.Relu(),),
    "Validator": (puregraph.Relu(), puregraph.MSE()),
    "Trainer": (puregraph.Linear(2, 2), puregraph.MSE(), puregraph.SGD()),
    "ReduceOnPlateau": (),
    "CostSum": ({"a": puregraph.MSE()},),
    "MultiOptimizer": ({"*": puregraph.SGD()},),
    "Checkpoint": ("best.h5",),
    "CsvLog": ("run.csv",),
    "Param": ((3,),),
    "State": ((3,),),
    "LoRA": (puregraph.Linear(8, 8).W,),
    **dict.fromkeys(("SpectralNorm", "WeightNorm", "Orthogonal"), (puregraph.Linear(4, 3).W,)),
    "Graph": (puregraph.Input(name="x").node(),) * 2,
    **dict.fromkeys(("Parallel", "Sequential"), (puregraph.Relu(),)),
    "Optimizer": (0.1,),
    "RecurrentLayers": ("LSTM", 4, 8),
    "ConvLSTM": (2, 3, (3, 3)),
    "MultiHeadAttention": (8, 2),
    "AdditiveAttention": (8,),
    "SeparableConv": (3, 4, (3, 3)),
    "RepeatVector": (3,),
    "TimeDistributed": (puregraph.Relu(),),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), (4, 8)),
    **dict.fromkeys(("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"), (8, 2)),
    **dict.fromkeys(("TransformerEncoder", "TransformerDecoder"), (2, 8, 2)),
}
CALLED = {"findRate", "load", "quantise", "seed"}  # functions that act on something
BASES = {"Function", "Module", "Cost", "Optimizer", "Metric", "ShapeError"}


@pytest.mark.parametrize("here", HERE)
def test_the_right_side_can_be_made(here):
    space = {**vars(puregraph), "np": np, "puregraph": puregraph, "x": puregraph.autodiff.Variable(np.eye(3))}
    if not here.isidentifier():
        assert eval(here, space | {"images": np.zeros((4, 3, 9, 9), "f4"), "target": np.zeros(4, int)}) is not None
        return
    assert here in puregraph.__all__ or here in block.__all__
    made = getattr(puregraph, here)
    if here in BASES or here in CALLED:
        assert callable(made)
    elif here in BARE:
        assert made(*BARE[here]) is not None
    else:
        example = next(iter(made.examples()), None) if hasattr(made, "examples") else None
        assert (example[0] if example else made()) is not None


def namesOf(module):
    """The public names of a module, other modules left out."""
    return {n for n in dir(module) if not n.startswith("_") and not inspect.ismodule(getattr(module, n))}


@pytest.mark.peers
def test_no_name_of_pytorch_is_missing():
    nn = pytest.importorskip("torch").nn
    from torch import optim

    for title, module in (("torch.nn", nn), ("torch.nn.functional", nn.functional), ("torch.optim", optim)):
        assert namesOf(module) <= EVERY[title].keys()
    schedules = {n for n in namesOf(optim.lr_scheduler) if inspect.isclass(getattr(optim.lr_scheduler, n))}
    own = {n for n in schedules if getattr(optim.lr_scheduler, n).__module__ == optim.lr_scheduler.__name__}
    assert own <= EVERY["torch.optim"].keys()


@pytest.mark.peers
def test_most_layers_of_pytorch_are_here():
    nn = pytest.importorskip("torch").nn
    bases = {"Module", "Container", "RNNBase", "RNNCellBase", "ModuleList", "ModuleDict", "DataParallel"}
    bases |= {"ParameterList", "ParameterDict", "Sequential"}
    layers = {
        n for n in namesOf(nn) if inspect.isclass(getattr(nn, n)) and issubclass(getattr(nn, n), nn.Module)
    } - bases
    here = {n for n in layers if EVERY["torch.nn"][n].here}
    assert len(layers) >= 140 and len(here) >= len(layers) - 8, sorted(layers - here)


@pytest.mark.parametrize("package", KERAS)
def test_no_name_of_keras_is_missing(package):
    assert set(KERAS[package].split()) == EVERY[f"keras.{package}"].keys()


@pytest.mark.parametrize("package", PUZZLELIB)
def test_no_name_of_puzzlelib_is_missing(package):
    assert set(PUZZLELIB[package].split()) <= EVERY[f"PuzzleLib.{package}"].keys()


def test_names_without_a_counterpart_are_not_here_under_their_own_name():
    others = {
        "CosineSimilarity",
        "Hinge",
        "KLDivergence",
        "Poisson",
        "SquaredHinge",
    }  # metrics there, other things here
    others |= {"serialize"}  # a function there, a package here
    wrong = [
        name for table in EVERY.values() for name, one in table.items() if not one.here and hasattr(puregraph, name)
    ]
    assert set(wrong) <= others


def test_no_name_stands_twice_in_a_package():
    for title, text in TABLE.items():
        assert len(EVERY[title]) == sum(len(row) for row in rows(text)), title


TWINS = {  # expressions, next to what they stand for
    "Hardtanh": lambda nn: nn.Hardtanh(),
    "ReflectionPad2d": lambda nn: nn.ReflectionPad2d(1),
    "ReplicationPad2d": lambda nn: nn.ReplicationPad2d(1),
    "CircularPad2d": lambda nn: nn.CircularPad2d(1),
    "Upsample": lambda nn: nn.Upsample(scale_factor=2),
    "UpsamplingBilinear2d": lambda nn: nn.UpsamplingBilinear2d(scale_factor=2),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", TWINS)
def test_an_expression_computes_what_the_layer_there_does(name):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    made = eval(EVERY["torch.nn"][name].here, vars(puregraph).copy())
    np.testing.assert_allclose(made(x), TWINS[name](torch.nn)(torch.tensor(x)).numpy(), 1e-12, 1e-12)


def test_the_page_is_current():
    assert coming.PAGE.read_text(encoding="utf-8") == coming.page(), "run: python scripts/coming.py"
