"""What some commands need beyond numpy."""

from __future__ import annotations

from types import ModuleType

from lapis.errors import LapisError


def needed_torch() -> ModuleType:
    """torch, or an error that says how to get it. Loaded only by the commands that need it."""
    try:
        import torch
    except ImportError as error:
        raise LapisError(f"this needs torch: pip install 'lapis-snn[train]' ({error})") from error
    return torch
