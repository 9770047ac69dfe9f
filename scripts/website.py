"""Build the site: the pages of docs/, and a page for each public name, made from its docstring and examples.

    pip install -e ".[docs]" && python scripts/website.py [FOLDER]

FOLDER is build/site unless given. A warning of Sphinx, a dead link or an example that fails ends it with an error.
"""

import functools
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parent))

import apiexamples
from pages import working

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGES = (
    "puregraph",
    "puregraph.autodiff",
    "puregraph.data",
    "puregraph.models",
    "puregraph.onnx",
    "puregraph.compat.text",
)
GUIDES = {  # in the order in which people come
    "First steps": [
        "start",
        "recipes",
        "notebooks",
        "modules",
        "training",
        "generating",
        "checkpoints",
        "weights",
        "derived",
        "finetuning",
        "quantising",
        "pictures",
        "notation",
    ],
    "Shapes and speed": ["shapes", "compile", "memory", "gpu", "many", "slowstep", "performance", "accuracy"],
    "Your own": ["newmodule", "newkernel", "newoptimizer", "newoperator"],
    "Coming from": ["comingfrom", "coming", "torch", "puzzlelib", "onnx"],
    "Derivatives and research": ["derivatives", "autodiff", "backwardgraph", "text", "fashion"],
    "Reference": ["reference", "models", "commandline", "operations", "seeds", "glossary"],
    "The code": ["reading", "architecture", "examples", "contributing", "changelog"],
}
NOTGUIDES = tuple("README coming operations seeds reading architecture glossary accuracy performance".split())
GUIDEPAGES = [page for page in sorted(DOCS.glob("*.md")) if page.stem not in NOTGUIDES]
SECTION = re.compile(r"(Shapes|Source|Params|Raises)\s{2,}(.*)")
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
ADDRESS = re.compile(r"""\b(?:src|href)=["'](?!https?:|mailto:|data:|#)([^"'#?]+)""")
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?!https?:|#|mailto:)([^)#]+)(#[^)]*)?\)")


def publicNames():
    """(package, name, object) of everything that is public, each object once, where it stands first."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__, key=str.lower):
            found = getattr(module, name)
            key = id(found)
            if key not in seen and not inspect.ismodule(found):
                seen.add(key)
                yield package, name, found


def guides():
    """The text of each guide: a page that says how something is done."""
    pages = {page.stem: page for page in GUIDEPAGES}
    order = [stem for stems in GUIDES.values() for stem in stems if stem in pages]
    return {stem: pages[stem].read_text(encoding="utf-8") for stem in [*order, *pages]}


def mentions(name, texts):
    """The guides that name something in code."""
    whole = re.compile(rf"(?<![\w.]){name}\b")
    return [stem for stem, text in texts.items() if whole.search(codeIn(text))]


@functools.cache
def codeIn(text):
    """What stands in a page as code: its blocks, and what has backticks around it."""
    return "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", text, re.S | re.M))


def sections(text):
    """A docstring as its body and its sections: {"Shapes": ..., "Source": ...}."""
    body, found, current = [], {}, None
    for line in text.splitlines():
        match = SECTION.match(line)
        if match:
            current = match[1]
            found[current] = match[2]
        elif current and line.startswith(" "):
            found[current] += f" {line.strip()}"
        else:
            current = None
            body.append(line)
    return "\n".join(body).strip(), found


def escape(text):
    """Text as Markdown that shows it; what stands in backticks stays code."""
    parts = re.split(r"(`[^`\n]+`)", text)
    parts[::2] = [re.sub(r"([\\*_<>\[\]|$`#{}])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def described(paragraph):
    """The rows of a paragraph in two columns, "`name`   what it is", or nothing where it is something else."""
    rows = []
    for line in paragraph.splitlines():
        match = re.match(r"(`[^`]+`) {2,}(.*)", line)
        if match:
            rows.append([match[1], match[2]])
        elif rows and line.startswith("  "):
            rows[-1][1] += f" {line.strip()}"
        else:
            return []
    return rows


def prose(body):
    """The body of a docstring, without its example: formulas and code as they are, columns as tables, sentences."""
    found = []
    for i, paragraph in enumerate(part for part in re.split(r"\n\s*\n", body) if not part.startswith(">>>")):
        isFormula = i == 0 and "=" in paragraph and not paragraph.rstrip().endswith(".")
        rows = described(paragraph)
        if rows:
            found.append(table(("", ""), [(name, escape(text)) for name, text in rows]))
        elif isFormula or re.search(r"^ |\S {2,}\S", paragraph, re.M):
            found.append(f"```{{code-block}} text\n:class: wrapped\n\n{textwrap.dedent(paragraph)}\n```")
        else:
            found.append(escape(paragraph))
    return "\n\n".join(found)


def table(head, rows):
    """Rows as a table of Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def signatureOf(found):
    """The signature, or None for what has none."""
    try:
        return inspect.signature(found)
    except (TypeError, ValueError):
        return None


