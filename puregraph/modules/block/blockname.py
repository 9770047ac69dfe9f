"""blockNamed: a decorator that has listings call a Graph by the function that made it."""

import functools


def blockNamed(make):
    """Decorate a function that makes a Graph: listings, summaries and pictures then show its name as the module."""

    @functools.wraps(make)
    def made(*args, **kwargs):
        graph = make(*args, **kwargs)
        graph.blockName = make.__name__
        return graph

    return made
