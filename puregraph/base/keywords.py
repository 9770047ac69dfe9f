"""Keywords: an argument that a class cannot be made with, refused with the one that was probably meant."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from puregraph.base.attributes import nearest
from puregraph.errors import ArgumentError

OTHERWORDS = {  # of other frameworks, and what they are called here, the first that a class has
    **dict.fromkeys(("lr", "learning_rate", "learningRate"), ("alpha", "learnRate")),
    "learnRate": ("alpha",),
    **dict.fromkeys(("bias", "use_bias"), ("useBias",)),
    **dict.fromkeys(("kernel_size", "ksize"), ("size",)),
    **dict.fromkeys(("in_features", "in_channels", "input_size"), ("insize", "inmaps")),
    **dict.fromkeys(("out_features", "out_channels", "units", "filters"), ("outsize", "outmaps", "hsize")),
    "hidden_size": ("hsize",),
    **dict.fromkeys(("num_features", "num_channels"), ("maps",)),
    **dict.fromkeys(("num_embeddings", "input_dim"), ("vocabulary",)),
    **dict.fromkeys(("embedding_dim", "output_dim"), ("embsize",)),
    "weight_decay": ("decay",),
    "momentum": ("momRate",),
    **dict.fromkeys(("max_norm", "clipnorm", "grad_clip"), ("clipNorm",)),
    **dict.fromkeys(("dim", "dims"), ("axis", "axes")),
    "keepdim": ("keepdims",),
    "padding": ("pad",),
    "strides": ("stride",),
    **dict.fromkeys(("weight", "class_weight"), ("weights",)),
    "ignore_index": ("ignoreIndex", "ignore"),
    "label_smoothing": ("smoothing",),
    "negative_slope": ("slope",),
    **dict.fromkeys(("rate", "prob"), ("p",)),
    "bidirectional": ("direction",),
    "batch_size": ("batchsize",),
}


@functools.cache
def keywords(cls: type) -> tuple[str, ...] | None:
    """The names of what a class can be made with; None where that is for its constructors to say.

    A constructor hands on what it does not know as `**options`, and itself what the next one must have.
    """
    found: list[str] = []
    for each in cls.__mro__:
        if "__init__" not in vars(each) or each is object:
            continue
        parameters = list(inspect.signature(vars(each)["__init__"]).parameters.values())[1:]
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        found += [p.name for p in named if not found or p.default is not p.empty]
        rest = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        if rest != ["options"]:
            return None if rest else tuple(dict.fromkeys(found))
    return None


def checkKeywords(cls: type, given: Any) -> None:
    """Refuse an argument that a class cannot be made with.

    Raises    ArgumentError with the name that was probably meant, and those that there are
    """
    known = keywords(cls) if given else None
    if known is None:
        return
    for name in given:
        if name not in known:
            other = next((each for each in OTHERWORDS.get(name, ()) if each in known), "") or nearest(name, known)
            hint = f"did you mean {other}? " if other else ""
            names = ", ".join(known) or "none"
            raise ArgumentError(f"{cls.__name__}: there is no argument {name}; {hint}There are {names}")


class ChecksKeywords:
    """What refuses keyword arguments that its class cannot be made with."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        checkKeywords(cls, kwargs)
        return super().__new__(cls)


class KeepsInitArgs(ChecksKeywords):
    """What keeps its constructor's arguments: `initArgs`, as (positional, by name)."""

    initArgs: tuple[tuple, dict]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls, *args, **kwargs)
        self.initArgs = (args, kwargs)
        return self
