"""Pictures of graphs: what is on them, that nothing lies on anything else, that no name is more than a name."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from picturefile import PictureFile
from picturenets import NETS, eightInputs, faulty
from source import ROOT

import puregraph as pg
from puregraph import models
from puregraph.draw.drawing import PIXELS_PER_UNIT
from puregraph.draw.graphpicture import graphPicture
from puregraph.draw.layout import clearance, ordering


def drawn(name, **options):
    """The picture of one of the networks, and its file."""
    graph, shapes = NETS[name]()
    drawing = graph.draw(None, *shapes, **options)
    return drawing, PictureFile(drawing.svg())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("repeats", [False, True])
def test_nothing_lies_on_anything_else(name, repeats):
    drawing, file = drawn(name, repeats=repeats, depth=9)
    assert set(file.boxes) == {box.name for box in drawing.picture.boxes}
    for found in (file.labelsOnLabels, file.labelsOnBoxes, file.linesThroughBoxes, file.boxesOnBoxes, file.outside):
        assert found() == []
    assert file.labelsOnLines() == []
    assert file.crossings() == 0  # as Graphviz makes of these graphs: docs/decisions/0021-pictures.md


@pytest.mark.parametrize("name", NETS)
def test_every_value_of_known_shape_has_its_label(name):
    drawing, file = drawn(name)
    values = {(edge.source, edge.value): edge.label for edge in drawing.picture.edges if edge.label}
    assert sorted(text for text, _ in file.labels) == sorted(values.values())


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("name", ["unet", "resnet50", "gpt2"])
def test_a_folded_picture_is_as_tidy(name, depth):
    drawing, file = drawn(name, depth=depth)
    assert set(file.boxes) == {box.name for box in drawing.picture.boxes}
    for found in (file.labelsOnLabels, file.labelsOnBoxes, file.linesThroughBoxes, file.boxesOnBoxes, file.outside):
        assert found() == []


def test_the_measure_finds_what_lies_on_something():
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">'
    box = '<g class="box module" data-name="{0}"><rect class="shape" x="{1}" y="10" width="30" height="20" rx="1"/></g>'
    line = '<g class="edge" data-source="a" data-target="b"><path class="wire" d="M0 15L90 15"/></g>'
    label = '<text class="label" x="12" y="20">(3, 4)</text>'
    file = PictureFile(head + box.format("a", 10) + box.format("b", 30) + line + label + label + "</svg>")
    assert file.boxesOnBoxes() and file.labelsOnLabels() and file.labelsOnBoxes()
    assert len(file.linesThroughBoxes()) == 2 and file.labelsOnLines()


@pytest.mark.parametrize("name", NETS)
def test_inputs_stand_on_top_and_edges_point_down(name):
    _, file = drawn(name)
    for source, target, line in file.lines:
        assert file.boxes[source][3] <= file.boxes[target][1], f"{source} > {target}"
        assert line[0][1] <= line[-1][1]


def threeInputs():
    """Three inputs, of which the last goes through no other node."""
    a, b, c = (pg.Input(name=name).node() for name in "abc")
    joined = pg.Add(name="sum")(pg.Linear(4, 4, name="fc1")(a), pg.Linear(4, 4, name="fc2")(b), c)
    return pg.Graph([a, b, c], joined), [("N", 4)] * 3


@pytest.mark.parametrize("net", [eightInputs, threeInputs])
def test_several_inputs_stand_in_their_order(net):
    graph, shapes = net()
    boxes = PictureFile(graph.draw(None, *shapes).svg()).boxes
    inputs = [area for name, area in boxes.items() if name.startswith("input ")]
    assert len(inputs) == len(shapes) and inputs == sorted(inputs)


def test_a_box_has_name_module_parameters_bytes_and_operations():
    drawing, _ = drawn("lenet")
    box = next(box for box in drawing.picture.boxes if box.name == "conv2")
    assert box.title == "conv2" and box.lines[0] == "Conv2D(6, 16, 5, pad=0)"
    assert box.lines[1] == "2,416 params, 6.25 KiB, 482 kFLOP"
    assert drawing.picture.notes == (
        "12 nodes, 61,706 parameters (241 KiB), 852 kFLOP forward",
        "bytes and FLOPs for N = 1",
    )


def test_an_edge_has_its_shape_and_a_dtype_that_is_not_the_usual_one():
    drawing, file = drawn("gpt2")
    assert {"(N, 64) int64", "(N, 64, 768)"} <= {text for text, _ in file.labels}
    assert not any("float32" in edge.label for edge in drawing.picture.edges)


def test_outputs_and_arguments_are_named_where_there_are_several():
    lengths, _ = drawn("lengths")
    assert [e.argument for e in lengths.picture.edges if e.target == "rnn"] == ["x", "lengths"]
    gpt, file = drawn("gpt2", depth=9)
    assert [e.slot for e in gpt.picture.edges if e.source == "block1.attn.parts"] == ["0", "1", "2"]
    texts = [t.text for t in file.root.iter("{http://www.w3.org/2000/svg}text") if t.get("class") == "port"]
    assert {"0", "1", "2"} <= set(texts)
    eight, _ = drawn("eight")
    assert [e.argument for e in eight.picture.edges if e.target == "all"] == list("01234567")


def test_edges_that_leave_by_different_outputs_leave_at_different_positions():
    _, file = drawn("gpt2", depth=9)
    starts = {line[0][0] for source, _, line in file.lines if source == "block1.attn.parts"}
    assert len(starts) == 3


def test_equal_groups_in_a_row_are_drawn_once_with_their_number():
    drawing, _ = drawn("gpt2", depth=9)
    (group,) = [g for g in drawing.picture.groups.values() if not g.parent]
    assert (group.name, group.repeats, group.title) == ("block1", 12, "block1 \N{HORIZONTAL ELLIPSIS} block12")
    assert sum(edge.target == "norm" for edge in drawing.picture.edges) == 1
    whole, _ = drawn("gpt2", depth=9, repeats=True)
    assert len([g for g in whole.picture.groups.values() if not g.parent]) == 12
    collapsed, _ = drawn("gpt2", depth=0)
    (box,) = [box for box in collapsed.picture.boxes if box.repeats > 1]
    assert box.lines[-1].endswith("each") and box.repeats == 12


def test_groups_that_differ_or_are_read_from_elsewhere_are_drawn_one_by_one():
    def block(name, width=4):
        return pg.Sequential(pg.Linear(4, width, name="a"), pg.Linear(width, 4, name="b"), name=name)

    x = pg.Input("x").node()
    one = block("one").node(x)
    two = block("two", 5).node(one)
    three = block("three").node(two)
    four = block("four").node(three)
    five = block("five").node(four)
    graph = pg.Graph(x, [five, three])
    drawing = graph.draw(None, ("N", 4), depth=9)
    groups = drawing.picture.groups
    assert {name: group.repeats for name, group in groups.items()} == {"one": 1, "two": 1, "three": 1, "four": 2}


def test_a_reader_of_a_faulty_picture_sees_which_node_and_why():
    graph, shapes = faulty()
    drawing = graph.draw(None, *shapes)
    kinds = {box.name: box.kind for box in drawing.picture.boxes}
    assert kinds["fc2"] == "fault" and kinds["fc1"] == "module" and kinds["r2"] == "unknown"
    box = next(box for box in drawing.picture.boxes if box.name == "fc2")
    assert box.lines[1:] == ("wanted (..., 120)", "got (N, 100) from 'relu'")
    assert "1 node does not fit its inputs" in drawing.picture.notes
    for line in box.lines:
        assert line.replace("'", "&#x27;") in drawing.svg()
    collapsed = pg.Sequential(graph, name="outer").draw(None, *shapes, depth=0)
    assert any("wanted (..., 120)" in line for box in collapsed.picture.boxes for line in box.lines)


def test_an_input_that_gets_something_else_than_it_declares_is_the_fault():
    x = pg.Input((3, 4), name="x").node()
    drawing = pg.Graph(x, pg.Relu(name="r")(x)).draw(None, (3, 5))
    box = drawing.picture.boxes[0]
    assert box.kind == "fault" and "wanted (3, 4)" in box.lines and "got (3, 5) from the graph's input" in box.lines


def test_without_shapes_declared_or_last_ones_are_drawn_or_none():
    assert not any(edge.label for edge in models.mlp().draw().picture.edges)
    x = pg.Input(("N", 4), name="x").node()
    assert pg.Graph(x, pg.Relu(name="r")(x)).draw().picture.edges[0].label == "(N, 4)"
    graph, shapes = eightInputs()
    graph.dataShapeFrom(*shapes)
    assert all(edge.label for edge in graph.draw().picture.edges)


def test_modules_at_several_nodes_and_nodes_of_several_graphs_are_marked():
    x = pg.Input("x").node()
    shared = pg.Linear(4, 4, name="shared")
    one = shared.node(x, name="one")
    two = shared.node(one, name="two")
    graph = pg.Graph(x, two)
    pg.Graph(x, pg.Relu(name="other")(one))
    boxes = {box.name: box for box in graph.draw().picture.boxes}
    assert "same module as one" in boxes["two"].lines
    assert "read outside of this graph too" in boxes["one"].lines


@pytest.mark.parametrize("name", NETS)
def test_the_same_graph_gives_the_same_bytes(name):
    assert drawn(name)[0].svg() == drawn(name)[0].svg()
    assert drawn(name)[0].dot() == drawn(name)[0].dot()


def test_a_small_change_of_a_graph_changes_little_of_its_file():
    def lines(width):
        net = pg.Sequential(pg.Linear(10, 10, name="a"), pg.Linear(10, width, name="b"), pg.Linear(width, 10, name="c"))
        return net.draw(None, ("N", 10)).svg().splitlines()

    one, other = lines(16), lines(17)
    assert len(one) == len(other) and sum(a != b for a, b in zip(one, other)) <= 6


def hostileNames():
    """500 names that try to be markup, code or control characters."""
    pieces = ["<script>alert(1)</script>", "</text>", '"', "'", "&", "&lt;", "]]>", "<!--", "-->", "\x00", "\x1b[31m",
              "\u202e", "\ud800", "ｆｕｌｌ", "имя", "名前", "اسم", "😀", "\\", "\\n", "${1}", "`", "onload=x", "</svg>",
              "javascript:x"]  # fmt: skip
    return [f"{pieces[i % 25]}{pieces[i // 25]}{i}" for i in range(500)]


def test_hostile_names_stay_text():
    layers = [pg.Relu(name=f"n{i}") for i in range(50)]
    net = pg.Sequential(*layers, name="x")
    picture = graphPicture(net, (3, 4))
    names = hostileNames()
    for start in range(0, 500, 50):
        for box, name in zip(picture.boxes[1:], names[start:]):
            object.__setattr__(box, "title", name)
            object.__setattr__(box, "lines", (name, name))
        picture.title = names[start]
        drawing = type(net.draw())(picture)
        file = PictureFile(drawing.svg())
        tags = {element.tag.rpartition("}")[2] for element in file.root.iter()}
        assert tags <= {"svg", "title", "style", "rect", "g", "text", "path"}
        attributes = {name for element in file.root.iter() for name in element.keys()}
        assert not any(name.startswith("on") or "href" in name for name in attributes)
        assert not file.outside()
        assert drawing.dot().count("label=") == len(re.findall(r'label="(?:[^"\\\n]|\\.)*"', drawing.dot()))


def test_files_are_of_the_kind_that_their_names_say(tmp_path):
    net = models.mlp()
    drawing = net.draw(tmp_path / "net.svg", ("N", 784))
    assert (tmp_path / "net.svg").read_text() == drawing.svg()
    net.draw(str(tmp_path / "net.dot"))
    assert (tmp_path / "net.dot").read_text().startswith("digraph {")
    with pytest.raises(pg.ArgumentError, match=r"ends in \.svg, .*got '.*net.gif'"):
        net.draw(tmp_path / "net.gif")
    with pytest.raises(pg.ArgumentError, match="depth as a whole number"):
        net.draw(depth=-1)


def test_a_png_is_the_picture_of_the_svg(tmp_path):
    pytest.importorskip("resvg_py", reason="the extra puregraph[draw] brings resvg-py")
    drawing = models.mlp().draw(tmp_path / "net.png", ("N", 784))
    head = (tmp_path / "net.png").read_bytes()[:24]
    wide, high = (float(re.search(rf'<svg[^>]* {side}="([\d.]+)', drawing.svg())[1]) for side in ("width", "height"))
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    sizes = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    assert sizes == pytest.approx((PIXELS_PER_UNIT * wide, PIXELS_PER_UNIT * high), abs=1)


def test_a_png_takes_a_converter_and_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(pg.PuregraphError, match=r"pip install 'puregraph\[draw\]'"):
        models.mlp().draw(tmp_path / "net.png")
    assert not (tmp_path / "net.png").exists()


def test_without_graphlay_the_error_says_what_to_install_and_dot_still_works(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "graphlay", None)
    with pytest.raises(pg.PuregraphError, match=r"pip install 'puregraph\[draw\]'"):
        models.mlp().draw(tmp_path / "net.svg")
    models.mlp().draw(tmp_path / "net.dot")


def test_large_graphs_are_folded_until_they_fit():
    net = pg.Sequential(*[
        pg.Sequential(*[pg.Sequential(pg.Linear(4, 4 + i % 7), pg.Linear(4 + i % 7, 4), name=f"c{j}") for j in range(5)],
                      name=f"b{i}") for i in range(50)])  # fmt: skip
    drawing = net.draw(None, ("N", 4))
    assert len(drawing.whole.boxes) == 502 and len(drawing.picture.boxes) <= 120


def test_the_pictures_of_the_documentation_are_current():
    spec = spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, drawing in script.drawings():
        shown, made = PictureFile((script.FOLDER / f"{name}.svg").read_text()), PictureFile(drawing.svg())
        hint = f"docs/pictures/{name}.svg: run python scripts/pictures.py"
        assert shown.boxes.keys() == made.boxes.keys(), hint
        assert sorted(text for text, _ in shown.labels) == sorted(text for text, _ in made.labels), hint


def test_groups_that_read_different_nodes_of_the_one_before_are_no_run():
    def block(name):
        x = pg.Input("x").node()
        a = pg.Linear(4, 4, name="a").node(x)
        return pg.Graph(x, [a, pg.Linear(4, 4, name="b").node(a)], name=name)

    x = pg.Input("x").node()
    one = block("one").node(x)
    two = block("two").node((one, 1))
    three = block("three").node((two, 1))
    four = block("four").node((three, 0))
    graph = pg.Graph(x, (four, 1))
    groups = graph.draw(None, ("N", 4), depth=9).picture.groups
    assert {name: group.repeats for name, group in groups.items()} == {"one": 3, "four": 1}


def test_runs_inside_of_runs_are_drawn_once_as_well():
    def inner(name):
        return pg.Sequential(pg.Linear(4, 4, name="a"), pg.Relu(name="b"), name=name)

    def outer(name):
        return pg.Sequential(pg.Tanh(name="t"), inner("i1"), inner("i2"), inner("i3"), name=name)

    net = pg.Sequential(outer("o1"), outer("o2"), pg.Relu(name="between"), outer("o3"), outer("o4"), name="nested")
    drawing = net.draw(None, ("N", 4), depth=9)
    repeats = {name: group.repeats for name, group in drawing.picture.groups.items()}
    assert repeats == {"o1": 2, "o1.i1": 3, "o3": 2, "o3.i1": 3}
    found = [(e.source, e.target) for e in drawing.picture.edges if "between" in (e.source, e.target)]
    assert found == [("o1.i1.b", "between"), ("between", "o3.t")]
    assert PictureFile(drawing.svg()).linesThroughBoxes() == []


def tangle(count, rng, share=1.0, back=30):
    """A graph in which a share of the nodes adds one of the last few values to the last one."""
    nodes = [pg.Input().node()]
    for _ in range(count):
        isSum = rng.random() < share
        other = nodes[-rng.integers(1, min(len(nodes), back) + 1)]
        nodes.append(pg.Add().node(nodes[-1], other) if isSum else pg.Relu().node(nodes[-1]))
    return pg.Graph(nodes[0], nodes[-1])


def effortsSeen(monkeypatch):
    """How each layout is asked for from here on: effort, rounds, placement, and whether lines are parted."""
    tried, engine = [], ordering.engine()
    layout = engine.layout

    def seen(request, options):
        tuning = options.get("tuning", {})
        bound, isParted = tuning.get("order", {}).get("kick_rounds"), "routing" not in tuning
        tried.append((options["effort"], bound, options.get("coords", {}).get("placement", "usual"), isParted))
        return layout(request, options=options)

    monkeypatch.setattr(engine, "layout", seen)
    return tried


QUICK, BALANCED, BOUNDED = (
    ("fast", 200, "usual", True),
    ("balanced", None, "usual", True),
    ("balanced", 2000, "usual", True),
)
ROUGH, UNPARTED = ("fast", 0, "brandes_koepf", True), ("fast", 0, "brandes_koepf", False)


def test_a_layout_takes_less_effort_the_more_its_lines_cross_and_least_where_it_is_huge(monkeypatch, rng):
    tried = effortsSeen(monkeypatch)
    models.resnet50().draw(None).svg()
    assert tried[0] == QUICK and set(tried[1:]) == {BALANCED}
    graph = tangle(60, rng)
    bounds = (
        ("TANGLED_CROSSINGS", 20, {QUICK, BOUNDED}),
        ("HOPELESS_CROSSINGS", 20, {QUICK}),
        ("MAX_SIMPLEX_SIZE", 50, {ROUGH}),
        ("BROAD", 50, {UNPARTED}),
    )
    for name, bound, found in bounds:
        monkeypatch.setattr(ordering, name, bound)
        tried.clear()
        drawn = PictureFile(graph.draw(None).svg())
        assert set(tried) == found and drawn.linesThroughBoxes() == []


@pytest.mark.parametrize("share, back, efforts", [(0.1, 6, [QUICK, BALANCED]), (0.8, 3, [QUICK]), (0.6, 12, [ROUGH])])
def test_many_boxes_take_two_layouts_at_most_and_the_last_is_the_one_drawn(monkeypatch, rng, share, back, efforts):
    monkeypatch.setattr(ordering, "MAX_REORDERED_BOXES", 40)
    monkeypatch.setattr(ordering, "MAX_COMPARED_BOXES", 200)
    monkeypatch.setattr(ordering, "MAX_EXACT_BOXES", 340)
    graph = tangle(120, rng, share, back)
    tried = effortsSeen(monkeypatch)
    assert PictureFile(graph.draw(None).svg()).linesThroughBoxes() == []
    assert tried == efforts


@pytest.mark.slow
@pytest.mark.parametrize("share, back", [(0.0, 1), (0.3, 6), (1.0, 4)])
def test_no_line_runs_through_a_box_of_5000(rng, share, back):
    drawing = tangle(5000, rng, share, back).draw(None, ("N", 8))
    file = PictureFile(drawing.svg())
    assert len(file.boxes) == 5002 and file.linesThroughBoxes() == []


class Placed:
    """What a layout library says of boxes, by center and size, and lines."""

    def __init__(self, boxes, lines):
        self.nodes = [
            {"center": {"x": x, "y": y}, "size": {"width": width, "height": height}} for x, y, width, height in boxes
        ]
        self.edges = [{"points": [{"x": x, "y": y} for x, y in line]} for line in lines]


def test_a_line_along_the_border_of_a_box_is_moved_beside_it():
    boxes = [(0.0, 0.0, 80.0, 20.0), (-10.0, 100.0, 40.0, 20.0), (0.0, 200.0, 80.0, 20.0)]
    request = {"nodes": [{}, {}, {}], "edges": [{"source": 0, "target": 2}] * 2}
    straight, bent = [(9.0, 10.0), (9.0, 190.0)], [(30.0, 10.0), (30.0, 50.0), (9.3, 50.0), (9.3, 190.0)]
    layout = Placed(boxes, [straight, bent])
    assert [hit[:2] for hit in clearance.linesThrough(request, layout)] == [(0, 0), (1, 2)]
    assert clearance.cleared(request, layout) == 0
    found = [[(point["x"], point["y"]) for point in edge["points"]] for edge in layout.edges]
    assert found == [[(12.5, 10.0), (12.5, 190.0)], [(30.0, 10.0), (30.0, 50.0), (12.5, 50.0), (12.5, 190.0)]]


def test_a_line_that_would_leave_its_own_box_stays_and_is_counted():
    boxes = [(0.0, 0.0, 20.0, 20.0), (-20.0, 100.0, 80.0, 20.0), (0.0, 200.0, 20.0, 20.0)]
    request = {"nodes": [{}, {}, {}], "edges": [{"source": 0, "target": 2}]}
    layout = Placed(boxes, [[(0.0, 10.0), (0.0, 190.0)]])
    assert clearance.cleared(request, layout) == 1
    assert layout.edges[0]["points"][0] == {"x": 0.0, "y": 10.0}


def test_layers_that_edges_cross_are_those_between_their_ends():
    edges = [{"source": a, "target": b} for a, b in ((0, 1), (1, 2), (2, 3), (0, 3), (1, 3), (4, 2))]
    assert ordering.layersCrossed(edges) == (2 + 1 + 1, 4)
