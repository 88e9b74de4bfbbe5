"""Commands that work for this user, here: in a clone or with an installed package, in an active environment or not."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from lapis.errors import LapisError

PACKAGE = "lapis-snn"


def install_command(extra: str) -> str:
    """The command that installs an extra: of the clone, if this is one, else of the package that is installed."""
    root = _clone()
    return shlex.join([tool("pip"), "install", f"{PACKAGE if root is None else _short(root)}[{extra}]"])


def import_optional(package: str, extra: str, purpose: str) -> ModuleType:
    """A package of an extra, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise LapisError(f"{purpose} needs {package}: {install_command(extra)} ({error})") from error


def tool(name: str) -> str:
    """How to call a program of this environment: by its name where the shell finds it, else by its path."""
    own = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if not own.exists() or (found is not None and Path(found).absolute() == own.absolute()):
        return name
    return _short(own)


def _short(path: Path) -> str:
    """A path as seen from the current folder, if it lies there; the folder itself is a point."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _clone() -> Path | None:
    """The clone that this package runs from, or whose environment it is installed in."""
    for root in (Path(__file__).resolve().parents[3], Path(sys.prefix).parent):
        project = root / "pyproject.toml"
        if project.is_file() and f'name = "{PACKAGE}"' in project.read_text(encoding="utf-8"):
            return root
    return None
