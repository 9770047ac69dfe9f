"""A class has all that it offers from its own file: no file above it adds to it."""

import ast
import subprocess
import sys

import pytest
from source import library, place

from puregraph.core.late import Late
from puregraph.core.linkednode import LinkedNode
from puregraph.graph import Graph

ALONE = """
import sys, types, pathlib
package = types.ModuleType("puregraph")
package.__path__ = [str(pathlib.Path("puregraph").resolve())]
sys.modules["puregraph"] = package
import numpy as np
import puregraph.graph
assert not {"puregraph.modules", "puregraph.serialize.checkpoint", "puregraph.compile"} & set(sys.modules)
from puregraph.graph.pointwise import Pointwise
net = puregraph.graph.Graph(x := Pointwise(formula="3 * x").node(), x)
net(np.ones((2, 2)))
net.backward(np.ones((2, 2)))
print(net.grad.sum())
"""


def changes(tree):
    """Where a file sets an attribute of a class that it does not define, outside any function."""
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        for each in ast.walk(node) if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ():
            targets = each.targets if isinstance(each, ast.Assign) else []
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "setattr":
                targets = [ast.Attribute(each.args[0], "")]
            for target in targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    if target.value.id[0].isupper() and not target.value.id.isupper() and target.value.id not in own:
                        yield each.lineno


def test_no_file_changes_a_class_of_another():
    found = [place(source, line) for source in library() for line in changes(source.tree)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["Graph.save = saveGraph", "for n in names:\n    setattr(Node, n, f)", "Node.__iter__ = None"]
)
def test_the_rule_finds_what_changes_a_class(text):
    assert list(changes(ast.parse(text)))


def late():
    """Every attribute that is found at its first use, as its class declares it."""
    code = (
        "from puregraph.core.late import Late\nimport puregraph.graph.graph, puregraph.core.linkednode\n"
        "for c in (puregraph.graph.graph.Graph, puregraph.core.linkednode.LinkedNode):\n"
        "    for name, value in vars(c).items():\n"
        "        if isinstance(value, Late): print(c.__name__, name, value.module, value.name)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in found.splitlines()]


def test_what_is_found_late_is_there():
    rows = late()
    assert {"save", "load", "compile", "backwardType", "__add__", "__getitem__"} <= {row[1] for row in rows}
    for owner, attribute, module, name in rows:
        getattr({"Graph": Graph, "LinkedNode": LinkedNode}[owner], attribute)
        assert getattr(sys.modules[module], name)
        assert not isinstance(vars({"Graph": Graph, "LinkedNode": LinkedNode}[owner])[attribute], Late)


def test_graphs_alone_can_go_backward():
    found = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert found.stdout == "12.0\n", found.stderr
