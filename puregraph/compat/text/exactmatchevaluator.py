"""ExactMatchEvaluator: 1 where a prediction equals its target, else 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.compat.text.client import Client
from puregraph.compat.text.deterministicevaluator import DeterministicEvaluator
from puregraph.graph.function import Context


class ExactMatchEvaluator(DeterministicEvaluator):
    """score = sum over rows of [prediction = target], explanation; as `DeterministicEvaluator` otherwise.

    It is a success when all match, unless `success_fn` says otherwise.

    Shapes    two values -> two values
    """

    @classmethod
    def forward(  # type: ignore[override]
        cls,
        ctx: Context,
        prediction: Any,
        target: Any,
        reduction_fn: Callable[[list[Any]], Any] | None = sum,
        reduction_fn_purpose: Any = "their sum",
        success_fn: Callable[[list[Any]], bool] | None = all,
        backward_model_client: Client | None = None,
    ) -> tuple:
        """The score and the explanation."""
        return super().forward(
            ctx,
            prediction,
            target,
            lambda p, t: int(p == t),
            "exact match with the target",
            success_fn,
            reduction_fn,
            reduction_fn_purpose,
            backward_model_client,
        )
