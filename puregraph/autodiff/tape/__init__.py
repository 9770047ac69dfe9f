"""The tape: Variables record each operation as a node, and the engine runs the nodes backward."""
