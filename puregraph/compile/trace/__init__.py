"""From the rules of a graph to calls on Values: tracing, shapes of results, and the schedule of a whole step."""
