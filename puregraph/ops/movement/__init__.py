"""Movement: views, copies, joined and split arrays, padding: elements change their positions alone."""
