"""Every block of Python and every command in the documentation runs, prints what the page shows, and no link is dead."""

import re
import traceback

import pytest
from pages import ROOT, outputs, pages, run, shown

import puregraph
from puregraph.core.rules import REGISTRY
from puregraph.ops import kernel
from puregraph.ops.operation import OPERATIONS
from puregraph.serialize.classnames import OWN

TABLES = (kernel.registry, OPERATIONS, REGISTRY, OWN)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_runs_and_prints_what_it_shows(page):
    pytest.importorskip("sklearn", reason="the pages use scikit-learn's digits")
    for block, output in outputs(page):
        assert shown(block.text, block.tag) == shown(output, block.tag), (
            f"{page.name} shows another output; write it anew with: python tests/lib/pages.py {page.relative_to(ROOT)}"
        )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_every_link_to_a_file_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    dead = [link for link in links if not (page.parent / link).exists()]
    assert not dead, f"{page.name} links to {', '.join(dead)}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name not in ("README.md", *LINK.findall(index))
    ]
    assert not missing, f"docs/README.md does not name {', '.join(missing)}"


def test_what_a_page_registers_stays_in_its_own_process():
    before = [dict.fromkeys(table) for table in TABLES]
    for _ in range(2):  # the second would find what the first has registered
        assert len(outputs(ROOT / "docs" / "newkernel.md")) > 5
    assert [dict.fromkeys(table) for table in TABLES] == before


def test_a_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one 1')\n```\n\nprints\n\n```text\none 2\n```\n\n```text\nno output\n```\n")
    ((block, output),) = run(page)
    assert shown(block.text, "") != shown(output, "") and shown(block.text, "varies") == shown(output, "varies")


def test_an_error_names_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("words\n\n```python\na = 1\nb = nothing\n```\n")
    with pytest.raises(NameError) as caught:
        list(run(page))
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.filename, last.lineno) == ("page.md", 5)


def test_a_command_shows_what_it_prints_today(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ puregraph --version\npuregraph 0.0.0\n$ ls\nfile\n```\n")
    ((_, output),) = run(page)
    assert output == f"$ puregraph --version\npuregraph {puregraph.__version__}\n$ ls\nfile\n"


def test_the_tour_of_the_code_names_every_file_and_no_other():
    text = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.py|[\w/]+/)`", text))
    present = {path.name for path in (ROOT / "puregraph").glob("*.py")}
    present |= {f"{path.name}/" for path in (ROOT / "puregraph").iterdir() if (path / "__init__.py").exists()}
    folders = {f"{name.split('/')[0]}/" for name in named if "/" in name}
    assert present <= named | folders, f"docs/reading.md does not name {', '.join(sorted(present - named - folders))}"
    for folder in ("ops", "compile"):  # too large to be read without a guide
        inside = {
            path.relative_to(ROOT / "puregraph").as_posix() for path in (ROOT / "puregraph" / folder).rglob("*.py")
        }
        parts = {path.rpartition("/")[2] for path in inside} & named  # the files that each room of ops/ may have
        left = sorted(path for path in inside - named if path.rpartition("/")[2] not in {"__init__.py", *parts})
        assert not left, f"docs/reading.md does not name {', '.join(left)}"
    places = [ROOT / "puregraph", ROOT]
    gone = [
        name for name in named if not any((place / name).exists() or [*place.glob(f"ops/*/{name}")] for place in places)
    ]
    assert not gone, f"docs/reading.md names {', '.join(sorted(gone))}, which is not there"
