"""`python -m puregraph`."""

from puregraph.cli import runProcess

runProcess()
