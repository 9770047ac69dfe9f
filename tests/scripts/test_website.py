"""The site has a page for each public name, and each public name stands in a guide."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("website", ROOT / "scripts" / "website.py")
website = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(website)
apiexamples = sys.modules["apiexamples"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    website.write(folder)
    return folder


def test_every_public_name_stands_in_a_guide():
    texts = website.guides()
    missing = [f"{package}.{name}" for package, name, _ in website.publicNames() if not website.mentions(name, texts)]
    assert not missing, f"no guide of docs/ names {', '.join(missing)}; docs/modules.md says which name is for what"


def test_every_public_name_has_a_page_of_its_docstring(source):
    names = list(website.publicNames())
    assert len(names) > 250
    for package, name, found in names:
        text = (source / "reference" / f"{package}.{name}.md").read_text(encoding="utf-8")
        assert inspect.getdoc(found) and text.startswith(f"# {name}\n") and "## Guides" in text, name


def test_every_public_method_is_on_the_page_of_its_class_or_of_a_base(source):
    pages = website.publicClasses()
    texts = {name: (source / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in pages.values()}
    missing = []
    for cls, page in pages.items():
        ours = [base for base in cls.__mro__ if base.__module__.startswith("puregraph")]
        text = "".join(texts[pages[base]] for base in ours if base in pages)
        for name in {name for base in ours for name in vars(base) if name[0] != "_"}:
            member = getattr(cls, name, None)
            isMember = inspect.isroutine(member) or isinstance(inspect.getattr_static(cls, name), property)
            if isMember and inspect.getdoc(member) and not re.search(rf"^\\| `{name}[`(]", text, re.M):
                missing.append(f"{page}.{name}")
    assert not missing, sorted(missing)
    for page, call in {
        "History": "plot(path)",
        "Confusion": "plot(path, names, over)",
        "Graph": "draw(",
        "Schedule": "plot(",
    }.items():
        assert f"| `{call}" in texts[f"puregraph.{page}"], page
    assert "those of [Schedule](puregraph.Schedule.md), too" in texts["puregraph.Cosine"]
    assert "_repr_html_()" in texts["puregraph.History"]


def test_the_source_on_a_page_is_in_the_file_that_it_names(source):
    for package, name, _ in website.publicNames():
        text = (source / "reference" / f"{package}.{name}.md").read_text(encoding="utf-8")
        found = re.search(r"^## Source\n\n`(.+)`\n\n````python\n(.+?)\n````$", text, re.M | re.S)
        assert found is None or found[2] in (ROOT / found[1]).read_text(encoding="utf-8"), name


def test_every_public_name_has_an_example_on_its_page(source):
    """It ran: that of a docstring and that of a module when the page was made, that of a guide with its page."""
    found = {f"{package}.{name}" for package, name, _ in website.publicNames()}
    texts = {name: (source / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in found}
    assert [name for name in found if not re.search(r"^## Example\n\n(```|From \[)", texts[name], re.M)] == []
    assert "print(Linear(3, 4).dataShapeFrom((5, 3)))    # (5, 4)" in texts["puregraph.Linear"]
    assert ">>> from puregraph.models import vgg11\n>>> sum(param.size" in texts["puregraph.models.vgg11"]


def test_an_example_that_fails_or_lacks_is_an_error():
    def doubled(x):
        """Twice.

        >>> 1 + 1
        3
        """

    def bare(x):
        """Nothing."""

    assert "Expected:\n    3\nGot:\n    2\n" in apiexamples.failure("puregraph", "doubled", doubled)
    with pytest.raises(ValueError, match="the example of puregraph.doubled fails"):
        website.example("puregraph", "doubled", doubled)
    with pytest.raises(ValueError, match="puregraph.bare has no example: a paragraph of its docstring"):
        website.example("puregraph", "bare", bare)


def test_the_example_of_a_guide_is_the_shortest_block_that_uses_the_name(tmp_path):
    page = tmp_path / "guide.md"
    page.write_text(
        "# Guide\n\n## First\n\n```python\nfrom puregraph import Relu\nprint(Relu(), 1, 2)\n```\n\n## Then\n\n"
        "```python\nprint(Relu())\n```\n\n```text\nRelu\n```\n\n```python no-run\nRelu\n```\n",
        encoding="utf-8",
    )
    from puregraph import Relu, Tanh

    assert apiexamples.guideExample(Relu, [page]) == ("print(Relu())\n", "Relu\n", "guide", "Then")
    assert apiexamples.guideExample(Tanh, [page]) is None


def test_every_page_and_every_guide_is_reached_from_the_first(source):
    listed = {*re.findall(r"^(\S+)$", (source / "index.md").read_text(encoding="utf-8"), re.M)}
    pages = {path.stem for path in source.glob("*.md")} - {"index"}
    assert pages <= listed, f"GUIDES of scripts/website.py does not list {', '.join(sorted(pages - listed))}"


def test_a_name_in_prose_alone_is_no_mention():
    assert website.mentions(
        "Relu", {"a": "a Relu", "b": "`Relu()`", "c": "```python\nRelu()\n```", "d": "`LeakyRelu`"}
    ) == ["b", "c"]


def test_sections_of_a_docstring_are_told_apart():
    body, parts = website.sections("y = 2 x\n\nMore.\n\nShapes    x (n,)\n          -> y as x\nSource    a paper")
    assert body == "y = 2 x\n\nMore." and parts == {"Shapes": "x (n,) -> y as x", "Source": "a paper"}


def test_columns_of_a_docstring_become_a_table():
    assert website.described("`a`    one\n       and more\n`bc`   two") == [["`a`", "one and more"], ["`bc`", "two"]]
    assert website.described("x = 1   y") == []


def test_markdown_in_a_docstring_stays_text():
    assert website.escape("a * b_c < `d * e` | [f]") == r"a \* b\_c \< `d * e` \| \[f\]"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("furo", reason="the extra puregraph[docs] brings Sphinx, furo and myst-parser")
    assert website.main(tmp_path / "site") == 0
    assert (tmp_path / "site" / "reference" / "puregraph.Linear.html").exists()


def test_what_a_page_names_and_does_not_have_is_told(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a b.svg").write_text("", encoding="utf-8")
    page = '<img src="pictures/a%20b.svg"><img src="pictures/c.svg"><a href="#x"><a href="https://x.org"><a href="q.html#y">'
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert website.missing(tmp_path) == ["index.html: there is no pictures/c.svg", "index.html: there is no q.html"]


def test_the_first_page_is_the_readme_with_its_pictures(source):
    text = (source / "index.md").read_text(encoding="utf-8")
    assert "## Install and run" in text and text.count("## Where to read on") == 1
    for picture in re.findall(r'src="([^"]+)"', text):
        assert (source / "extra" / picture).exists(), picture
