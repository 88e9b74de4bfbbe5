"""Lapis: Laplacian spiking attention from first-spike timing and membrane leakage.

Importing this package is light: numpy alone. Torch is loaded by `lapis.nn` and `lapis.train` only.
"""

from lapis.config import ActivationModes, LapisConfig, preset
from lapis.errors import LapisError

__version__ = "0.1.0"

__all__ = ["ActivationModes", "LapisConfig", "LapisError", "__version__", "preset"]
