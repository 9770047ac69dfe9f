"""Every kernel that modules, models and optimizers start on a GPU compiles for the GPUs that there are, and fits them.

The programs are those of users, compiled for a GPU that is not there; their arrays are never made, so that networks
have their real sizes.
"""

import pkgutil
from functools import cache

import numpy as np
import pytest
from everymodule import CLASSES, EXAMPLES, ONNUMPY, isOpen
from launches import gate, needsNvrtc
from texts import MODELS, OPTIMIZERS, OPTIONS, SMALL, ofModel, ofModules, ofOptimizers, ofRules

from puregraph import models
from puregraph.graph.function import FunctionCall
from puregraph.ops.cuda.runtime.preprocess import digest
from puregraph.ops.kernel import registry

PARTS = 8  # in which texts are compiled, so that processes can share the work
WRITTEN = {
    "pointwise",
    "rows",
    "columns",
}  # kernels whose whole text is written from formulas, of which some stand for all
EACH = 4  # of those of modules' examples one is compiled everyday
pytestmark = [pytest.mark.costly, pytest.mark.timeout(3000)]  # a busy machine may have to compile them all
LEFT = {"Attention", "OneHot"}  # limits of attention have no CUDA yet; a depth that is an input is compared in 64 bits
STILL = {
    "FunctionCall",
    "Compress",
    "Loop",
    "NonMaxSuppression",
    "NonZero",
    "Squeeze",
    "Unique",
    "Unsqueeze",
    "Full",
    "Range",
    "Shape",
    "Size",
    "Flatten",
    "Identity",
    "Input",
    "Reshape",
    "MoveAxis",
    "SwapAxes",
    "Transpose",
    "DynamicSlice",
    "EyeLike",
    "Orthogonal",
    "StopGradient",
}  # classes that give views or constants, or have no program
OTHERWISE = {"bfloat16": "bfloat16", "float16": "float16", "converted": np.float16, "float64": np.float64}  # modes
PLAIN = ("lenet", "lstm", "resnet20")
OTHERS = [name for name in MODELS if name not in SMALL]


def launchesOf(*programs):
    return [launch for each in programs for launch in each.launches]


