"""Tracing: from the rules of a graph to calls on Values, the shapes of results, and the schedule of a step."""
