"""TGD: textual gradient descent. A language model rewrites texts by the feedback that they got."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.text.client import Client, ask
from puregraph.compat.text.function import flatten, role_of, value_of
from puregraph.compat.text.template import Message, fill_messages, tagged


class TGD:
    """text <- client(text, feedback): each step has a language model rewrite every text that got feedback.

        optimizer = TGD([prompt], client, momentum=2)
        optimizer.zero_grad()
        explanation.backward()
        optimizer.step()

    `params`        Variables of text that require gradients
    `model_client`  any callable `client(messages, **options)` that returns the new text, alone or in <NEW>...</NEW>
    `momentum`      the number of past steps whose feedback is shown again
    `constraints`   texts: rules that every new text must follow
    `messages`      in place of `template`; the fields are {role}, {text}, {feedback}, {past} and {constraints}

    `state` holds the feedback of past steps, a list per parameter, the latest last.

    Source    Yuksekgonul et al. 2024, arXiv:2406.07496, section 3 (a step along the textual gradient, and momentum)
    Raises    TypeError for a parameter that is no text, ValueError for one that needs no gradient
    """

    template: list[Message] = [
        {
            "role": "system",
            "content": "You rewrite a text so that it answers the feedback that it got. Keep what the feedback does "
            "not touch. Reply with the new text alone, between <NEW> and </NEW>.",
        },
        {
            "role": "user",
            "content": '<TEXT role="{role}">{text}</TEXT>\n<FEEDBACK>{feedback}</FEEDBACK>\n{past}\n{constraints}',
        },
    ]

    def __init__(
        self,
        params: Iterable[Variable],
        model_client: Client,
        momentum: int = 0,
        constraints: Sequence[Any] = (),
        messages: list[Message] | None = None,
        **options: Any,
    ):
        self.params = [params] if isinstance(params, Variable) else list(params)
        for param in self.params:
            check(param)
        if not self.params:
            raise ValueError("TGD: wanted at least one parameter, got none")
        if isinstance(momentum, bool) or not isinstance(momentum, int) or momentum < 0:
            raise ValueError(f"TGD: wanted momentum, a number of steps of at least 0, got {momentum!r}")
        self.model_client, self.momentum, self.options = model_client, momentum, options
        self.constraints = [value_of(constraint) for constraint in constraints]
        self.messages = self.template if messages is None else messages
        self.state: list[list[str]] = [[] for _ in self.params]

    def zero_grad(self) -> None:
        """Clear the feedback of all parameters."""
        for param in self.params:
            param.zero_grad()

    def step(self) -> bool:
        """Rewrite every parameter with nonempty feedback. Returns True if there was one.

        Raises    AutoDiffException where no answer can be used; no parameter is changed then
        """
        rewritten = []
        for index, param in enumerate(self.params):
            said = "\n".join([text for g in param.grad for text in flatten(value_of(g)) if text])
            if said:
                rewritten.append((index, said, self.rewrite(param, said, self.state[index])))
        for index, said, text in rewritten:
            self.params[index].data = text
            past = [*self.state[index], said]
            self.state[index] = past[len(past) - min(self.momentum, len(past)) :]
        return bool(rewritten)

    def rewrite(self, param: Variable, said: str, past: list[str]) -> str:
        """Ask for the new text of a parameter."""
        values = {
            "role": role_of(param, "a text"),
            "text": param.data,
            "feedback": said,
            "past": "\n".join(tagged("EARLIER", text, steps=len(past) - n) for n, text in enumerate(past)),
            "constraints": "\n".join(tagged("CONSTRAINT", text) for text in self.constraints),
        }
        label = f"TGD, rewriting {values['role']}"
        return ask(self.model_client, fill_messages(self.messages, values), new_text, label, **self.options)

    def state_dict(self) -> dict[str, Any]:
        """The state for `load_state_dict`; it can be written as JSON."""
        return {"momentum": self.momentum, "state": copy.deepcopy(self.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of another optimizer's `state_dict()`.

        Raises    ValueError for the state of another number of parameters
        """
        past = state["state"]
        if len(past) != len(self.params):
            raise ValueError(f"TGD: wanted the state of {len(self.params)} parameters, got that of {len(past)}")
        self.momentum, self.state = state["momentum"], copy.deepcopy(past)


def check(param: Any) -> None:
    """Refuse a parameter that cannot be rewritten."""
    if not isinstance(param, Variable) or not isinstance(param.data, str):
        kind = type(value_of(param)).__name__
        raise TypeError(f"TGD: a parameter is a Variable of text, got {kind}: {value_of(param)!r:.80}")
    if not (param.requires_grad and param.is_leaf):
        raise ValueError(f"TGD: a parameter is a leaf with requires_grad=True, got {param!r:.120}")


def new_text(answer: Any) -> str:
    """Extract the new text of an answer: the text between <NEW> and </NEW>, or else all of it.

    Raises    ValueError for anything but a text, and for an empty one
    """
    if not isinstance(answer, str):
        raise ValueError(f"wanted a text, got {type(answer).__name__}")
    start, end = answer.find("<NEW>"), answer.rfind("</NEW>")
    text = (answer[start + len("<NEW>") : end] if 0 <= start < end else answer).strip()
    if not text:
        raise ValueError("wanted a new text, got an empty one")
    return text
