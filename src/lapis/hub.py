"""Networks by name from a hub: `fetch("hf:org/name")` gives the path of a file, downloaded once and then kept.

A name is `hf:ORG/NAME`, or `hf:ORG/NAME/FILE.safetensors` for one file of the repository; `@REVISION` may follow. The
package huggingface_hub does the work: it knows where the hub is, keeps the files and reads the user's token. What it
does not do is done here: a file must have the hash under which the hub announced it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapis._util.hints import install_command
from lapis.errors import LapisError

PREFIX = "hf:"
# The files of a repository: the packed network, which runs without torch, and the network as it was trained.
PACKED_FILE, CHECKPOINT_FILE = "packed.safetensors", "model.safetensors"
CONFIG_FILE, CARD_FILE = "config.json", "README.md"

# Parts of a name become parts of paths in the cache: none may start with a point or hold a separator.
_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.))*"
_NAME = re.compile(
    rf"(?P<repository>{_WORD}/{_WORD})(?:/(?P<file>(?:{_WORD}/)*{_WORD}))?(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?"
)
_LONGEST_NAME = 300
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Name:
    """A repository, and the file and revision in it; None is the usual one."""

    repository: str
    file: str | None = None
    revision: str | None = None


def is_name(source: object) -> bool:
    """Whether `source` asks for a network of the hub."""
    return str(source).startswith(PREFIX)


def parse(source: str) -> Name:
    """The parts of `hf:ORG/NAME[/FILE.safetensors][@REVISION]`."""
    found = _NAME.fullmatch(source.removeprefix(PREFIX)) if len(source) <= _LONGEST_NAME else None
    if found is None or not (found["file"] or CHECKPOINT_FILE).endswith(".safetensors"):
        raise LapisError(
            f"{source[:_LONGEST_NAME]!r} is not a name on the hub; "
            "write hf:ORG/NAME, hf:ORG/NAME/FILE.safetensors or hf:ORG/NAME@REVISION"
        )
    return Name(found["repository"], found["file"], found["revision"])


def fetch(source: str) -> Path:
    """The file that `source` names, from the cache or downloaded; without FILE the packed network, else the trained."""
    name, package = parse(source), require(source)
    files = (PACKED_FILE, CHECKPOINT_FILE) if name.file is None else (name.file,)
    unreachable = False
    for file in files:
        try:
            # A hub that could not be reached is not tried again for the second file.
            found = package.hf_hub_download(
                name.repository, file, revision=name.revision, library_name="lapis", local_files_only=unreachable
            )
        except package.errors.LocalEntryNotFoundError:
            unreachable = True
        except package.errors.EntryNotFoundError:
            continue
        except Exception as error:  # huggingface_hub lets the errors of several HTTP libraries through
            raise LapisError(f"{source} cannot be fetched: {_reason(package, error)}") from error
        else:
            return _checked(source, Path(found))
    if unreachable:
        raise LapisError(f"{source} is not in the cache, and the hub cannot be reached; connect once, or name a file")
    raise LapisError(f"{source}: the repository holds no {' or '.join(files)}")


def upload(folder: Path, repository: str, private: bool | None, token: str | None, message: str) -> str:
    """Write the files of a folder to a repository of the hub, which is made if it does not exist; its address."""
    name, package = parse(f"{PREFIX}{repository.removeprefix(PREFIX)}"), require(repository)
    if name.file is not None:
        raise LapisError(f"{repository!r} names a file; give the repository, as in {name.repository}")
    api = package.HfApi(token=token, library_name="lapis")
    try:
        api.create_repo(name.repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name.repository, folder_path=folder, revision=name.revision, commit_message=message
        )
    except Exception as error:  # as above
        raise LapisError(f"{repository} cannot be written: {_reason(package, error)}") from error
    return str(commit.repo_url)


def require(what: str) -> Any:
    """The package huggingface_hub, or an error that says how to install it."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise LapisError(f"{what} needs huggingface_hub: {install_command('hub')} ({error})") from error
    return huggingface_hub


def _checked(source: str, path: Path) -> Path:
    """The path, if its content has the hash in the name of its blob; else the file is removed from the cache."""
    # Where the file system has no links the cache keeps the file itself, and the hash is not known.
    blob = path.parent / os.readlink(path) if path.is_symlink() else path
    expected = blob.name
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", expected) is None or _hash(blob, len(expected)) == expected:
        return path
    path.unlink(missing_ok=True)
    blob.unlink(missing_ok=True)
    raise LapisError(f"{source} was damaged on its way: its content does not have the announced hash; fetch it again")


def _hash(path: Path, digits: int) -> str:
    """SHA-256 for large files; for others that of git, which hashes the size too."""
    import hashlib  # only downloads need it

    state = hashlib.sha256() if digits == 64 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def _reason(package: Any, error: Exception) -> str:
    known = {
        "GatedRepoError": "its owner must give you access first",
        "RepositoryNotFoundError": "there is no such repository, or it is private and you are not logged in",
        "RevisionNotFoundError": "it has no such revision",
    }
    for name, reason in known.items():
        if isinstance(error, getattr(package.errors, name)):
            return reason
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
