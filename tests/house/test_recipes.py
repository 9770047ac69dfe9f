"""Every recipe is short, and the list at the top of the page leads to each of them."""

import ast
import builtins
import re

from pages import ROOT, blocks

TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = {part.split("\n", 1)[0]: part for part in re.split(r"^### ", TEXT, flags=re.M)[1:]}
LONGEST = 15  # lines of code


def anchor(title):
    """What a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_a_recipe_has_at_most_fifteen_lines_of_code():
    for title, recipe in RECIPES.items():
        code = "".join(block.text for block in blocks(recipe) if block.language in ("python", "sh"))
        lines = [line for line in code.splitlines() if line.strip()]
        assert 0 < len(lines) <= LONGEST, f"{title} has {len(lines)} lines"


def test_the_list_at_the_top_leads_to_every_recipe_and_to_nothing_else():
    headings = {anchor(title) for title in re.findall(r"^##+ (.+)$", TEXT, re.M)}
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert links == headings, sorted(links ^ headings)


def test_a_recipe_is_complete_with_the_lines_of_the_first_block():
    first = blocks(re.search(r"^## What all of them use$.*?^## ", TEXT, re.M | re.S)[0])[0].text
    missing = {}
    for title, recipe in RECIPES.items():
        code = "".join(block.text for block in blocks(recipe) if block.language == "python")
        names, made = set(), set(dir(builtins))
        for node in ast.walk(ast.parse(first + code)):
            if isinstance(node, ast.Name):
                (names if isinstance(node.ctx, ast.Load) else made).add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                made.add(node.name)
            elif isinstance(node, ast.arg):
                made.add(node.arg)
            elif isinstance(node, ast.alias):
                made.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.ExceptHandler):
                made.add(node.name)
        if names - made:
            missing[title] = sorted(names - made)
    assert not missing, f"names that are made in another recipe: {missing}"