def code(text):
    """Inline code, in a table too."""
    return f"`{str(text).replace('|', chr(92) + '|')}`" if "`" not in str(text) else escape(str(text))


def argumentRows(signature):
    """Each argument: its name, what it takes, its default."""
    for argument in signature.parameters.values():
        taken = "" if argument.annotation is argument.empty else code(argument.annotation)
        default = "" if argument.default is argument.empty else code(repr(argument.default))
        yield code(str(argument).split(":")[0].split("=")[0]), taken, default


@functools.cache
def publicClasses():
    """The name of the page of each public class."""
    return {found: f"{package}.{name}" for package, name, found in publicNames() if inspect.isclass(found)}


def membersOf(found):
    """(name, function or property) of what a class has: its own, and what it has from bases without a page."""
    from puregraph.core.base.cachedproperty import CachedProperty
    from puregraph.core.late import Late

    seen, pages = set(), [cls for cls in found.__mro__[1:] if cls in publicClasses()]
    for cls in found.__mro__:
        isOurs = cls.__module__.startswith("puregraph") and not any(issubclass(base, cls) for base in pages)
        if cls is found or isOurs:
            for name, member in vars(cls).items():
                bare = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
                bare = getattr(cls, name) if isinstance(bare, Late) else bare
                isMember = isinstance(bare, (property, CachedProperty)) or inspect.isfunction(bare)
                if isMember and name not in seen and (name[0] != "_" or name == "_repr_html_"):
                    seen.add(name)
                    yield name, bare


def memberRows(found):
    """Each method and property of a class: its call, and its first sentence."""
    for name, bare in membersOf(found):
        if inspect.getdoc(bare):
            line = inspect.getdoc(bare).split("\n\n")[0].replace("\n", " ")
            isStatic = isinstance(inspect.getattr_static(found, name), staticmethod)
            names = list(signatureOf(bare).parameters)[not isStatic :] if inspect.isfunction(bare) else []
            call = f"{name}({', '.join(names)})" if inspect.isfunction(bare) else name
            yield code(call), escape(line)


def basesOf(found):
    """Links to the pages of the bases of a class, which have the rest of its methods."""
    pages = publicClasses()
    return [f"[{cls.__name__}]({pages[cls]}.md)" for cls in found.__mro__[1:] if cls in pages]


def example(package, name, found):
    """The section of a page that shows an example, which ran just now, or with the guide that it stands in.

    Raises    ValueError for one that fails, or a name that has none
    """
    text = apiexamples.docExample(found)
    if text:
        wrong = apiexamples.failure(package, name, found)
        if wrong:
            raise ValueError(f"the example of {package}.{name} fails:\n{wrong}")
        return f"```pycon\n{apiexamples.imported(package, text)}\n{text}\n```"
    text = apiexamples.moduleExample(package, name, found)
    if text:
        return f"```python\n{text}\n```"
    block = apiexamples.guideExample(found, GUIDEPAGES)
    if block is None:
        raise ValueError(f"{package}.{name} has no example: a paragraph of its docstring that begins with >>>")
    where = f"From [{block.heading}](../{block.stem}.md#{anchor(block.heading)}), where what it goes on from stands:"
    shown = f"\n\n```text\n{block.output}```" if block.output else ""
    return f"{where}\n\n```python\n{block.text}```{shown}"


