"""Passes over a schedule: each is a function from calls to calls."""
