"""Model clients: any callable that takes messages and returns a text, and how it is asked for feedback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from puregraph.compat.text.template import Message
from puregraph.core.errors import AutoDiffException

Client = Callable[..., str]
TRIES = 3
AGAIN = "That answer cannot be used: {fault}. Answer once more, in the form that was asked for."


class set_backward_model_client:  # noqa: N801 - afnio's name
    """Have a client give feedback from now on; as `with set_backward_model_client(client):` until the block ends.

    `client(messages)` takes a list of `{"role": "system" | "user" | "assistant", "content": text}`, returns a text.
    """

    chosen: Client | None = None

    def __init__(self, client: Client | None):
        self.before = set_backward_model_client.chosen
        set_backward_model_client.chosen = client

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        set_backward_model_client.chosen = self.before


def backward_client(own: Client | None, label: str) -> Client:
    """Return the client of an operation: its own, or else the one that was set.

    Raises    AutoDiffException if there is neither
    """
    client = own or set_backward_model_client.chosen
    if client is None:
        raise AutoDiffException(
            f"{label}: nobody gives feedback: call set_backward_model_client(client), or hand it over as "
            "backward_model_client=client; any callable client(messages) -> text will do"
        )
    return client


def ask(client: Client, messages: list[Message], read: Callable[[Any], Any], label: str, **options: object) -> Any:
    """Return the answer of a client, parsed by `read`. If either raises, ask again, up to three times in all.

    Raises    AutoDiffException, from the last error, when no answer could be used
    """
    error: Exception | None = None
    asked = messages
    for _ in range(TRIES):
        try:
            answer = client(asked, **options)
        except Exception as failure:
            error = failure
            continue
        try:
            return read(answer)
        except Exception as fault:
            error = fault
            again = AGAIN.replace("{fault}", str(fault))
            asked = [*messages, {"role": "assistant", "content": str(answer)}, {"role": "user", "content": again}]
    raise AutoDiffException(
        f"{label}: the model client gave no answer that can be used in {TRIES} tries; "
        f"the last time: {type(error).__name__}: {error}"
    ) from error


def texts(answer: object, count: int) -> list[str]:
    """The texts of an answer that holds a JSON list of them, and maybe words around it.

    Raises    ValueError for anything else, or another number of texts
    """
    if not isinstance(answer, str):
        raise ValueError(f"wanted a text, got {type(answer).__name__}")
    try:
        items = json.loads(answer[answer.index("[") : answer.rindex("]") + 1])
    except (ValueError, RecursionError):
        raise ValueError(f"wanted a JSON list of {count} texts, got {answer!r:.80}") from None
    if len(items) != count or not all(isinstance(text, str) for text in items):
        raise ValueError(f"wanted a JSON list of {count} texts, got {items!r:.80}")
    return items


def lone_text(answer: object) -> str:
    """Return the only text of an answer, which may be a JSON list of one text.

    Raises    ValueError for anything else, or an empty text
    """
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"wanted a text, got {answer!r:.80}")
    try:
        return texts(answer, 1)[0]
    except ValueError:
        return answer.strip()
