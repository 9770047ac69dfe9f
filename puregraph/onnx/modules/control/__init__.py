"""Modules that run graphs of their own: one of two, or one again and again."""
