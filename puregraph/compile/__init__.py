"""Compile: a graph's whole step as one flat list of calls over planned memory.

schedule   rules are read on tracers that hold no data (`record`, `readers`, `functions`, `reading`; one that
           cannot be read is kept `whole`); forward, backward and update become a list of Calls on Values (`value`)
simplify   equal calls once, unneeded calls not at all
plan       where every Value lies: in the `arena`, in what it is stored to (`targets`), over an argument (`inplace`)
built      the calls bound to the very arrays (`memory`, `bind`, `entry`), ready to be made
program    all of this together, made anew when what it was made from changes (`current`)
"""

from puregraph.compile.cache import Programs, compiled
from puregraph.compile.program import Program
from puregraph.compile.trace.schedule import Schedule, schedule
from puregraph.compile.trace.withcost import dtypesFor, joined
from puregraph.compile.updater import Updater

__all__ = ["Program", "Programs", "Schedule", "Updater", "compiled", "dtypesFor", "joined", "schedule"]
