"""Classify a large set of images on many machines with Ray Data, into a folder of Parquet files.

    python examples/predict_with_ray.py pictures answers --workers 4
    python examples/predict_with_ray.py s3://bucket/pictures s3://bucket/answers --address auto --workers 64

The images are cut into parts, each of which becomes one file. A file appears only when it is complete, so a part that
is done again after a machine was lost replaces itself, and a job that was stopped does what is missing when it is
started again. It needs `pip install 'ray[data]'`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from pyarrow.fs import FileSelector, FileSystem, FileType

from lapis import LapisError, Session

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
COLUMNS = pa.schema([("image", pa.string()), ("class", pa.string()), ("score", pa.float32()), ("error", pa.string())])


def place(text: str) -> tuple[FileSystem, str]:
    """The file system and the path in it: a folder of this machine, or s3://, gs:// and others."""
    filesystem, path = FileSystem.from_uri(text if "://" in text else Path(text).resolve().as_uri())
    return filesystem, path


class Answer:
    """An actor with its own session: answers one part and writes its file."""

    def __init__(self, model: str, images: str, out: str) -> None:
        self.session = Session(model)
        self.source, self.root = place(images)
        self.target, self.folder = place(out)

    def __call__(self, part: dict[str, Any]) -> dict[str, Any]:
        rows = [self.row(str(image)) for image in part["images"]]
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        # Written beside and moved: nobody sees half a file.
        hidden = f"{self.folder}/.{part['name']}.{ray.get_runtime_context().get_worker_id()}"
        pq.write_table(table, hidden, filesystem=self.target)
        self.target.move(hidden, f"{self.folder}/{part['name']}")
        return {"name": part["name"], "images": len(rows)}

    def row(self, image: str) -> dict[str, Any]:
        """An image that cannot be read is a row with the reason."""
        try:
            with self.source.open_input_stream(f"{self.root}/{image}") as file:
                best = self.session.predict([file.read()], top_k=1)[0][0]
        except (LapisError, OSError) as error:
            return {"image": image, "error": str(error)}
        return {"image": image, "class": best.label, "score": best.score}


def parts_of(images: str, model: str, size: int) -> dict[str, list[str]]:
    """The images by the name of their part, which is a hash of what is in it and of the model's name."""
    filesystem, root = place(images)
    found = filesystem.get_file_info(FileSelector(root, recursive=True))
    names = sorted(
        one.path.removeprefix(root).lstrip("/")
        for one in found
        if one.type == FileType.File and one.path.lower().endswith(SUFFIXES)
    )
    if not names:
        raise LapisError(f"{images} has no images ({', '.join(SUFFIXES)}); give a folder that has some")
    parts = {}
    for start in range(0, len(names), size):
        chosen = names[start : start + size]
        digest = hashlib.sha256("\n".join([model, *chosen]).encode()).hexdigest()[:12]
        parts[f"part-{start // size:06}-{digest}.parquet"] = chosen
    return parts


def missing(parts: dict[str, list[str]], out: str) -> dict[str, list[str]]:
    """The parts that have no file yet; files of another job would give rows twice, so they are refused."""
    filesystem, folder = place(out)
    filesystem.create_dir(folder)
    there = {one.base_name for one in filesystem.get_file_info(FileSelector(folder))}
    foreign = sorted(name for name in there if name.endswith(".parquet") and name not in parts)
    if foreign:
        raise LapisError(
            f"{out} holds {len(foreign)} files of another job (other images, model or --part), as {foreign[0]}; "
            "use another folder"
        )
    return {name: images for name, images in parts.items() if name not in there}


def answer_all(todo: dict[str, list[str]], arguments: tuple[str, str, str], workers: int) -> Iterator[dict[str, Any]]:
    """Each part as it is done; `arguments` are the model, the images and the folder for the answers."""
    rows = [{"name": name, "images": images} for name, images in todo.items()]
    # One part per task, so that a lost machine costs no more than the parts that it was working on.
    waiting = ray.data.from_items(rows, override_num_blocks=len(rows))
    # One actor is enough to go on: those of a lost machine start again where there is room.
    actors = ray.data.ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers)
    kind: Any = Answer
    yield from waiting.map(kind, fn_constructor_args=arguments, compute=actors, num_cpus=1).iter_rows()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="folder with images, at any depth; a path or an address as s3://bucket/folder")
    parser.add_argument("out", help="folder for the answers")
    parser.add_argument("--model", default="lapis_tiny.cifar10", help="what Session takes; a file must be everywhere")
    parser.add_argument("--part", type=int, default=256, help="images in one file")
    parser.add_argument("--workers", type=int, default=2, help="actors, of one core each")
    parser.add_argument("--address", help="the cluster; without it, Ray starts on this machine")
    options = parser.parse_args()

    try:
        parts = parts_of(options.images, options.model, options.part)
        todo = missing(parts, options.out)
    except LapisError as error:
        parser.error(str(error))
    print(f"{len(parts)} parts, of which {len(parts) - len(todo)} were done before", flush=True)
    if todo:
        ray.init(address=options.address, log_to_driver=False)
        done = answer_all(todo, (options.model, options.images, options.out), options.workers)
        for number, part in enumerate(done, start=1):
            print(f"{number} of {len(todo)}: {part['name']}, {part['images']} images", flush=True)


if __name__ == "__main__":
    main()
