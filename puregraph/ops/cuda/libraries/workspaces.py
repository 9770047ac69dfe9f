"""Known cuDNN plans, for machines without cuDNN: the workspaces of all tasks of the known models on an H200.

The file is generated, and compared with cuDNN's answers, by `scripts/plans.py`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "workspaces.json"
KINDS = ("float32", "tf32", "float16", "bfloat16")


def known(text: str) -> int | None:
    """The bytes of workspace of a task as text; None if it has no plan, 0 if the task is unknown."""
    kind, _, taskText = text.partition(" ")
    sizes = table().get(taskText)
    return 0 if sizes is None or kind not in KINDS else sizes[KINDS.index(kind)]


@cache
def table() -> dict[str, list[int | None]]:
    """For each task, without its dtype, the workspace for each dtype."""
    return json.loads(FILE.read_text())["workspaces"]


def written(made: dict[str, int | None], label: str) -> str:
    """Workspaces by task as text, one line a task, as the content of the file."""
    rests = sorted({text.partition(" ")[2] for text in made})
    lines = [
        f"  {json.dumps(taskText)}: {json.dumps([made[f'{kind} {taskText}'] for kind in KINDS])}" for taskText in rests
    ]
    head = f'{{\n "planner": {json.dumps(label)},\n "kinds": {json.dumps(KINDS)},\n "workspaces": {{\n'
    return head + ",\n".join(lines) + "\n }\n}\n"
