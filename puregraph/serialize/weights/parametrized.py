"""Parametrized layers of PyTorch: weights that a state dict stores as the arrays that they are computed from."""

from __future__ import annotations

import re
from collections.abc import Iterable

from puregraph.core.errors import quote

PARAMETRIZE = "torch.nn.utils.parametrize.remove_parametrizations({layer}, {name!r})"
STORED = (  # names of one of the arrays, and the call that makes the weight an ordinary array again
    (re.compile(r"(?:(.*)\.)?parametrizations\.(\w+)\.original0?"), PARAMETRIZE),
    (re.compile(r"(?:(.*)\.)?(\w+)_g"), "torch.nn.utils.remove_weight_norm({layer}, {name!r})"),
    (re.compile(r"(?:(.*)\.)?(\w+)_orig"), "torch.nn.utils.remove_spectral_norm({layer}, {name!r})"),
)


def parametrizedAdvice(unused: Iterable[str]) -> str:
    """The call in PyTorch that saves plain weights, if arrays without use are those of a parametrization; else "".

    >>> print(parametrizedAdvice(["fc.weight_g", "fc.weight_v"]))
    'fc.weight_g' is of a parametrized weight (weight norm, spectral norm); in PyTorch, before state_dict(), call
      torch.nn.utils.remove_weight_norm(module.get_submodule('fc'), 'weight')
      for each such layer
    """
    names = set(unused)
    for text in names:
        for pattern, call in STORED:
            match = pattern.fullmatch(text)
            if match is None or text.endswith("_g") and f"{text[:-1]}v" not in names:
                continue
            layer = f"module.get_submodule({match[1]!r})" if match[1] else "module"
            return (
                f"{quote(text)} is of a parametrized weight (weight norm, spectral norm); in PyTorch, before "
                f"state_dict(), call\n  {call.format(layer=layer, name=match[2])}\n  for each such layer"
            )
    return ""
