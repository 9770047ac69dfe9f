"""Eager passes in native code: a large call of a module's rule is compiled once for each module, shape and layout."""