@cache
def everyday():
    """The launches of modules, of formulas some, of optimizers, and of networks that take little time: with libraries,
    and of some of them without, for their products and convolutions take long to compile."""
    found = launchesOf(*ofModules(False).values())
    chosen = [each for each in found if each.entry not in WRITTEN or numberOf(each) // PARTS % EACH == 0]
    nets = [each for name in SMALL for each in ofModel(name, True)]
    nets += [each for name in PLAIN for each in ofModel(name, False)]
    return chosen + launchesOf(*ofOptimizers().values(), *nets)


@cache
def whole():
    """Those, and what is left out there."""
    both = [each for libraries in (False, True) for each in ofModules(libraries).values()]
    nets = [each for name in SMALL for each in ofModel(name, False)]
    return everyday() + launchesOf(*both, *nets) + ofRules()[0]


def numberOf(launch):
    """A number that a text always has."""
    return int(digest(launch.source)[:8], 16)


def partOf(launches, part):
    """Those whose texts belong to a part."""
    return [each for each in launches if numberOf(each) % PARTS == part]


def passes(launches, record, everywhere=True):
    """Have launches pass the gate, for all architectures or where they might not fit, and tell what they take."""
    texts = {launch.source for launch in launches}
    taken = [used for _, used in gate(launches, everywhere=everywhere)]
    most = {"registers": max(used.registers for used in taken), "shared": max(each.shared for each in launches)}
    record("kernels", {"texts": len(texts), "launches": len(launches), **most})
    return texts


@needsNvrtc
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_compile_and_fit(part, record_property):
    assert len(passes(partOf(everyday(), part), record_property, everywhere=False)) > 40


@needsNvrtc
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_products_of_all_networks_compile_and_fit(part, record_property):
    assert len(passes(partOf(whole(), part), record_property)) > 40


@needsNvrtc
@pytest.mark.slow
@pytest.mark.parametrize("libraries", [False, True], ids=["own", "libraries"])
@pytest.mark.parametrize("name", OTHERS)
def test_kernels_of_large_networks_compile_and_fit(name, libraries, record_property):
    programs = ofModel(name, libraries)
    assert not any(each.left for each in programs)
    assert len(passes(launchesOf(*programs), record_property)) > 20


@needsNvrtc
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", OTHERWISE)
def test_kernels_of_other_numbers_compile_and_fit(mode, part, record_property):
    mode = OTHERWISE[mode]
    programs = [*ofModules(False, mode).values(), *ofOptimizers(mode).values()]
    programs += [each for name in SMALL for each in ofModel(name, False, mode)]
    launches = launchesOf(*programs) + ofRules(mode)[0]
    assert len(passes(partOf(launches, part), record_property)) > 40


# Nothing is left out ---------------------------------------------------------------------------------------------------


def test_every_module_starts_kernels():
    found = {cls for (cls, _, train), each in ofModules(False).items() if each.launches and train}
    assert {cls.__name__ for cls in CLASSES if cls not in found} == STILL | ONNUMPY
    left = {FunctionCall, *[cls for cls in CLASSES if cls.__name__ in ONNUMPY or isOpen(cls)]}
    count = sum(cls not in left for cls, _ in EXAMPLES)
    assert len(ofModules(False)) == 2 * count > 400


@pytest.mark.parametrize(
    ("libraries", "mode"),
    [
        (False, "float32"),
        (True, "bfloat16"),
        pytest.param(True, "float32", marks=pytest.mark.slow),
        pytest.param(False, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_every_call_becomes_launches(libraries, mode):
    programs = dict(ofModules(libraries, mode))
    programs |= {(name, i): p for name in SMALL for i, p in enumerate(ofModel(name, libraries, mode))}
    left = {key[0] if isinstance(key[0], str) else key[0].__name__ for key, each in programs.items() if each.left}
    assert left == LEFT
    assert (sum(len(each.libraries) for each in programs.values()) > 100) == libraries


def test_every_network_and_optimizer_is_among_them():
    files = {file.name for file in pkgutil.iter_modules(models.__path__)}
    assert {name if name in files else name.rstrip("0123456789") for name in MODELS} == files
    assert len(ofOptimizers()) == len(OPTIMIZERS) * len(OPTIONS) == 63


def test_every_kernel_for_a_gpu_is_among_them():
    programs = [*ofModules(False).values(), *ofOptimizers().values()]
    reached = {function for each in programs for function in each.functions} | ofRules()[1]
    known = {
        each for name, each in registry.items() if name.startswith("puregraph.") and "cuda" in each.implementations
    }
    assert {each.name for each in known - reached} == {"puregraph.ops.movement.reference.writeAt"}  # by caches
    assert len(known) >= 20


@pytest.mark.parametrize("mode", ["float32", np.float16, np.float64], ids=str)
def test_no_kernel_that_rules_call_goes_through_the_host(mode):
    launches, called, refused = ofRules(mode)
    assert {name.rpartition(".")[2] for name, _ in refused} <= {"attend", "attendGrad"}  # with limits
    assert len(called) > 15 and len(launches) > 200


@pytest.mark.parametrize(
    ("name", "entries"),
    [("lstm", {"alongTime", "backTime"}), ("dlrm", {"gather", "sumRows", "pairDots", "pairDotsGrad"})],
)
def test_cells_tables_and_pairs_are_of_16_bits_where_the_others_are(name, entries):
    launches = [each for each in ofModel(name, True, "bfloat16")[0].launches if each.entry in entries]
    assert {each.entry for each in launches} == entries
    assert all("Bfloat" in each.source for each in launches)
