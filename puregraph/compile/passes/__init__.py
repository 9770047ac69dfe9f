"""Passes over a schedule; each pass is a function from schedule to schedule."""