def anchor(heading):
    """What a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(package, name, found, texts):
    """The page of one public name."""
    signature, text = signatureOf(found), inspect.getdoc(found) or ""
    body, parts = sections(text)
    kind = "class" if inspect.isclass(found) else "function" if callable(found) else "data"
    names = ", ".join(str(each).split(":")[0] for each in signature.parameters.values()) if signature else ""
    call = f"{package}.{name}({re.sub(r'=.*?(?=,|$)', '', names)})" if kind != "data" else f"{package}.{name}"
    lines = [f"# {name}", f"```{{py:{kind}}} {call}\n```", f"from `{package}`", prose(body)]
    lines += [f"**{title}**: {escape(value)}" for title, value in parts.items()]
    rows = list(argumentRows(signature)) if signature else []
    lines += [f"## Arguments\n\n{table(('argument', 'takes', 'default'), rows)}"] if rows else []
    lines.append(f"## Example\n\n{example(package, name, found)}")
    used = mentions(name, texts)
    lines += [f"## Guides\n\n{', '.join(f'[{stem}](../{stem}.md)' for stem in used)}"] if used else []
    members = list(memberRows(found)) if kind == "class" else []
    lines += [f"## Methods and properties\n\n{table(('', ''), members)}"] if members else []
    bases = basesOf(found) if kind == "class" else []
    lines += [f"It has those of {', '.join(bases)}, too."] if bases else []
    try:
        source = inspect.getsource(found).rstrip()
        where = Path(inspect.getsourcefile(inspect.unwrap(found))).resolve().relative_to(ROOT).as_posix()
        lines.append(f"## Source\n\n`{where}`\n\n````python\n{source}\n````")
    except (OSError, TypeError, ValueError):
        pass
    return "\n\n".join(lines) + "\n"


def referenceIndex(names):
    """The list of all public names, by package, with the first line of each."""
    lines = ["# Reference", "Every public name, with the first line of what it is."]
    for package in PACKAGES:
        rows = []
        for at, name, found in names:
            if at == package:
                first = (inspect.getdoc(found) or "").split("\n")[0]
                rows.append((f"[{name}](reference/{package}.{name}.md)", escape(first)))
        lines.append(f"## {package}\n\n{table(('', ''), rows)}")
    tree = "\n".join(f"reference/{package}.{name}" for package, name, _ in names)
    return "\n\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def modelsPage():
    """The models, each with what its docstring says of shapes, parameters and source."""
    models = importlib.import_module("puregraph.models")
    rows = []
    made = [name for name in models.__all__ if getattr(models, name).__module__.startswith(models.__name__)]
    for name in made:  # a block has its page under puregraph
        body, parts = sections(inspect.getdoc(getattr(models, name)) or "")
        told = [escape(parts.get(title, "")) for title in ("Params", "Source")]
        rows.append(
            (f"[{name}](reference/puregraph.models.{name}.md)", escape(body.split("\n\n")[0].replace("\n", " ")), *told)
        )
    return f"# Models\n\n`from puregraph.models import resnet50`\n\n{table(('', '', 'parameters', 'source'), rows)}\n"


def commandPage():
    """What each command says of itself."""
    from puregraph.cli import parser

    (commands,) = [action.choices for action in parser()._actions if hasattr(action, "choices") and action.choices]
    parts = [f"## {name}\n\n```text\n{command.format_help().rstrip()}\n```" for name, command in commands.items()]
    return "# Command line\n\n" + "\n\n".join(parts) + "\n"


def examplesPage():
    """The scripts of examples/."""
    parts = [
        f"## {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```"
        for path in sorted((ROOT / "examples").glob("*.py"))
    ]
    return "# Examples\n\n" + "\n\n".join(parts) + "\n"


def notebooksPage():
    """The notebooks of examples/notebooks, cell by cell."""
    parts = ["# Notebooks", "Five models from data to results; each is a file of `examples/notebooks/`."]
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            isText = cell["cell_type"] == "markdown"
            parts.append(re.sub(r"^#", "##", text, flags=re.M) if isText else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def relink(path):
    """A page of the repository, with links that hold in the site; what has no page there is named without a link."""

    def changed(match):
        target = (path.parent / match[2]).resolve().relative_to(ROOT)
        up = "../" * max(0, len(path.relative_to(ROOT).parts) - 2)
        if target.parts[0] == "docs" and target.suffix:
            page = target.relative_to("docs").as_posix()
        elif target.parts[:2] == ("docs", "decisions"):
            page = "decisions/index.md"
        elif target.parts[:2] == ("examples", "notebooks"):
            page = "notebooks.md"
        elif target.parts[0] == "examples":
            page = "examples.md"
        elif target.as_posix() in PAGES:
            page = PAGES[target.as_posix()]
        else:
            return match[1]
        return f"[{match[1]}]({up}{page}{match[3] or ''})"

    return LINK.sub(changed, path.read_text(encoding="utf-8"))


def top(names):
    """The first page: the README, and where everything stands."""
    introduction = relink(ROOT / "README.md").split("## Read on")[0].rstrip()
    lines = [introduction.replace('src="docs/', 'src="'), "## Where to read on"]
    lines.append(f"{len(names)} public names, each with a page: [reference](reference.md).")
    for title, stems in GUIDES.items():
        lines.append(f"```{{toctree}}\n:caption: {title}\n:maxdepth: 1\n\n" + "\n".join(stems) + "\n```")
    lines.append("```{toctree}\n:caption: Decisions\n:maxdepth: 1\n\ndecisions/index\n```")
    return "\n\n".join(lines) + "\n"


def write(source):
    """Write all pages of the site into a folder, as Markdown; how many names have one."""
    names, texts = list(publicNames()), guides()
    shutil.copytree(DOCS / "pictures", source / "extra" / "pictures")
    shutil.copytree(DOCS / "static", source / "static")
    shutil.copy(DOCS / "conf.py", source)
    (source / "decisions").mkdir()
    (source / "reference").mkdir()
    for path in DOCS.glob("*.md"):
        if path.stem != "README":
            (source / path.name).write_text(relink(path), encoding="utf-8")
    for path in (DOCS / "decisions").glob("*.md"):
        (source / "decisions" / path.name).write_text(relink(path), encoding="utf-8")
    made = {"index": top(names), "reference": referenceIndex(names), "models": modelsPage()}
    made["decisions/index"] = (
        "# Decisions\n\nWhy it is built like this.\n\n```{toctree}\n:maxdepth: 1\n:glob:\n\n0*\n```\n"
    )
    made |= {"commandline": commandPage(), "examples": examplesPage(), "notebooks": notebooksPage()}
    made |= {stem: relink(ROOT / f"{stem.upper()}.md") for stem in ("contributing", "changelog")}
    for stem, text in made.items():
        (source / f"{stem}.md").write_text(text, encoding="utf-8")
    with working():  # some examples write files
        for package, name, found in names:
            text = page(package, name, found, texts)
            (source / "reference" / f"{package}.{name}.md").write_text(text, encoding="utf-8")
    return len(names)


def missing(folder):
    """What the built pages name and what is not there: links, pictures, styles."""
    found = {}
    for path in sorted(Path(folder).rglob("*.html")):
        for address in ADDRESS.findall(path.read_text(encoding="utf-8")):
            if not (path.parent / unquote(address)).exists():
                found.setdefault(address, path.relative_to(folder))
    return [f"{path}: there is no {address}" for address, path in found.items()]


def main(folder):
    """Write the pages, let Sphinx build them, and look for what they name and do not have."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        source.mkdir()
        count = write(source)
        command = [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-E",
            "-b",
            "html",
            str(source),
            str(folder),
        ]
        result = subprocess.run(command, check=False)
    dead = missing(folder) if result.returncode == 0 else []
    print(*dead, sep="\n", end="\n" if dead else "", file=sys.stderr)
    if result.returncode == 0 and not dead:
        print(f"{folder}: {count} public names, {len(list(Path(folder).rglob('*.html')))} pages")
    return result.returncode or bool(dead)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site"))
