"""Files in the layout of PuzzleLib, written by hand."""

import json

import h5py
import numpy as np


def module(kind, name, **scheme):
    """A module of a blueprint."""
    return {"classname": kind, "scheme": {"name": name, **scheme}}


def container(kind, name, modules, graph, **rest):
    """A container of a blueprint; its modules by name."""
    return {"classname": kind, "scheme": {"name": name}, "modules": modules, "graph": graph, **rest}


def lenet(name="net"):
    """A small network as PuzzleLib describes it."""
    modules = {
        "conv": module("Conv2D", "conv", inmaps=1, outmaps=2, size=3, stride=1, pad=0, dilation=1, wscale=1.0)
        | {"scheme": {"name": "conv", "inmaps": 1, "outmaps": 2, "size": 3, "useBias": True, "empty": False}},
        "bn": module(
            "BatchNorm2D", "bn", maps=2, epsilon=1e-5, initFactor=1.0, minFactor=0.1, sscale=0.01, affine=True
        ),
        "pool": module("MaxPool2D", "pool", size=2, stride=2, pad=0, useMask=False),
        "act": module("Activation", "act", activation="relu", slc=None, inplace=False, args=[]),
        "4": module("Flatten", "4"),
        "drop": module("Dropout", "drop", p=0.5, rng=None, slicing=None, inplace=False),
        "fc": module("Linear", "fc", insize=8, outsize=3, wscale=1.0, useBias=True, initscheme=None, transpose=False),
        "soft": module("SoftMax", "soft"),
    }
    return container("Sequential", name, modules, list(modules))


def arrays(rng):
    """Variables and attributes of that network, shaped as there."""
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    links = {
        "conv.W": draw(2, 1, 3, 3),
        "conv.b": draw(1, 2, 1, 1),
        "bn.scale": draw(1, 2, 1, 1),
        "bn.bias": draw(1, 2, 1, 1),
        "fc.W": draw(8, 3),
        "fc.b": draw(3),
    }
    return links, {"bn.mean": draw(1, 2, 1, 1), "bn.var": np.abs(draw(1, 2, 1, 1)) + 1}


def writePuzzle(path, links=None, attrs=None, blueprint="default", root="net", compress="gzip"):
    """Write `links` and `attrs` {path: array}; equal objects among the arrays are stored once."""
    if links is None:
        links, attrs = arrays(np.random.default_rng(3))
    blueprint = lenet(root) if blueprint == "default" else blueprint
    stored = []
    with h5py.File(path, "w", libver="earliest") as file:
        params, names = file.create_group("params"), file.create_group("links")
        for name, array in links.items():
            index = next((i for i, other in enumerate(stored) if other is array), len(stored))
            if index == len(stored):
                stored.append(array)
                params.create_dataset(str(index), data=array, compression=compress)
            names[f"{root}.{name}"] = index
        for name, array in (attrs or {}).items():
            file.require_group("attrs").create_dataset(f"{root}.{name}", data=array, compression=compress)
        file.create_group(f"attrs.{root}")
        if blueprint is not None:
            text = json.dumps(blueprint, indent=4, sort_keys=True)
            file.create_dataset("blueprint", (), dtype=h5py.special_dtype(vlen=str), data=text)
    return links, attrs
