"""The operations on text as functions, under their lowercase names."""

from puregraph.compat.text.add import Add
from puregraph.compat.text.chatcompletion import ChatCompletion
from puregraph.compat.text.deterministicevaluator import DeterministicEvaluator
from puregraph.compat.text.exactmatchevaluator import ExactMatchEvaluator
from puregraph.compat.text.split import Split
from puregraph.compat.text.sum import Sum

add = Add.apply
sum = Sum.apply
split = Split.apply
chat_completion = ChatCompletion.apply
deterministic_evaluator = DeterministicEvaluator.apply
exact_match_evaluator = ExactMatchEvaluator.apply
