"""Layers of Keras' table next to Keras itself: shapes ahead of data, and values in float64 with the same weights."""

import importlib
import os

import numpy as np
import pytest
from kerascases import CASES, COPIES, LEFT
from source import ROOT

from puregraph.core.counterparts import TABLE, rows

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]
HERE = sorted(one.name for row in rows(TABLE["keras.layers"]) for one in row if one.here)
ALIKE = 1e-10


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """keras.layers on PyTorch, its files in a folder of the tests."""
    pytest.importorskip("torch")
    os.environ.update(KERAS_BACKEND="torch", KERAS_HOME=str(tmp_path_factory.mktemp("keras")))
    keras = pytest.importorskip("keras", reason="install the extra puregraph[peers]")
    dtypes = importlib.import_module("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE
    before, dtypes["float64"] = dtypes["float64"], "float64"  # which many layers would compute in float32
    keras.config.set_floatx("float64")
    yield keras.layers
    keras.config.set_floatx("float32")
    dtypes["float64"] = before


def made(layers, name, options):
    """A layer in float64; a layer inside is written as its name and options."""
    options = {k: made(layers, *v) if k == "layer" else v for k, v in options.items()}
    return getattr(layers, name)(dtype="float64", **options)


def copied(name, layer, ours):
    """Put the weights of a layer into a module in float64, after random numbers into both."""
    ours.calcMode(np.float64)
    rng = np.random.default_rng(3)
    layer.set_weights([rng.random(w.shape) + 0.3 if w.dtype.kind == "f" else w for w in layer.get_weights()])
    copy = COPIES.get(name, lambda *weights: weights)
    stored = [*ours.params.values(), *(s for path, s in ours.states.items() if path.split(".")[-1] in ("mean", "var"))]
    for p, w in zip(stored, copy(*layer.get_weights()) if stored else (), strict=True):
        assert p.shape == w.shape
        p.data = w


def both(name, layer, ours, data):
    """Outputs of a layer and of a module, and of both the shapes ahead of data; None if there are none of a cell."""
    if name in ("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention"):
        isList = name in ("Attention", "AdditiveAttention")
        theirs = layer(data) if isList else layer(*data)
        shape = (
            layer.compute_output_shape([x.shape for x in data])
            if isList
            else layer.compute_output_shape(*(x.shape for x in data))
        )
        data = [*data, data[1]]
    elif name.endswith("Cell"):
        theirs, shape = layer(data[0], data[1:])[0], None
        data = [*data[1:], data[0]]
    else:
        given = data if len(data) > 1 else data[0]
        shape = layer.compute_output_shape([x.shape for x in data] if len(data) > 1 else given.shape)
        theirs = layer(given, training=False) if name.startswith("Random") else layer(given)
    return theirs, shape, data


@pytest.mark.parametrize("name", CASES)
def test_a_layer_gives_the_shapes_and_values_of_keras(layers, name):
    for options, ours, shapes in CASES[name]:
        rng = np.random.default_rng(1)
        isIndex = name in ("Embedding", "ReversibleEmbedding", "CategoryEncoding")
        data = [rng.integers(0, 5, s) if isIndex else rng.standard_normal(s) for s in shapes]
        layer = made(layers, name, options)
        both(name, layer, ours, data)  # makes the weights
        copied(name, layer, ours.evalMode())
        theirs, shape, data = both(name, layer, ours, data)
        said = ours.dataShapeFrom(*[x.shape for x in data])
        y = ours(data) if len(data) > 1 and ours.isGraph else ours(*data)
        said, y = (z[0] if isinstance(z, list) else z for z in (said, y))
        wanted = theirs.detach().cpu().numpy()
        assert shape is None or all(a in (b, None) for a, b in zip(shape, said, strict=True)), options
        assert said == wanted.shape == y.shape, options
        assert wanted.dtype == y.dtype == np.float64, options
        assert np.allclose(y, wanted, rtol=ALIKE, atol=ALIKE), (options, np.abs(y - wanted).max())


def test_every_name_is_compared_or_left_out_with_a_reason(layers):
    compared = {getattr(layers, name) for name in CASES}
    small = {name for name in HERE if name[0].islower()}  # functions of the layers
    left = [n for n in HERE if n not in LEFT and n not in small and getattr(layers, n) not in compared]
    assert not left and not set(LEFT) - set(HERE) and not set(LEFT) & set(CASES)


def test_the_page_states_how_many_are_compared():
    page = (ROOT / "docs" / "coming.md").read_text(encoding="utf-8")
    settings = sum(len(cases) for cases in CASES.values())
    assert f"{len(CASES)} of them are compared with Keras 3.15.1 in {settings} settings" in page
