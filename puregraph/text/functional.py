"""The operations on text as functions, under their lowercase names."""

from puregraph.text.add import Add
from puregraph.text.chatcompletion import ChatCompletion
from puregraph.text.deterministicevaluator import DeterministicEvaluator
from puregraph.text.exactmatchevaluator import ExactMatchEvaluator
from puregraph.text.split import Split
from puregraph.text.sum import Sum

add = Add.apply
sum = Sum.apply
split = Split.apply
chat_completion = ChatCompletion.apply
deterministic_evaluator = DeterministicEvaluator.apply
exact_match_evaluator = ExactMatchEvaluator.apply
