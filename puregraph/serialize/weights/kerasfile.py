"""The weights of Keras in HDF5: `.h5` of all versions, and `.weights.h5`; of other HDF5 files the datasets by path.

    .h5          [model_weights/]LAYER with the attribute weight_names, which lists paths below it;   "conv2d/kernel"
    .weights.h5  .../layers/CLASS_N/vars/0, 1, ...; the attribute name of vars is the layer's      the stored paths

A name of `.h5` begins with the layer that the file lists it under and has no ":0" of TensorFlow.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from puregraph.core.errors import CheckpointError, quote
from puregraph.core.storage.hdffile import HdfFile
from puregraph.serialize.weights.narrowfloats import widened
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

VARIABLE = re.compile(r"(.*/)?vars/[0-9]+")


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the arrays of an HDF5 file."""
    return describe(HdfFile(file), source, file.close)


def describe(hdf: HdfFile, source: str, close: Any) -> WeightFile:
    """Describe the arrays of an HDF5 file in the layout that it has."""
    paths = list(hdf.datasets())
    root = "model_weights" if "model_weights" in hdf.names() else ""
    layers = listAttribute(hdf, root, "layer_names")
    if layers is not None:
        names = layerWeights(hdf, root, layers)
        missing = set(names.values()).difference(paths)
        if missing:
            raise CheckpointError(f"its lists weight_names have {quote(min(missing))}, but there is no such dataset")
        names |= {path: path for path in paths if root and not path.startswith(f"{root}/")}
        layered = {"layers": layers, **attributesNamed(hdf, "", root)}
        return weightFile("keras .h5", hdf, source, names, layered, close)
    isKeras = any(map(VARIABLE.fullmatch, paths))
    names = {path: path for path in sorted(paths, key=numbered)} if isKeras else {path: path for path in paths}
    about: dict[str, Any] = {"layers": storedLayers(hdf, paths)} if isKeras else hdf.attributes("")
    return weightFile("keras .weights.h5" if isKeras else "hdf5", hdf, source, names, about, close)


def weightFile(
    format: str, hdf: HdfFile, source: str, names: dict[str, str], metadata: dict[str, Any], close: Any
) -> WeightFile:
    """Describe the datasets of a file, by name; `metadata["skipped"]` names those that hold no numbers."""
    tensors, skipped = {}, []
    for name, path in names.items():
        if hdf.dtypeName(path) is None:
            skipped.append(name)
        else:
            fetched = partial(fetch, hdf, path)
            tensors[name] = StoredTensor(name, hdf.declared(path).shape, hdf.dtypeName(path) or "", fetched)
    return WeightFile(format, source, tensors, metadata | ({"skipped": skipped} if skipped else {}), close)


def fetch(hdf: HdfFile, path: str) -> np.ndarray:
    """Read a dataset in the machine's byte order."""
    with hdf.lock:
        if hdf.source.closed:
            raise CheckpointError("the file is closed; read arrays inside of the with block")
        hdf.renew()
        values, dtype = hdf.values(path), hdf.dtypeName(path)
    if dtype == "bfloat16":
        return widened(values, dtype)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


# The layout of .h5 --------------------------------------------------------------------------------------------------


def layerWeights(hdf: HdfFile, root: str, layers: list[str]) -> dict[str, str]:
    """Return the path of every weight by its name, layer by layer."""
    paths: dict[str, str] = {}
    groups = set(hdf.names(root))
    extra = ["top_level_model_weights"] if "top_level_model_weights" in groups else []
    for layer in [*layers, *extra]:
        if layer not in groups:
            raise CheckpointError(f"its list layer_names has {quote(layer)}, but there is no such group")
        group = f"{root}/{layer}" if root else layer
        for weight in listAttribute(hdf, group, "weight_names") or []:
            path, name = f"{group}/{weight}", weightName(layer, weight)
            if name in paths:
                name = f"{layer}/{weight}"
            if name in paths:
                raise CheckpointError(f"its layer {quote(layer)} lists the weight {quote(weight)} twice")
            paths[name] = path
    return paths


def weightName(layer: str, weight: str) -> str:
    """The name of a weight, which begins with its layer's."""
    name = weight.removesuffix(":0")
    before, slash, after = f"/{name}".partition(f"/{layer}/")
    return f"{layer}/{after}" if slash else f"{layer}/{name}"


def listAttribute(hdf: HdfFile, path: str, name: str) -> list[str] | None:
    """A list of texts among the attributes of a group; None where there is none.

    HDF5 limits an attribute to 64 KB: Keras divides a longer list among NAME0, NAME1, ...
    """
    attributes = hdf.attributes(path)
    if name in attributes:
        parts = [attributes[name]]
    elif f"{name}0" in attributes:
        parts = [attributes[f"{name}{i}"] for i in range(len(attributes)) if f"{name}{i}" in attributes]
    else:
        return None
    texts: list[Any] = [text for part in parts for text in (part if isinstance(part, list) else [None])]
    if not all(type(text) is str for text in texts):
        raise CheckpointError(f"the attribute {name} of {quote(path or '/')} is not a list of texts")
    return texts


def attributesNamed(hdf: HdfFile, *paths: str) -> dict[str, str]:
    """Return the versions and texts that Keras writes into the attributes of the root or the group of weights."""
    names = ("keras_version", "backend", "model_config")
    texts: dict[str, str] = {}
    for path in paths:
        attributes = hdf.attributes(path)
        texts |= {name: attributes[name] for name in names if isinstance(attributes.get(name), str)}
    return texts


# The layout of .weights.h5 ------------------------------------------------------------------------------------------


def numbered(path: str) -> list[Any]:
    """Return the key by which paths are sorted: vars/10 comes after vars/2, dense_10 after dense_2."""
    return [int(part[:18]) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", path))]


def storedLayers(hdf: HdfFile, paths: list[str]) -> dict[str, str]:
    """Return the names that layers had, by the path of their group; empty where the version of Keras kept none."""
    names: dict[str, str] = {}
    for group in dict.fromkeys(path.rpartition("/")[0] for path in paths if VARIABLE.fullmatch(path)):
        name = hdf.attributes(group).get("name")
        if isinstance(name, str):
            names[group.rpartition("/")[0]] = name
    return names
