"""Graphs as JSON and back: equal in structure, names, settings and ties; forged ones are refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from nets import branched, same, small, tied

import puregraph as pg
from puregraph import modules
from puregraph.core import initial
from puregraph.core.dim import Dim
from puregraph.core.errors import CheckpointError, GraphWarning, PuregraphError
from puregraph.core.param import Param, State
from puregraph.core.rules import REGISTRY, registerRule
from puregraph.core.storage.jsoncodec import decode, loads
from puregraph.graph import Graph
from puregraph.graph.derived import Derived
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.parallel import Parallel
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity, Linear, Relu, Slice, costs
from puregraph.serialize import checkpoint
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint
from puregraph.serialize.classnames import FORMER, OWN, builtin, classNamed, registerModule


class Echo(Module):
    """y = x, with any arguments."""

    def __init__(self, *given, name=None, **keywords):
        super().__init__(name)
        self.given, self.keywords = given, keywords

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x

    def updateGrad(self, grad, x, y):
        return grad


TYPED = [
    lambda kind: Input(dtype=kind),
    modules.Cast,
    lambda kind: modules.Full(1, kind),
    lambda kind: modules.OneHot(3, kind),
]


class Scale(Function):
    """2 x"""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Tower(Sequential):
    """A container with a constructor of its own."""

    def __init__(self, sizes, name=None):
        super().__init__(*(Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)), name=name)
        self.sizes = tuple(sizes)
        self.head = self.items[-1]


@pytest.fixture(autouse=True)
def registered():
    for cls in (Echo, Scale, Tower):
        registerModule(cls)
    yield
    OWN.clear()


def again(graph):
    """A graph through JSON text."""
    return fromBlueprint(json.loads(json.dumps(toBlueprint(graph))))


def run(graph, *shapes):
    rng = np.random.default_rng(5)
    result = graph(*(rng.standard_normal(s).astype(graph.dtype or np.float32) for s in shapes))
    return result if isinstance(result, list) else [result]


def copyValues(source, target):
    for path, param in {**source.params, **source.states}.items():
        {**target.params, **target.states}[path].data = param.data.copy()


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (small, [(2, 1, 6, 6)]),
        (branched, [(3, 4)]),
        (tied, [(2, 3)]),
        (lambda: Parallel(Linear(2, 3), Sequential(Linear(2, 2), Relu(), name="side")), [(1, 2), (1, 2)]),
        (lambda: Tower([2, 3, 4], name="tower"), [(1, 2)]),
        (lambda: Sequential(Pointwise(formula="x * sigmoid(beta * x)", beta=1.5), Identity()), [(2,)]),
    ],
)
def test_a_graph_comes_back_equal(make, shapes):
    net = make()
    back = again(net)
    assert type(back) is type(net) and back.name == net.name and str(back) == str(net)
    assert list(back.params) == list(net.params) and list(back.states) == list(net.states)
    assert back.ties == net.ties
    copyValues(net, back)
    net.evalMode(), back.evalMode()
    for expected, got in zip(run(net, *shapes), run(back, *shapes), strict=True):
        assert expected.tobytes() == got.tobytes()
    assert json.dumps(toBlueprint(back)) == json.dumps(toBlueprint(net))


def examplesOf():
    for name, cls in sorted(builtin().items()):
        if (
            name.partition(".")[0] != "optimizers"
            and issubclass(cls, Module)
            and not issubclass(cls, Derived)  # they are parameters of others, see test_derived
            and cls not in (Graph, Sequential, Parallel)
        ):
            try:
                yield from ((f"{name}-{i}", example) for i, (example, _) in enumerate(cls.examples()))
            except NotImplementedError:
                continue


EXAMPLES = dict(examplesOf())


@pytest.mark.parametrize("label", EXAMPLES)
def test_every_exported_module_comes_back(label):
    module = EXAMPLES[label]
    isVariadic = module.inputSpec.variadic
    node = module.node(*(Input(name=f"in{i}").node() for i in range(max(len(module.arguments), isVariadic))))
    net = Graph([link.node for link in node.bwds], node)
    back = again(net)
    assert str(back) == str(net)
    assert vars(back.nodes[-1].module).keys() == vars(module).keys()


def test_every_exported_class_is_known():
    for prefix, package in (("", modules), ("costs.", costs)):
        for name in package.__all__:
            if isinstance(value := getattr(package, name), type):  # blocks are functions
                assert builtin()[prefix + name] is value


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        [1, 2],
        ((1, [2, (3,)]), []),
        None,
        True,
        slice(None, 5, 2),
        (slice(1), ..., None, -1),
        {"a": (1,), 3: [None]},
        "text \u00fc \ud800",
        2**200,
        -(2**10000),
        0.1,
        float("inf"),
        -0.0,
        np.dtype("float16"),
        Dim("2*N"),
        Scale,
        Relu,
    ],
    ids=repr,
)
def test_an_argument_comes_back_exactly(value):
    (first, second) = (
        again(Sequential(Echo(value, key=value)))[0].given[0],
        again(Sequential(Echo(key=value)))[0].keywords["key"],
    )
    for back in (first, second):
        assert back == value and type(back) is type(value) and repr(back) == repr(value)


def test_numpy_scalars_become_python_numbers_and_scalar_types_dtypes():
    back = again(Sequential(Echo(np.float32(0.5), np.int64(3), np.bool_(True), np.float16)))[0].given
    assert [type(v) for v in back[:3]] == [float, int, bool] and back[:3] == (0.5, 3, True)
    assert back[3] == np.dtype("float16")


def test_starting_values_with_a_source_come_back():
    net = Sequential(Linear(3, 4, initscheme=initial.Normal(0.02)))
    assert again(net)[0].initArgs[1]["initscheme"].std == 0.02


def test_a_slice_made_by_indexing_keeps_its_slice():
    net = Sequential(Slice()[:, 0, ::2])
    assert again(net)[0].slc == net[0].slc


def test_modules_as_arguments_stay_shared():
    inner = Linear(2, 2, name="inner")
    net = Sequential(inner, Echo(inner, [inner], name="echo"))
    back = again(net)
    assert back[1].given[0] is back[0] and back[1].given[1][0] is back[0]


def test_one_module_at_several_nodes_is_stored_once():
    blueprint = toBlueprint(branched())
    assert [row["class"] for row in blueprint["modules"]].count("Linear") == 1
    back = fromBlueprint(blueprint)
    assert back["first.shared"] is back["again"] and back["first"] is back["second"]


def test_ties_between_different_modules_are_restored():
    back = again(tied())
    assert back["decoder"].W is back["encoder"].W and back.ties == {"decoder.W": "encoder.W"}


def test_a_tie_across_nesting_is_restored():
    net = Sequential(Sequential(Linear(2, 2, name="a"), name="in"), Sequential(Linear(2, 2, name="b"), name="out"))
    net["out"]["b"].b = net["in"]["a"].b
    back = again(net)
    assert back["out"]["b"].b is back["in"]["a"].b


def test_settings_modes_and_dtypes_come_back():
    net = small()
    net["conv"].W.trainable = False
    net["fc"].W.rate, net["fc"].b.decay = 0.5, False
    net["dropout"].isTraining = False
    net.calcMode(np.float16)
    back = again(net)
    assert not back["conv"].W.trainable and back["conv"].b.trainable
    assert back["fc"].W.rate == 0.5 and not back["fc"].b.decay
    assert not back["dropout"].isTraining and back["fc"].isTraining
    assert back["fc"].W.dtype == np.float16 and back["batchnorm"].mean.dtype == np.float32
    assert back["batchnorm"].count.dtype == np.int64


def test_arrays_that_were_changed_on_the_module_come_back():
    net = Sequential(Linear(3, 3, name="fc"), Linear(3, 5, name="head"))
    net["fc"].b = None
    net["head"].W, net["head"].b = Param((3, 7)), Param((7,))
    back = again(net)
    assert back["fc"].b is None and back["head"].W.shape == (3, 7)
    assert run(back, (2, 3))[0].shape == (2, 7)


def test_names_given_to_nodes_come_back_in_any_script():
    x = Input(name="вход").node()
    net = Graph(x, Linear(2, 2).node(x, name="層 1"), name="größe")
    back = again(net)
    assert list(back.params) == ["層 1.W", "層 1.b"] and back.name == "größe"


def test_keyword_arguments_and_named_rules_come_back():
    class Gate(Module):
        def dataShapeFrom(self, x, mask=None):
            return x

        def updateData(self, x, mask=None):
            return x if mask is None else x * mask

    registerModule(Gate)
    registerRule(Gate, "mine")(lambda module, grad, x, mask, y: (grad, None))
    try:
        x, m = Input(name="x").node(), Input(name="m").node()
        node = Gate().node(x, mask=m, rule="mine")
        back = again(Graph([x, m], node))
        assert back.nodes[-1].rule == "mine" and back.nodes[-1].bwds[1].argument == "mask"
        blueprint = toBlueprint(back)
    finally:
        del REGISTRY[Gate, "mine"]
    with pytest.raises(CheckpointError, match="no gradient rule named 'mine' is registered for Gate"):
        fromBlueprint(blueprint)


def test_a_rule_registered_for_a_class_and_forgotten_at_load_is_said():
    registerRule(Relu)(lambda module, grad, x, y: grad)
    try:
        blueprint = toBlueprint(Sequential(Linear(2, 2), Relu()))
        fromBlueprint(blueprint)
    finally:
        del REGISTRY[Relu, "default"]
    assert blueprint["rules"] == [["Relu", "default"]]
    with pytest.warns(
        GraphWarning, match=r"Relu had a gradient rule .* register it \(@registerRule\(Relu\)\) before load"
    ):
        fromBlueprint(blueprint)
    assert "rules" not in toBlueprint(Sequential(Linear(2, 2), Relu()))


def test_a_function_comes_back_by_its_name():
    x = Input().node()
    back = again(Graph(x, Scale.node(x)))
    assert back(np.ones(2, np.float32)).tolist() == [2, 2]


def test_a_container_of_ones_own_keeps_what_is_on_it():
    net = Tower([2, 3, 4])
    net.append(Relu())
    back = again(net)
    assert isinstance(back, Tower) and back.sizes == (2, 3, 4) and len(back) == 3 and back.head is back[1]


def test_an_empty_sequential_comes_back():
    assert len(again(Sequential(name="empty"))) == 0


def test_an_input_that_nothing_needs_stays_an_input():
    x, unused = Input(name="x").node(), Input(name="unused").node()
    with pytest.warns(UserWarning, match="left out"):
        net = Graph([x, unused], Relu().node(x))
    assert again(net).arguments == ("x", "unused")


def test_a_long_chain_and_a_deep_nest_come_back():
    chain = Sequential(*(Identity() for _ in range(5000)))
    assert len(again(chain)) == 5000
    nest = Identity()
    for _ in range(60):
        nest = Sequential(nest)
    assert str(again(nest)) == str(nest)


# Registering ----------------------------------------------------------------------------------------------------------


def test_registering_is_a_decorator_with_or_without_a_name():
    @registerModule
    class First(Echo):
        pass

    @registerModule(name="other")
    class Second(Echo):
        pass

    assert OWN["First"] is First and OWN["other"] is Second
    assert type(again(Sequential(Second()))[0]) is Second


def test_a_name_belongs_to_one_registered_class():
    @registerModule
    class Twice(Echo):
        pass

    with pytest.raises(PuregraphError, match="'Twice' is .*Twice already"):
        registerModule(type("Twice", (Echo,), {"__qualname__": "another.Twice"}))
    with pytest.raises(PuregraphError, match="wanted a subclass of Module or Function"):
        registerModule(int)


def test_a_registered_class_may_have_the_name_of_a_built_in_one():
    class Linear(Echo):
        pass

    registerModule(Linear)
    back = again(Sequential(Linear(3), pg.Linear(2, 2)))
    assert type(back[0]) is Linear and type(back[1]) is pg.Linear


def test_a_registered_built_in_class_keeps_its_name():
    registerModule(Relu)
    assert toBlueprint(Sequential(Relu()))["modules"][0]["class"] == "Relu"


@pytest.mark.parametrize("isBuiltinToo", [False, True])
def test_a_file_from_before_names_had_prefixes_finds_the_users_classes(monkeypatch, isBuiltinToo):
    @registerModule
    class Halve(Echo):
        def updateData(self, x):
            return x / 2 ** self.given[0]

    @registerModule
    class Slow(pg.optimizers.SGD):
        pass

    class Other(Echo):
        pass

    if isBuiltinToo:
        monkeypatch.setitem(builtin(), "Halve", Other)
        monkeypatch.setitem(builtin(), "Slow", Other)
    found = pg.load(Path(__file__).parent / "usernames.h5")
    assert type(found[1]) is Halve and found(np.ones((1, 2), np.float32)).tolist() == [[1, 2]]
    assert type(checkpoint.load(Path(__file__).parent / "usernames.h5").optimizer) is Slow
    assert type(again(Sequential(Halve(1)))[0]) is Halve
    if isBuiltinToo:
        assert type(again(Sequential(Other(1)))[0]) is Other


def test_a_class_that_was_defined_again_takes_its_own_place():
    def define():
        class Cell(Echo):
            pass

        return registerModule(Cell)

    define()
    second = define()
    assert OWN["Cell"] is second


def test_a_class_without_a_name_is_refused_when_it_is_written():
    class Unknown(Echo):
        pass

    with pytest.raises(CheckpointError, match=r"at 'unknown' \(Unknown\).*@puregraph.registerModule above the class"):
        toBlueprint(Sequential(Identity(), Unknown(name="unknown")))


@pytest.mark.parametrize(
    "value",
    [np.ones(3), lambda: 1, {1, 2}, b"bytes", 1j, object(), [np.ones(1)]],
    ids=lambda given: type(given).__name__,
)
def test_what_is_not_plain_is_refused_with_its_place(value):
    net = Sequential(Sequential(Echo(1, odd=value, name="echo"), name="stem"))
    with pytest.raises(CheckpointError, match=r"at 'stem.echo' \(Echo\): argument 'odd'.*cannot be stored; give"):
        toBlueprint(net)


@pytest.mark.parametrize("kind", [bool, int, float, np.int8, "float32", np.dtype("int32"), ">i4"], ids=str)
@pytest.mark.parametrize("make", TYPED)
def test_a_module_takes_a_dtype_of_any_spelling_and_is_read_again(make, kind):
    made = make(kind)
    net = Sequential(made, Echo(kind, kinds=[kind], name="echo"))
    found = fromBlueprint(json.loads(json.dumps(toBlueprint(net))))
    assert found[0].dtype == made.dtype == np.dtype(kind).newbyteorder("=") and made.dtype.isnative
    assert found["echo"].given == (kind,) and found["echo"].keywords == {"kinds": [kind]}


@pytest.mark.parametrize("name", ["object", "type", "__import__", ["int"], None, 1])
def test_a_forged_type_is_refused(name):
    with pytest.raises(CheckpointError, match="cannot be read"):
        decode({"type": name})


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="nested more than 100 deep, or holds itself"):
        toBlueprint(Sequential(Echo(loop)))


# Forged blueprints ----------------------------------------------------------------------------------------------------


def forged(change):
    """The blueprint of a small net, changed."""
    blueprint = json.loads(json.dumps(toBlueprint(branched())))
    result = change(blueprint)
    return result if result == [] else blueprint


def row(blueprint, name):
    return next(r for r in blueprint["modules"] if r["class"] == name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: [], "wanted a blueprint of version 1, got 'list'"),
        (lambda b: b.update(version=99), "wanted a blueprint of version 1, got 99"),
        (lambda b: b.update(modules=[]), "the last module must be a Graph"),
        (lambda b: b.update(modules={}), "wanted a list under 'modules', got {}"),
        (lambda b: b.pop("modules"), "wanted a list under 'modules', got none"),
        (lambda b: b["modules"].pop(), "the last module must be a Graph"),
        (lambda b: b["modules"].insert(0, 7), r"module 0 \(no class\): its description: wanted an object, got 7"),
        (lambda b: row(b, "Linear").update({"class": "Linaer"}), "unknown class 'Linaer'.*registerModule.*Linear"),
        (lambda b: row(b, "Linear").update({"class": "os.system"}), "unknown class 'os.system'"),
        (lambda b: row(b, "Linear").update({"class": "Scale"}), "it is not a Module"),
        (lambda b: row(b, "Linear").update({"class": "optimizers.Adam"}), "it is not a Module"),
        (lambda b: row(b, "Linear").update({"class": ["Linear"]}), "wanted a text under 'class', got .'Linear'"),
        (
            lambda b: row(b, "Linear").update(args=[1, 2, 3, 4, 5, 6, 7, 8]),
            r"module 1 \(Linear\) cannot be made: ArgumentError",
        ),
        (lambda b: row(b, "Linear").update(args=[{"pickle": "x"}]), "no value that puregraph writes"),
        (lambda b: row(b, "Linear").update(args=[{"slice": [1, 2, 3, 4, 5]}]), "cannot be read"),
        (lambda b: row(b, "Linear").update(args=[{"dtype": "i4,(9999,9999)f8"}]), "cannot be read"),
        (lambda b: row(b, "Linear").update(args=[{"dtype": "V1000000000"}]), "cannot be read"),
        (lambda b: row(b, "Linear").update(args=[{"dtype": ["f4"]}]), "cannot be read"),
        (lambda b: row(b, "Linear").update(args=[{"module": 4}]), "module 4 does not come before"),
        (lambda b: row(b, "Linear").update(args=[{"module": -1}]), "module -1 does not come before"),
        (
            lambda b: row(b, "Linear").update(args=[{"start": ["Seed", {"dict": []}]}]),
            "no start of values is called 'Seed'",
        ),
        (lambda b: row(b, "Linear").update(args=[{"start": 3}]), "'start': wanted .name, settings., got 3"),
        (lambda b: row(b, "Linear").update(args=3), "wanted a list under 'args', got 3"),
        (lambda b: row(b, "Linear").pop("kwargs"), "wanted an object under 'kwargs', got none"),
        (lambda b: row(b, "Graph")["nodes"].append(3), "its node 7: wanted an object, got 3"),
        (lambda b: row(b, "Graph")["nodes"][1].update(parents=[[0, None]]), r"wanted .node, slots, argument., got .0"),
        (lambda b: row(b, "Graph").update(outputs=[3]), r"its output: wanted .node, slot., got 3"),
        (lambda b: b.update(rules={}), "wanted a list under 'rules', got {}"),
        (lambda b: b.update(rules=[["Relu"]]), r"'rules': wanted .class, rule., got .'Relu'"),
        (lambda b: b.update(rules=[["Relu", 3]]), r"'rules'.1.: wanted a text, got 3"),
        (lambda b: b["ties"].update(a=[]), r"'ties'.*wanted a text, got"),
        (lambda b: row(b, "Linear").update(name="a.b"), "name must be a printable text without"),
        (lambda b: row(b, "Sequential").update(items=[True]), "module True does not come before"),
        (lambda b: row(b, "Sequential").update(own={"link": 1}), "'link' cannot be an attribute"),
        (lambda b: row(b, "Sequential").update(own={"__class__": 1}), "'__class__' cannot be an attribute"),
        (lambda b: row(b, "Graph")["nodes"][-1].update(module=99), "module 99 does not come before"),
        (lambda b: row(b, "Graph")["nodes"][1].update(parents=[[5, None, None]]), "node 5 does not come before"),
        (lambda b: row(b, "Graph")["nodes"][1].update(parents=[[0, [3], None]]), "has no output 3"),
        (lambda b: row(b, "Graph")["nodes"][1].update(parents=[[0, None, "q"]]), "has no input 'q'"),
        (lambda b: row(b, "Graph")["nodes"][1].update(rule="fast"), "no gradient rule named 'fast'"),
        (lambda b: row(b, "Graph").update(inputs=[-1]), "node -1 does not come before"),
        (lambda b: row(b, "Graph").update(inputs=[]), "which no input reaches"),
        (lambda b: row(b, "Graph").update(outputs=[[0, 9]]), "has no output 9"),
        (lambda b: b["ties"].update({"again.W": "nowhere.W"}), "tied to 'nowhere.W', which is no array"),
        (lambda b: b["ties"].update({"x.y.z": next(iter(b["arrays"]))}), "no module of the graph holds 'x.y.z'"),
        (lambda b: b["absent"].append("x.updateData"), "no module of the graph holds 'x.updateData'"),
        (lambda b: b.update(arrays={}, ties={}), "make other arrays than those that were stored"),
        (
            lambda b: b["arrays"].update({"nowhere.W": next(iter(b["arrays"].values()))}),
            "no module of the graph holds 'nowhere.W'",
        ),
        (lambda b: next(iter(b["arrays"].values())).update(shape=[-1]), "cannot have the shape"),
        (lambda b: next(iter(b["arrays"].values())).update(shape=[10**9] * 9), "cannot have the shape"),
        (lambda b: next(iter(b["arrays"].values())).update(shape="ab"), "wanted a list under 'shape', got 'ab'"),
        (lambda b: next(iter(b["arrays"].values())).update(dtype="object"), "wanted the dtype .*, got 'object'"),
        (
            lambda b: next(iter(b["arrays"].values())).update(kind="file"),
            "wanted the kind param, constant, state, got 'file'",
        ),
    ],
)
def test_a_forged_blueprint_is_refused(change, words):
    with pytest.raises(CheckpointError, match=words):
        fromBlueprint(forged(change))


def test_a_giant_declaration_costs_no_memory():
    net = again(Sequential(Linear(10**8, 10**7)))
    assert net[0].W.size == 10**15 and not net[0].W.made


def test_graphs_that_double_again_and_again_are_refused():
    rows = [{"class": "Identity", "args": [], "kwargs": {}}]
    rows += [{"class": "Sequential", "items": [i, i]} for i in range(60)]
    with pytest.raises(CheckpointError, match="unfolds into more than 2000000 nodes"):
        fromBlueprint({"version": 1, "modules": rows, "arrays": {}, "ties": {}, "absent": []})


def test_a_nest_without_end_is_refused():
    rows = [{"class": "Identity", "args": [], "kwargs": {}}]
    rows += [{"class": "Sequential", "items": [i]} for i in range(20_000)]
    with pytest.raises(CheckpointError, match="nested more than 200 deep"):
        fromBlueprint({"version": 1, "modules": rows, "arrays": {}, "ties": {}, "absent": []})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 50_000, "nested too deep"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b"[NaN]", "NaN is not allowed"),
        (b'{"a": ', "Expecting value"),
        (b"\xff\xfe\x00", "decode"),
        (b"9" * 100_000, "digits"),
    ],
)
def test_json_that_means_two_things_or_never_ends_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        loads(text)


def test_states_and_params_keep_their_kind():
    class Counter(Echo):
        def __init__(self, name=None):
            super().__init__(name=name)
            self.count = State((), dtype=np.int64)

    registerModule(Counter)
    blueprint = toBlueprint(Sequential(Counter(name="c")))
    assert blueprint["arrays"] == {"c.count": {"kind": "state", "shape": [], "dtype": "int64"}}
    assert isinstance(fromBlueprint(blueprint)["c"].count, State)
    assert same(fromBlueprint(blueprint), Sequential(Counter(name="c")))


def callsOf(count):
    """The calls of Python functions that loading a file of so many modules takes."""
    net = Sequential(*[Relu() for _ in range(count)]).save(None)
    checkpoint.load(net)
    calls = 0

    def profile(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        checkpoint.load(net)
    finally:
        sys.setprofile(before)
    return calls


def test_loading_takes_as_many_calls_for_each_module_whatever_their_number():
    few, many = callsOf(100), callsOf(400)
    each = (many - few) / 300
    assert each < 130, each
    assert many < 4.2 * few


@pytest.mark.parametrize("former", [name for name, known in FORMER.items() if not known.arguments])
def test_a_module_of_a_former_name_is_made_with_the_defaults_that_it_had(former):
    name, implied, *_ = FORMER[former]
    cls = classNamed(name)
    module, shapes = next((m, s) for m, s in cls.examples() if all(getattr(m, k) == v for k, v in implied.items()))
    inputs = [Input(name=f"x{i}").node() for i in range(len(shapes))]
    blueprint = toBlueprint(Graph(inputs, module.node(*inputs, name="it")))
    row = next(row for row in blueprint["modules"] if row["class"] == name)
    row["class"] = former
    for argument in implied:
        row["kwargs"].pop(argument, None)
    again = fromBlueprint(blueprint)["it"]
    assert type(again) is cls and all(getattr(again, k) == v for k, v in implied.items())


def test_an_argument_of_a_former_name_that_is_given_by_position_is_kept():
    x, condition = Input(name="x").node(), Input(name="condition").node()
    blueprint = toBlueprint(Graph([x, condition], modules.Compress(1, True).node(x, condition, name="it")))
    row = next(row for row in blueprint["modules"] if row["class"] == "puregraph:Compress")
    row["class"], row["args"] = "puregraph:onnx.CompressAxis", [1]
    again = fromBlueprint(blueprint)["it"]
    assert (again.axis, again.mayBeShorter) == (1, True)
