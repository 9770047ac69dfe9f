"""DeterministicEvaluator: a score by a function, feedback by a language model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compat.text.client import Client, ask, backward_client, lone_text
from puregraph.compat.text.function import TextFunction, feedback, on_tape, role_of, said, value_of
from puregraph.compat.text.template import Message, fill_messages, tagged
from puregraph.graph.function import Context

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeterministicEvaluator(TextFunction):
    """score = reduction_fn([eval_fn(p, t), ...]), explanation: the quality of a prediction, and the reason in words.

    `prediction`, `target`   a text each, or lists of one length; of single ones the score is `eval_fn(p, t)` itself
    `eval_fn_purpose`        what `eval_fn` measures, in words
    `success_fn`             takes the list of scores: True where nothing needs to change
    `reduction_fn`           makes one score of a list of them; None keeps the list
    `backward_model_client`  the client that gives feedback; by default the one of `set_backward_model_client`

    `explanation.backward()` needs no gradient: it asks for feedback to the prediction, in the words of `template`,
    three times at most. After success no client is asked, and the feedback is the empty text.

    Shapes    two values -> two values
    Raises    ValueError for lists of two lengths; AutoDiffException, in backward, where no answer can be used

    >>> from puregraph.autodiff import Variable
    >>> score, explanation = DeterministicEvaluator.apply(
    ...     Variable("1932", requires_grad=True, role="a year"),
    ...     "1932",
    ...     lambda answer, wanted: float(answer == wanted),
    ...     "equality",
    ...     lambda scores: min(scores) == 1,
    ... )
    >>> float(score.data)
    1.0
    """

    outputNames = ("score", "explanation")
    template: list[Message] = [
        {
            "role": "system",
            "content": "You review what a program produced. Its output was measured by this: {purpose}. Say in a few "
            "sentences what is wrong with the output, and how it should change to score better. "
            "Reply with that feedback alone.",
        },
        {"role": "user", "content": "{outputs}\n{explanation}\n{feedback}"},
    ]

    @classmethod
    def forward(
        cls,
        ctx: Context,
        prediction: Any,
        target: Any,
        eval_fn: Callable[[Any, Any], Any],
        eval_fn_purpose: Any,
        success_fn: Callable[[list[Any]], bool] | None = None,
        reduction_fn: Callable[[list[Any]], Any] | None = sum,
        reduction_fn_purpose: Any = "",
        backward_model_client: Client | None = None,
    ) -> tuple:
        """The score and the explanation."""
        predicted, wanted, purpose = map(value_of, (prediction, target, eval_fn_purpose))
        is_batch = isinstance(predicted, list) or isinstance(wanted, list)
        if is_batch and not (
            isinstance(predicted, list) and isinstance(wanted, list) and len(predicted) == len(wanted)
        ):
            raise ValueError(
                f"{cls.__name__}: wanted one target per prediction, got {wanted!r:.60} for {predicted!r:.60}"
            )
        rows = list(zip(predicted, wanted)) if is_batch else [(predicted, wanted)]
        scores = [eval_fn(p, t) for p, t in rows]
        score = scores[0] if not is_batch else scores if reduction_fn is None else reduction_fn(scores)
        explanation = explained(purpose, scores, score if is_batch else None, value_of(reduction_fn_purpose))
        is_success = success_fn is not None and bool(success_fn(scores))
        role = role_of(prediction, "the prediction")
        ctx.save_for_backward(role, rows, purpose, explanation, is_success, backward_model_client)
        outputs = (
            said(ctx, score if on_tape(ctx) else array(score), f"score of {role}"),
            said(ctx, explanation, f"explanation of the score of {role}"),
        )
        ctx.mark_non_differentiable(outputs[0])
        return outputs

    @classmethod
    def backward(cls, ctx: Context, score: Any, grad: Any) -> tuple:
        """Feedback to the prediction; the target gets none."""
        role, rows, purpose, explanation, is_success, client = ctx.saved_variables
        if not cls.needs(ctx, "prediction"):
            return cls.grads(ctx)
        text = ""
        if not is_success:
            received = value_of(grad)
            values = {
                "purpose": purpose,
                "outputs": "\n".join(tagged("OUTPUT", p, role=role) + tagged("TARGET", t) for p, t in rows),
                "explanation": tagged("EXPLANATION", explanation),
                "feedback": tagged("FEEDBACK", received) if received else "",
            }
            label = f"{cls.__name__}.backward"
            text = ask(backward_client(client, label), fill_messages(cls.template, values), lone_text, label)
        return cls.grads(ctx, prediction=feedback(ctx, text, role))


def explained(purpose: str, scores: Sequence[object], total: Any, reduction: str) -> str:
    """The score in words."""
    if total is None:
        return f"The score for {purpose} is {scores[0]}."
    how = f" ({reduction})" if reduction else ""
    return f"The score for {purpose} is {total}{how}; one by one: {', '.join(map(str, scores))}."


def array(score: Any) -> Any:
    """Convert a number to a numpy scalar, as graphs expect; other scores are returned unchanged."""
    return np.asarray(score)[()] if isinstance(score, (bool, int, float)) else score
