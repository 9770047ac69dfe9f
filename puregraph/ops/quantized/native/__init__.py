"""Native code for products and convolutions of bytes."""
