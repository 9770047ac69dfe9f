"""PTX: translates `asm` statements to calls of functions that emulate the instruction.

    asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory");    ->    ptx::cp_async_wait_group(HERE, later);

A function has the name of the instruction, and its operands in the order of the text, so an operand at the wrong
position is detected here, too. The functions are in `ptx.h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from puregraph.core.errors import DeviceError

STATEMENT = re.compile(r"\basm\b(\s+volatile\b)?\s*(?=\()")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
OPERAND = re.compile(r'\s*"([=+]?)\w"\s*\((.*)\)\s*', re.DOTALL)
INDEX = re.compile(r"%(\d+)|\b(\d+)\b")
MOVES = ("cp.", "ldmatrix.", "griddepcontrol.wait")  # instructions that move memory behind the compiler's back


@cache
def ownText(name: str) -> str:
    """The text of a C file in this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def translated(text: str) -> str:
    """A text with its `asm` statements replaced by calls; line numbers stay the same.

    Raises    DeviceError for an instruction that the emulator does not support
    """
    parts, done = [], 0
    for match in STATEMENT.finditer(text):
        end = closing(text, match.end())
        statement = text[match.end() + 1 : end]
        parts += [text[done : match.start()], call(statement, match[1] is not None), "\n" * statement.count("\n")]
        done = end + 1
    return "".join([*parts, text[done:]])


def call(statement: str, isVolatile: bool) -> str:
    """The call for the contents of the parentheses of an asm statement."""
    sections = list(split(statement, ":"))
    instruction = "".join(LITERAL.findall(sections[0])).strip()
    name, _, operandText = instruction.removesuffix(";").partition(" ")
    if instruction.count(";") != 1 or not instruction.endswith(";"):
        raise DeviceError(f"wanted one instruction in an asm statement, got {instruction!r}")
    function = name.replace(".", "_")
    if not re.search(rf"\b{function}\b", ownText("ptx.h")):
        raise DeviceError(f"the emulator has no {name}: give it a meaning in ptx.h")
    clobbers = LITERAL.findall(sections[3]) if len(sections) > 3 else []
    if name.startswith(MOVES) and not (isVolatile and "memory" in clobbers):
        raise DeviceError(f'{name} moves memory: its asm statement must be volatile, with "memory" behind its operands')
    operands = [operand(text) for section in sections[1:3] for text in split(section, ",") if text.strip()]
    args = [operands[int(index)] if index else number for index, number in INDEX.findall(operandText)]
    return f"ptx::{function}({', '.join(['HERE', *args])})"


def operand(text: str) -> str:
    """The C expression of an operand."""
    match = OPERAND.fullmatch(text)
    if match is None:
        raise DeviceError(f'wanted an operand of an asm statement, such as "r"(x), got {text.strip()!r}')
    return f"({match[2]})"


def split(text: str, by: str) -> Iterator[str]:
    """Parts of C between a character, where that is outside parentheses and literals."""
    start = depth = 0
    literal = False
    for i, c in enumerate(text):
        literal ^= c == '"'
        depth += not literal and (c in "([{") - (c in ")]}")
        if c == by and not literal and not depth:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def closing(text: str, start: int) -> int:
    """The index of the parenthesis that closes the one at `start`."""
    depth, literal = 0, False
    for i in range(start, len(text)):
        literal ^= text[i] == '"'
        depth += not literal and (text[i] == "(") - (text[i] == ")")
        if not depth and not literal:
            return i
    raise DeviceError("a parenthesis is not closed in the text of a kernel")
