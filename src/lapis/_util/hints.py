"""Commands that work for this user, here: in a clone or with an installed package, in an active environment or not."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

PACKAGE = "lapis-snn"


def install_command(extra: str) -> str:
    """The command that installs an extra: from the clone, if this is one, else what the extra consists of by name."""
    root = _clone()
    wanted = _requirements(extra) if root is None else [f"{_short(root)}[{extra}]"]
    return shlex.join([tool("pip"), "install", *(wanted or [f"{PACKAGE}[{extra}]"])])


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


def _requirements(extra: str) -> list[str]:
    from importlib import metadata  # slow to import, and rarely needed

    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if re.search(rf"extra == ['\"]{extra}['\"]", marker):
            inner = re.fullmatch(rf"{PACKAGE}\[(.+)\]", requirement)
            found += [one for name in inner[1].split(",") for one in _requirements(name)] if inner else [requirement]
    return found
