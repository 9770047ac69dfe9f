"""Compile: turn a graph's training or inference step into one flat list of calls over planned memory.

trace      calls the rules of a graph once on tracers without data, which records calls on Values (`ir`)
passes     transform a schedule; `pipeline` lists them in order for each backend
lower      turns calls into native kernels; `gpu` does the same for launches and NVIDIA's libraries
memory     plans the location of every Value: in one arena, over an argument, in a parameter
runtime    binds calls to arrays, runs them, and checks that a program is still valid
report     tables, formulas and drawings of a program
program    combines all of these, and compiles again when the graph, a parameter or the optimizer changes
"""

from puregraph.compile.cache import Programs, compile
from puregraph.compile.pipeline import schedule
from puregraph.compile.program import Program
from puregraph.compile.trace.schedule import Schedule
from puregraph.compile.trace.withcost import withCost
from puregraph.compile.updater import Updater

__all__ = ["Program", "Programs", "Schedule", "Updater", "compile", "compiled", "withCost", "schedule"]

compiled = compile  # the former name
