"""The page of a picture: one file without a network, in which no name is code; and what a notebook shows."""

import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest
from picturefile import PictureFile
from picturenets import NETS, faulty
from test_pictures import hostileNames

import puregraph as pg
from puregraph import models
from puregraph.draw.graphpicture import graphPicture
from puregraph.train import History


class PageReader(HTMLParser):
    """The tags and attributes of a page, and what stands in its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.raw, self.open = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        self.open = tag

    def handle_data(self, data):
        if self.open in ("script", "style"):
            self.raw.append((self.open, data))

    def handle_endtag(self, tag):
        self.open = None


def pageOf(name):
    """The page of a network."""
    graph, shapes = NETS[name]()
    return graph.draw(None, *shapes).html()


@pytest.mark.parametrize("name", NETS)
def test_a_page_asks_for_nothing(name):
    page = PageReader(pageOf(name))
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not [each for each in page.attributes if each[1] in ("src", "href", "xlink:href", "style", "action")]
    for _, text in page.raw:
        assert not re.search(r"url\(|@import|https?:(?!//www\.w3\.org)|fetch\(|XMLHttp|import\(|eval\(|innerHTML", text)


def test_a_browser_may_run_that_script_and_style_only():
    page = PageReader(pageOf("lenet"))
    policy = next(
        value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "src" in value
    )
    assert policy.startswith("default-src 'none'; ")
    texts = {kind: text for kind, text in page.raw if not text.startswith("{")}
    for kind, text in texts.items():
        assert f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy


def test_a_page_has_each_depth_and_says_what_there_is_of_each_box():
    graph, shapes = NETS["gpt2"]()
    drawing = graph.draw(None, *shapes)
    text = drawing.html()
    known = json.loads(re.search(r'id="data">(.*)</script>', text)[1])
    (pane,) = known["panes"]
    assert text.count("<svg ") == len(pane["edges"]) == drawing.unrepeated.depth + 1
    names = {box.name for box in drawing.picture.boxes}
    assert names <= set(pane["boxes"])
    story = dict(pane["boxes"]["words"])
    assert story["gives"] == "(N, 64, 768)" and "Embedder(50257, 768" in story["module"] and "Source" in story["about"]
    for views in pane["edges"]:
        assert all({source, target} <= set(pane["boxes"]) for source, target, _ in views)
    assert "<li>words; Embedder(50257, 768)" in text


def test_the_page_of_a_fault_says_it_in_its_listing():
    graph, shapes = faulty()
    text = graph.draw(None, *shapes).html()
    assert "<li>FAULT: fc2; Linear(120, 10); wanted (..., 120); got (N, 100)" in text


def test_the_page_of_500_nodes_is_small():
    blocks = [pg.Sequential(*[pg.Linear(4, 4, name=f"l{j}") for j in range(20)], name=f"b{i}") for i in range(25)]
    net = pg.Sequential(*blocks)
    drawing = net.draw(None, ("N", 4), repeats=True)
    assert len(drawing.whole.boxes) == 502
    assert len(drawing.html()) < 2_000_000


def test_hostile_names_are_text_on_a_page_too():
    net = pg.Sequential(*[pg.Relu(name=f"n{i}") for i in range(500)], name="x")
    picture = graphPicture(net, (3, 4))
    plain = PageReader(type(net.draw())(graphPicture(net, (3, 4))).html())
    names = hostileNames()
    for box, name in zip(picture.boxes[1:], names):
        object.__setattr__(box, "title", name)
        object.__setattr__(box, "lines", (name,))
        object.__setattr__(box, "story", (("node", name), ("about", name)))
    picture.title = "</script><script>alert(1)</script>"
    text = type(net.draw())(picture).html()
    page = PageReader(text)
    assert set(page.tags) == set(plain.tags)
    assert all(page.tags.count(tag) == plain.tags.count(tag) for tag in ("script", "style", "g", "li", "path"))
    assert {each[:2] for each in page.attributes} == {each[:2] for each in plain.attributes}
    known = json.loads(re.search(r'id="data">(.*)</script>', text)[1])
    assert ["about", "<script>alert(1)</script><script>alert(1)</script>0"] in known["panes"][0]["boxes"]["n0"]


def test_the_same_graph_gives_the_same_page():
    assert pageOf("resnet50") == pageOf("resnet50")


def test_a_notebook_shows_a_picture_of_a_graph_that_changes_nothing_around_it(monkeypatch):
    net = models.lenet()
    html = net._repr_html_()
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', html)[1]
    assert "conv1" in PictureFile(b64decode(data).decode()).boxes
    assert (
        "<style>" not in html and "conv1  Conv2D" in html and "lenet: 14 boxes" in re.search(r'alt="([^"]*)"', html)[1]
    )
    monkeypatch.setitem(__import__("sys").modules, "graphlay", None)
    assert net._repr_html_().startswith("<pre") and "conv1" in net._repr_html_()


def test_a_notebook_shows_tables_of_nodes_history_errors_and_summaries():
    net = models.lenet()
    node = net.getNodeByName("conv1")
    assert "<td>module</td><td>Conv2D(1, 6, 5" in node._repr_html_()
    assert "W (6, 1, 5, 5)" in node._repr_html_()
    history = History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "val <b>": 1.0}])
    assert history._repr_html_().count("<tr>") == 3 and "<th>val &lt;b&gt;</th>" in history._repr_html_()
    assert "<table>" in History()._repr_html_()
    with pytest.raises(pg.ShapeError) as caught:
        net.dataShapeFrom((1, 3, 28, 28))
    assert "<td>conv1</td>" in caught.value._repr_html_() and "wanted" in caught.value._repr_html_()
    text = pg.summary(net, ("N", 1, 28, 28))
    assert text._repr_html_().startswith("<pre") and isinstance(text, str)
    program = net.compile([(2, 1, 28, 28)])
    program.run(np.zeros((2, 1, 28, 28), np.float32))
    assert program._repr_html_().startswith("<pre") and "8 steps" in program._repr_html_()


def test_a_drawing_in_a_notebook_is_an_image():
    assert models.mlp().draw()._repr_html_().startswith("<img style=")


def test_a_notebook_lists_what_is_too_large_to_look_at():
    html = pg.Sequential(*[pg.Relu(name=f"r{i}") for i in range(600)])._repr_html_()
    assert html.startswith("<pre") and "r400" in html and "r598  Relu" not in html and "and 101 nodes more" in html


def test_the_story_of_a_node_has_its_formula_and_derivative():
    net = pg.Sequential(pg.Gelu(name="g"))
    story = dict(net.draw(None, ("N", 4)).picture.boxes[1].story)
    assert story["formula"] == "0.5 * x * erfc(-x / sqrt(2))" and story["d/dx"].startswith("0.5 * erfc(-x / sqrt(2))")
