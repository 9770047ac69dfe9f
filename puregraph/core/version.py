"""The version of puregraph: of the package, and of every kernel that it keeps on disk."""

__version__ = "0.1.0"
