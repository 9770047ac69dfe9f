"""Text on the tape: operations whose gradients are feedback in words, and an optimizer that follows it.

Any callable serves as the language model: `client(messages) -> text`. Importing this brings `+` on Variables of text.
"""

from puregraph.compat.text import functional
from puregraph.compat.text.add import Add
from puregraph.compat.text.chatcompletion import ChatCompletion
from puregraph.compat.text.client import set_backward_model_client
from puregraph.compat.text.deterministicevaluator import DeterministicEvaluator
from puregraph.compat.text.exactmatchevaluator import ExactMatchEvaluator
from puregraph.compat.text.function import TextFunction
from puregraph.compat.text.split import Split
from puregraph.compat.text.sum import Sum
from puregraph.compat.text.tgd import TGD

__all__ = [
    "TGD",
    "Add",
    "ChatCompletion",
    "DeterministicEvaluator",
    "ExactMatchEvaluator",
    "Split",
    "Sum",
    "TextFunction",
    "functional",
    "set_backward_model_client",
]
