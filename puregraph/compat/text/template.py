"""Templates: texts with fields in braces, `{role}`, that are filled at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FIELD = re.compile(r"\{(\w+)\}")
Message = dict[str, str]


def fill(template: str, values: Mapping[str, object]) -> str:
    """Fill in the fields of a template. A value's content is never treated as a field; unknown fields stay."""
    return FIELD.sub(lambda match: str(values.get(match[1], match[0])), template)


def fill_messages(template: list[Message], values: Mapping[str, object]) -> list[Message]:
    """The messages of a template, each with its fields filled."""
    return [{key: fill(text, values) for key, text in message.items()} for message in template]


def names(template: str) -> set[str]:
    """The names in braces."""
    return set(FIELD.findall(template))


def tagged(tag: str, text: object, **attributes: Any) -> str:
    """`<TAG name="value">text</TAG>`, how texts are kept apart inside a message."""
    inside = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{inside}>{text}</{tag}>"
