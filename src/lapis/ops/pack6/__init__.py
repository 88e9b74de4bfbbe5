"""Four 6-bit integers in three bytes, and back."""

from lapis.ops.pack6.reference import pack6, packed_width, unpack6

__all__ = ["pack6", "packed_width", "unpack6"]
