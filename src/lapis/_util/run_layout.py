"""The names of the files in a training run's folder, and the metadata of its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lapis._util.files import parse_json, read_json
from lapis.errors import LapisError

BEST_FILE, LAST_FILE = "best.safetensors", "last.safetensors"
# The networks of a run, best first, and that of a folder written for the hub.
NETWORK_FILES = (BEST_FILE, LAST_FILE, "model.safetensors")
# The state of a run, the one saved before it, and the file by which other runs are kept out.
STATE_FILE, PREVIOUS_STATE_FILE, LOCK_FILE = "state.pt", "state.previous.pt", ".running"
RECIPE_FILE, SUMMARY_FILE, ACTIVITY_FILE = "recipe.json", "summary.json", "activity.json"
STEPS_FILE, EVALUATIONS_FILE, CURVES_FILE = "steps.csv", "evaluations.jsonl", "curves.png"
UNREADABLE_FILE = "unreadable.txt"

# The metadata entry of a safetensors file that makes it a training checkpoint.
CHECKPOINT_KEY = "lapis"


def checkpoint_metadata(path: Path, text: object) -> dict[str, Any]:
    """The metadata of a checkpoint, which holds at least its configuration."""
    metadata = parse_json(text, f"{path}: its Lapis metadata") if isinstance(text, str) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("config"), dict):
        raise LapisError(f"{path}: its Lapis metadata has no configuration")
    return metadata


def transformers_config(path: Path) -> dict[str, Any]:
    """The config.json of Hugging Face transformers beside a file of weights; empty where there is none."""
    config = path.parent / "config.json"
    found = read_json(config) if path.is_file() and config.is_file() else {}
    return found if isinstance(found, dict) and "num_attention_heads" in found else {}
