"""The intermediate form: Values and Calls, strides, external arrays, and a schedule as text."""
