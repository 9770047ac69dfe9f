"""The intermediate form: Values and Calls, strides, arrays from outside, and a schedule as text."""
