"""Passes of GPU programs only; each is a function from schedule to schedule."""
