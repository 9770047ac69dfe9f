"""NodeAttributes: the attributes of a node of a file: their values, and checks by the standard's schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from puregraph.core.errors import (
    GraphError,
    quote,
)
from puregraph.onnx.modelfile import ModelFile, shortestDecimal

FLAGS = frozenset(  # attributes that are 0 or 1
    """align_corners allowzero antialias broadcast ceil_mode center_point_box count_include_pad exclude_outside
    exclusive fmod input_forget inverse is_causal keepdims largest layout linear_before_reset
    noop_with_empty_axes onesided reverse saturate select_last_index sorted storage_order training_mode transA
    transB upper""".split()
)


def typed(proto: Any, kind: str, opset: int) -> Any:
    """An attribute with the type that its operator declares, if the file has none, as the oldest files do."""
    declared = None if proto.type else (attributesOf(kind, opset) or {}).get(proto.name)
    if declared is None:
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.type = declared[0]
    return copy


def attributeOf(file: ModelFile, proto: Any) -> Any:
    """The value of an attribute: a number, text, array, a list of these, or a graph unchanged."""
    import onnx

    kinds = onnx.AttributeProto
    if proto.type == kinds.INT:
        return proto.i
    if proto.type == kinds.TENSOR:
        return file.array(proto.t)
    if proto.type == kinds.FLOAT:
        return shortestDecimal(np.float32(proto.f))
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if proto.type == kinds.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    return list(value) if proto.type in (kinds.INTS, kinds.FLOATS) else value


@cache
def attributesOf(kind: str, opset: int) -> dict[str, tuple[int, bool]] | None:
    """(type, required) of each attribute of an operator; None for an operator that the standard does not have."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(kind, opset)
    except defs.SchemaError:
        return None
    return {name: (attribute.type.value, attribute.required) for name, attribute in schema.attributes.items()}


def checkAttributes(proto: Any, opset: int) -> None:
    """Check that a node has only attributes of its operator, with their types, and all required ones.

    Raises    GraphError naming the first one that is wrong or missing
    """
    known = attributesOf(proto.op_type, opset)
    if known is None:
        return
    present = set()
    for attribute in proto.attribute:
        present.add(attribute.name)
        if attribute.name not in known:
            names = f"its attributes are {', '.join(sorted(known))}" if known else "it has none"
            raise GraphError(f"no attribute {quote(attribute.name)} in opset {opset}; {names}")
        kind = known[attribute.name][0]
        if attribute.type not in (kind, 0):
            wanted, actual = (attribute.AttributeType.Name(number) for number in (kind, attribute.type))
            raise GraphError(f"{attribute.name}: wanted {wanted.lower()}, got {actual.lower()}")
        if attribute.name in FLAGS and attribute.i not in (0, 1):
            raise GraphError(f"{attribute.name}: wanted 0 or 1, got {attribute.i}")
    missing = [name for name, (_, isNeeded) in known.items() if isNeeded and name not in present]
    if missing:
        raise GraphError(f"its required attribute {missing[0]} is missing")


@cache
def required(kind: str, opset: int) -> tuple[str, ...]:
    """The names of an operator's required inputs, "" for optional ones; the last name also stands for all further
    inputs."""
    from onnx import defs

    try:
        schema = defs.get_schema(kind, opset)
    except defs.SchemaError:
        return ()
    optional = defs.OpSchema.FormalParameterOption.Optional
    return tuple(["" if formal.option == optional else formal.name for formal in schema.inputs])


def checkRequired(names: tuple[str, ...], inputs: list[Any]) -> None:
    """Check that all required inputs are present.

    Raises    GraphError naming the first one that is left out
    """
    for i, value in enumerate([*inputs, *[None] * (len(names) - len(inputs))]):
        name = names[min(i, len(names) - 1)] if names else ""
        if value is None and name:
            raise GraphError(f"its required input {name} is missing")
