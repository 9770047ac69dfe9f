"""Write docs/coming.md: what the names of PyTorch, Keras and PuzzleLib are called here, from core/counterparts.py.

python scripts/coming.py
"""

from pathlib import Path

from puregraph import block
from puregraph.core.counterparts import TABLE, rows

PAGE = Path(__file__).parent.parent / "docs" / "coming.md"
HEAD = """# What is called what

What stands here for every public name of PyTorch's modules, functions and optimizers, of Keras' layers, costs, metrics
and optimizers, and of PuzzleLib: written by `scripts/coming.py`. Tests make everything in the second column. A function
there is a module here, called at once: `Relu()(x)` takes arrays, Variables and nodes. Importing one of these names from
`puregraph` says what it is called. How programs change: [comingfrom.md](comingfrom.md), [puzzlelib.md](puzzlelib.md).

| kind | |
|---|---|
| same | a class or function here |
| set | one with these arguments, or several of them |
| block | a function that makes a Graph of several modules |
| formula | an elementwise expression, with its derivatives |
| numpy | a function of numpy on Variables |
| none | nothing here, and why |
"""


COMPARED = {
    "keras.layers": "113 of them are compared with Keras 3.15.1 in 264 settings: shapes ahead of data, and values in"
    " float64 to 1e-10 with the same weights, random ones in evaluation (`tests/modules/test_keras.py`)."
}


def kindOf(one):
    """Return the kind of a Counterpart, as in the table of the page's head."""
    starts = {"Pointwise": "formula", "np.": "numpy"}
    if not one.here:
        return "none"
    if one.here.partition("(")[0] in block.__all__:
        return "block"
    return next((kind for start, kind in starts.items() if one.here.startswith(start)), None) or (
        "same" if one.here.isidentifier() else "set"
    )


def code(text):
    """Return a text as code in a table."""
    return f"`{text}`"


def section(title, text):
    """Return the table of one package: names that are the same first, in one row for each kind."""
    made = rows(text)
    alike = [row[0] for row in made if row[0].here == row[0].name and len(row) == 1]
    lines = ["| there | here | kind | |", "|---|---|---|---|"]
    for kind in ("same", "block"):
        names = [code(one.name) for one in alike if kindOf(one) == kind]
        lines += [f"| {' '.join(names)} | the same names | {kind} | |"] if names else []
    for row in made:
        if row[0] not in alike:
            names = " ".join(code(one.name) for one in row)
            lines.append(f"| {names} | {code(row[0].here) if row[0].here else ''} | {kindOf(row[0])} | {row[0].note} |")
    every = [one for row in made for one in row]
    here = sum(bool(one.here) for one in every)
    counted = " ".join([f"{len(every)} names, {here} of them here.", *filter(None, [COMPARED.get(title)])])
    return f"\n## {title}\n\n{counted}\n\n" + "\n".join(lines) + "\n"


def page():
    """Return the text of the page."""
    return HEAD + "".join(section(title, text) for title, text in TABLE.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
