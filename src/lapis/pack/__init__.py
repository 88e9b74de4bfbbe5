"""A deployed network in one file, and back: the same network, bit for bit. Neither way needs torch."""

from lapis.pack.format import METADATA_KEY
from lapis.pack.reader import is_packed, load, read_metadata
from lapis.pack.writer import pack, save

__all__ = ["METADATA_KEY", "is_packed", "load", "pack", "read_metadata", "save"]
