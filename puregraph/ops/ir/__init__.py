"""The intermediate form of a compiled step: values, calls, strides, and what a lowering is given."""
