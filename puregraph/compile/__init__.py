"""Compile: a graph's whole step as one flat list of calls over planned memory.

trace      the rules of a graph are called once on tracers that hold no data, and become calls on Values (`ir`)
passes     from schedule to schedule: `pipeline` lists them for each backend, in their order
lower      calls become native kernels; `gpu` has the same for launches and NVIDIA's libraries
memory     where every Value is stored: in one arena, over an argument, in a parameter
runtime    calls bound to their arrays, ready to run, and checks whether they are still valid
report     tables, formulas and drawings of a program
program    all of this together, compiled again when what it was compiled from changes
"""

from puregraph.compile.cache import Programs, compiled
from puregraph.compile.pipeline import schedule
from puregraph.compile.program import Program
from puregraph.compile.trace.schedule import Schedule
from puregraph.compile.trace.withcost import withCost
from puregraph.compile.updater import Updater

__all__ = ["Program", "Programs", "Schedule", "Updater", "compiled", "withCost", "schedule"]
