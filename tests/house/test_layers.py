"""Who may import whom: arrows only point down, imports inside functions included."""

import pytest
from source import Source, imports, library, place

LAYERS = """
core
ops
graph
autodiff compile data optimizers
modules
onnx
serialize
compat distributed
draw testing train
puregraph
cli __main__ models examples
""".strip().splitlines()
RANKS = {piece: rank for rank, layer in enumerate(LAYERS) for piece in layer.split()}
SOURCES = library()
NAMES = {source.name for source in SOURCES}
FOLDERS = {source.name.split(".")[1] for source in SOURCES if source.path.name == "__init__.py" and "." in source.name}


def piece(name):
    """The file or folder that a dotted name belongs to; `puregraph` is the package's own file."""
    return name.split(".")[1] if "." in name else name


def faults(source):
    """The imports of a file that point up, or across from one folder to another."""
    importer = piece(source.name)
    for line, name in imports(source, NAMES):
        imported = piece(name)
        if RANKS[imported] > RANKS[importer]:
            yield f"{place(source, line)}: {importer} imports {imported}, which stands above it"
        if RANKS[imported] == RANKS[importer] and imported != importer and {imported, importer} <= FOLDERS:
            yield f"{place(source, line)}: {importer} imports {imported}, which stands beside it"


def test_every_file_and_folder_has_a_rank():
    missing = sorted({piece(source.name) for source in SOURCES} - set(RANKS))
    assert not missing, f"give {', '.join(missing)} a place in LAYERS"


def test_imports_only_point_down():
    found = [fault for source in SOURCES for fault in faults(source)]
    assert not found, "\n".join(found)


def withPackages(importer, name):
    """A file that another imports, with the packages whose own files this runs first."""
    packages = [name[:end] for end, letter in enumerate(name) if letter == "."][1:]
    return [*(package for package in packages if not importer.startswith(f"{package}.") and package != importer), name]


def test_no_file_imports_itself_through_others():
    links = {s.name: [one for _, name in imports(s, NAMES) for one in withPackages(s.name, name)] for s in SOURCES}
    finished = set()
    for start in links:
        path, walk = [], [(start, iter(links[start]))]
        while walk:
            name, rest = walk[-1]
            if name not in path:
                path.append(name)
            following = next((other for other in rest if other in links and other not in finished), None)
            assert following not in path, f"a cycle of imports: {' > '.join(path)} > {following}"
            if following is None:
                finished.add(path.pop())
                walk.pop()
            else:
                walk.append((following, iter(links[following])))


@pytest.mark.parametrize(
    ("importer", "text", "words"),
    [
        ("puregraph.ops.kernel", "from puregraph.graph.graph import Graph", "graph, which stands above"),
        ("puregraph.ops.kernel", "def late():\n    from puregraph.graph.graph import Graph", "ops.py:2"),
        ("puregraph.ops.kernel", "from puregraph import device, graph", "graph, which stands above"),
        ("puregraph.ops.kernel", "from ..graph import Graph", "graph, which stands above"),
        ("puregraph.graph.node", "import puregraph", "puregraph, which stands above"),
        ("puregraph.graph.node", "from puregraph import Graph", "puregraph, which stands above"),
        ("puregraph.graph.node", "from puregraph.core.errors import need\nimport numpy", None),
        ("puregraph.ops.kernel", "if TYPE_CHECKING:\n    from puregraph.graph.graph import Graph", None),
        ("puregraph.graph.graph", "from puregraph.modules.linear import Linear", "modules, which stands above"),
    ],
)
def test_the_rule_finds_what_it_should(importer, text, words):
    path = SOURCES[0].path.parent / f"{piece(importer)}.py"
    found = "\n".join(faults(Source(importer, path, text)))
    assert (words in found) if words else not found
