"""Text on the tape: operations whose gradients are feedback in words, and an optimizer that follows it.

Any callable serves as the language model: `client(messages) -> text`. Importing this brings `+` on Variables of text.
"""

from puregraph.text import functional
from puregraph.text.add import Add
from puregraph.text.chatcompletion import ChatCompletion
from puregraph.text.client import set_backward_model_client
from puregraph.text.deterministicevaluator import DeterministicEvaluator
from puregraph.text.exactmatchevaluator import ExactMatchEvaluator
from puregraph.text.function import TextFunction
from puregraph.text.split import Split
from puregraph.text.sum import Sum
from puregraph.text.tgd import TGD

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
