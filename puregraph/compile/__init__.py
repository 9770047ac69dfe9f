"""Compile: a graph's whole step as one flat list of calls over planned memory.

schedule   rules are read on stand-ins that hold no data (`record`, `readers`, `functions`, `reading`; one that
           cannot be read is kept `whole`); forward, backward and update become a list of Calls on Values (`value`)
simplify   equal calls once, unneeded calls not at all
"""

from puregraph.compile.schedule import Schedule, schedule

__all__ = ["Schedule", "schedule"]
