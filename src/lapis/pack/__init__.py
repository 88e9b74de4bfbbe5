"""Write a deployed network to one file and read it back, bit for bit the same. Torch is not needed."""

from lapis.pack.reader import PackedFile, is_packed, load
from lapis.pack.writer import pack, save

__all__ = ["PackedFile", "is_packed", "load", "pack", "save"]
