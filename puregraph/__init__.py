"""Networks as graphs of nodes: checked, measured and compiled before the first batch."""

__version__ = "0.1.0"
