"""Common foundations: locks, signals, environment variables, budgets, aligned memory, attribute checks."""
