"""Order: sorting along an axis, and the largest or smallest elements, with their indices."""
