"""A deployed network in one file, and back: the same network, bit for bit. Neither way needs torch."""

from lapis.pack.reader import is_packed, load
from lapis.pack.writer import pack, save

__all__ = ["is_packed", "load", "pack", "save"]
