"""FunctionBody: an operator defined by other operators, in the model itself or in the standard."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.core.dim import Dim


class FunctionBody(NamedTuple):
    """The nodes of a function, with the names of its inputs, outputs and attributes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]
    defaults: dict[str, Any]
    nodes: Any
    size: int = 0  # size of the nodes in bytes

    def nodesFor(self, caller: Any, absent: set[str]) -> list[Any]:
        """The nodes with the caller's attributes, without the inputs that are left out."""
        attributes = {**self.defaults, **{a.name: a for a in caller.attribute}}
        return [rewritten(node, attributes, absent) for node in self.nodes]


def rewritten(node: Any, attributes: dict[str, Any], absent: set[str]) -> Any:
    """A copy of a function's node, with references to attributes replaced by their values."""
    clone = type(node)()
    clone.CopyFrom(node)
    if absent.intersection(clone.input):
        names = ["" if name in absent else name for name in clone.input]
        del clone.input[:]
        clone.input.extend(names)
    kept = []
    for attribute in clone.attribute:
        if attribute.ref_attr_name:
            value = attributes.get(attribute.ref_attr_name)
            if value is None:
                continue
            name = attribute.name
            attribute.CopyFrom(value)
            attribute.name = name
        graphs = [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
        for graph in graphs:
            inner = [rewritten(child, attributes, absent) for child in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
        kept.append(attribute)
    copies = [type(a).FromString(a.SerializeToString()) for a in kept]
    del clone.attribute[:]
    clone.attribute.extend(copies)
    return clone


def localFunctions(model: Any) -> dict[tuple[str, str, str], FunctionBody]:
    """The functions defined in a model, by domain, name and overload."""
    bodies = {}
    for function in model.functions:
        key = (function.domain if function.domain != "ai.onnx" else "", function.name, function.overload)
        bodies[key] = bodyFrom(function)
    return bodies


def bodyFrom(function: Any) -> FunctionBody:
    """A FunctionProto as a FunctionBody."""
    opsets = {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in function.opset_import}
    defaults = {a.name: a for a in function.attribute_proto}
    size = sum(node.ByteSize() for node in function.node)
    return FunctionBody(tuple(function.input), tuple(function.output), opsets, defaults, function.node, size)


def bodyOf(domain: str, proto: Any, opset: int, inputs: list[Any]) -> FunctionBody | None:
    """The standard's function body of an operator; None if it has none.

    If there are several, the types of the inputs decide.
    """
    from onnx import FunctionProto, defs

    if not defs.has(proto.op_type, domain):
        return None
    try:
        schema: Any = defs.get_schema(proto.op_type, max(opset, 1), domain)
    except defs.SchemaError:
        return None
    data = b""
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
        version = max((v for v in versions if v <= opset), default=None)
        types = [typeProto(value) for value in inputs]
        if version is not None:
            node = type(proto)()
            node.CopyFrom(proto)
            data = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
    elif schema.has_function:
        versions = schema.function_opset_versions
        version = max((v for v in versions if v <= opset), default=None)
        if version is not None:
            data = schema.get_function_with_opset_version(version)
    if not data:
        return None
    function = data
    if isinstance(data, bytes):
        function = FunctionProto()
        function.ParseFromString(data)
    body = bodyFrom(function)
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    return body._replace(
        defaults={**defaults, **body.defaults},
        opsets={**body.opsets, domain: opset} if domain else {**body.opsets, "": opset},
    )


def isWrittenOut(domain: str, kind: str, opset: int) -> bool:
    """True if the standard has a function body for an operator, at least for some input types."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(kind, max(opset, 1), domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def typeProto(value: Any) -> Any:
    """The type of a value, as the standard writes it."""
    from onnx import TypeProto, helper

    if value is None or value.dtype is None:
        return TypeProto()
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    sizes = None if value.shape is None else [str(n) if isinstance(n, Dim) else n for n in value.shape]
    return helper.make_tensor_type_proto(kind, sizes)
