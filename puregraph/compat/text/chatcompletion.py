"""ChatCompletion: the answer of a language model, and its feedback to everything that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.text.client import Client, ask, backward_client, texts
from puregraph.compat.text.function import TextFunction, feedback, flatten, is_empty, need_text, role_of, said, value_of
from puregraph.compat.text.template import Message, fill, fill_messages, names, tagged
from puregraph.graph.function import Context, isHole

if TYPE_CHECKING:
    from collections.abc import Mapping

Part = tuple[str, Any]  # a description, for a part without a role, and the part


class ChatCompletion(TextFunction):
    """y = client(messages): the answer of a language model to messages.

    `forward_model_client`   any callable `client(messages, **completion_args)` that takes a list of
                             `{"role": text, "content": text}` and returns a text
    `messages`               such a list; a content is a text, a Variable, or a list of them, a line each
    `inputs`                 values for the fields of the messages, `{question}`; a list is a batch: one answer each
    `backward_model_client`  the client that gives feedback; by default the one of `set_backward_model_client`

    Backward asks for one feedback per Variable that needs it, as a JSON list, at most three times. The words are those
    of `template`. Feedback that says nothing is passed on without asking.

    Shapes    texts -> a text, or a list of as many as there are in the lists of `inputs`
    Raises    TypeError for messages of another form, ValueError for an input without a field; AutoDiffException
              for an answer that is no text, and in backward where no answer can be used
    """

    template: list[Message] = [
        {
            "role": "system",
            "content": "You review what a language model was given. Below are one or more conversations, what the "
            "model answered, and feedback on its answers. For each numbered text say how it should change so that "
            "the answers would be as the feedback wants them. Reply with a JSON list of {count} texts, in the order "
            "of the numbers, and with nothing else.",
        },
        {"role": "user", "content": "{conversations}\n{feedback}\n{texts}"},
    ]

    @classmethod
    def forward(  # type: ignore[override]
        cls,
        ctx: Context,
        forward_model_client: Client,
        messages: list[dict[str, Any]],
        inputs: Mapping[str, object] | None = None,
        backward_model_client: Client | None = None,
        **completion_args: Any,
    ) -> Any:
        """Return the answer, or a list of answers to a batch."""
        parts = parts_of(messages, inputs or {})
        conversations, is_batch = composed(messages, inputs or {})
        answers = [need_text(forward_model_client(conversation, **completion_args)) for conversation in conversations]
        shown = [(role_of(part, name), value_of(part)) for name, part in parts]
        ctx.save_for_backward(shown, conversations, answers, backward_model_client)
        return said(ctx, answers if is_batch else answers[0], "the answer of the language model")

    @classmethod
    def backward(cls, ctx: Context, grad: Any) -> tuple:
        """Return feedback for each text that needs it."""
        shown, conversations, answers, client = ctx.saved_variables
        arguments, received = cls.given(ctx), value_of(grad)
        messages, inputs = arguments["messages"], arguments.get("inputs") or {}
        wanted = [needs_feedback(part) for _, part in parts_of(messages, inputs)]
        chosen = [text for text, needed in zip(shown, wanted) if needed]
        replies = [""] * len(chosen)
        if chosen and not is_empty(received):
            values = {
                "count": len(chosen),
                "conversations": "\n".join(map(report, conversations, answers)),
                "feedback": listing("FEEDBACK", received),
                "texts": "\n".join(tagged("TEXT", t, number=n, role=r) for n, (r, t) in enumerate(chosen, 1)),
            }
            label = f"{cls.__name__}.backward"
            asked = fill_messages(cls.template, values)
            replies = ask(backward_client(client, label), asked, lambda answer: texts(answer, len(chosen)), label)
        remaining = iter(replies)
        grads = iter(
            [feedback(ctx, next(remaining), role) if needed else None for (role, _), needed in zip(shown, wanted)]
        )
        return cls.grads(
            ctx, messages=[mirrored(message, grads) for message in messages], inputs={k: next(grads) for k in inputs}
        )


def parts_of(messages: object, inputs: Mapping[str, object]) -> list[Part]:
    """Return everything that the answer depends on: the contents of messages, then the inputs, in order."""
    if not isinstance(messages, (list, tuple)) or not all(is_message(m) for m in messages) or not messages:
        raise TypeError(f'ChatCompletion: wanted messages [{{"role": ..., "content": ...}}, ...], got {messages!r:.80}')
    contents = [
        (f"message {number}, by {value_of(message['role'])}", part)
        for number, message in enumerate(messages, 1)
        for part in flatten(message["content"])
    ]
    return contents + [(f"input {name}", value) for name, value in inputs.items()]


def is_message(message: object) -> bool:
    """True for a dict with the keys of a message."""
    return isinstance(message, dict) and "role" in message and "content" in message


def needs_feedback(part: object) -> bool:
    """True for a Variable that needs a gradient, and for the value of a graph's node."""
    return part.requires_grad if isinstance(part, Variable) else isHole(part)


def composed(messages: list[dict[str, Any]], inputs: Mapping[str, object]) -> tuple[list[list[Message]], bool]:
    """Return the conversations as bare text, one per row of the inputs, and True if the inputs are a batch."""
    values = {name: value_of(v) for name, v in inputs.items()}
    templates = [(str(value_of(m["role"])), content_of(m["content"])) for m in messages]
    unused = [name for name in values if not any(name in names(text) for _, text in templates)]
    if unused:
        raise ValueError(
            f"ChatCompletion: no message has a field for input {unused[0]!r}: write {{{unused[0]}}} in one"
        )
    sizes = {len(v) for v in values.values() if isinstance(v, list)}
    if len(sizes) > 1 or sizes == {0}:
        raise ValueError(f"ChatCompletion: wanted inputs of one length, got lengths {sorted(sizes)}")
    rows = [
        {name: v[row] if isinstance(v, list) else v for name, v in values.items()}
        for row in range(max(sizes, default=1))
    ]
    return [[{"role": r, "content": fill(text, row)} for r, text in templates] for row in rows], bool(sizes)


def content_of(content: object) -> str:
    """A content as one text, a line for each part."""
    parts = [value_of(part) for part in flatten(content)]
    wrong = [part for part in parts if not isinstance(part, str)]
    if wrong:
        raise TypeError(
            f"ChatCompletion: a content is text, got {type(wrong[0]).__name__}: {wrong[0]!r:.80}; "
            "a batch is given in inputs"
        )
    return "\n".join(parts)


def mirrored(message: dict[str, Any], grads: Iterator[Any]) -> dict[str, Any]:
    """A message with gradients in place of its contents' parts, and None elsewhere."""
    return {key: placed(content, grads) if key == "content" else None for key, content in message.items()}


def placed(content: object, grads: Iterator[Any]) -> Any:
    """The gradients of a content's parts, in lists as the parts are."""
    return [placed(part, grads) for part in content] if isinstance(content, (list, tuple)) else next(grads)


def report(conversation: list[Message], answer: str) -> str:
    """A conversation and its answer, formatted for the model that gives feedback."""
    lines = [tagged("MESSAGE", message["content"], by=message["role"]) for message in conversation]
    return "\n".join(["<CONVERSATION>", *lines, "</CONVERSATION>", tagged("ANSWER", answer)])


def listing(tag: str, value: object) -> str:
    """A text, or a numbered one for each row of a batch."""
    if not isinstance(value, list):
        return tagged(tag, value)
    return "\n".join(tagged(tag, row, answer=number) for number, row in enumerate(value, 1))
