#!/usr/bin/env bash
# Install the wheel of dist/ for this machine into empty environments and use it there: with every Python from 3.10 to
# 3.13 that this machine has, without torch; read by mypy and pyright; then beside a torch that is already installed for
# the PYTHON given (a second download of torch would prove nothing more).
#   tools/wheel/check.sh PYTHON       after tools/wheel/build.sh PYTHON
set -euo pipefail
python=$(realpath -s "${1:?usage: tools/wheel/check.sh PYTHON}")
root=$(realpath "$(dirname "$0")/../..")
wheel=$(echo "$root"/dist/lapis_snn-*manylinux_2_17_"$(uname -m)"*.whl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -f "$wheel" ] || { echo "no wheel for this machine in $root/dist: run tools/wheel/build.sh first" >&2; exit 1; }
cd "$work"  # away from the sources, so that only the wheel can be imported

# A new environment NAME of a Python, with the wheel and what it needs: it has kernels, and they answer as numpy does.
environment() {
  "$2" -m venv "$work/$1"
  "$work/$1/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  "$work/$1/bin/python" - <<'PY'
import importlib.util
from importlib.resources import files

import numpy as np

import lapis
from lapis import Session, native

assert importlib.util.find_spec("torch") is None, "this environment was meant to have no torch"
assert "site-packages" in lapis.__file__, lapis.__file__
assert (files("lapis") / "py.typed").is_file(), "type information is missing"
assert native.available(), f"the wheel has no kernels: {native.describe()}"
images = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
fast, plain = Session("lapis_tiny.cifar10"), Session("lapis_tiny.cifar10", native=False)
assert (fast.run(images) == plain.run(images)).all(), "engine and numpy differ"
PY
}

if command -v pyenv >/dev/null; then PYENV_VERSION=$(pyenv versions --bare | paste -sd:) && export PYENV_VERSION; fi
used=
for minor in 10 11 12 13; do
  if other=$(command -v "python3.$minor") && "$other" -c "import venv, ensurepip" 2>/dev/null; then
    environment "3.$minor" "$other"
    used="$used 3.$minor"
  fi
done
unset PYENV_VERSION
echo "installs and answers with Python:$used"

environment bare "$python"
bare="$work/bare/bin"
"$bare/lapis" info
"$bare/lapis" predict lapis_tiny.cifar10 "$root/docs/images/explain-light.webp" >/dev/null
"$bare/lapis" explain --live lapis_tiny.cifar10 -o "$work/live.html" >/dev/null
"$bare/lapis" energy lapis_tiny --activity all=0.3 >/dev/null
"$bare/lapis" verify lapis_tiny.cifar10 -n 1 --quiet >/dev/null
"$bare/python" - <<'PY'
# What an index page will show: no link or picture of it may need the repository.
import re
from importlib.metadata import metadata

text = metadata("lapis-snn").get_payload()
assert "spike" in text, "the wheel has no description"
targets = re.findall(r"\]\(([^)\s]+)", text)
assert all(target.startswith(("https://", "#")) for target in targets), targets
PY
echo "without torch: installs, predicts, prices, verifies"

cp "$root/tools/wheel/typed.py" client.py
if "$python" -c "import mypy, pyright" 2>/dev/null; then
  "$python" -m mypy --strict --config-file= --python-executable "$bare/python" client.py
  "$python" -m pyright --pythonpath "$bare/python" client.py
fi

if "$python" -c "import torch" 2>/dev/null; then
  "$python" -m venv "$work/full"
  full="$work/full/bin/python"
  "$full" -m pip install --quiet --disable-pip-version-check "$wheel"
  # The environment's own packages come first, so lapis is the wheel's and torch is borrowed.
  "$python" -c "import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])" \
    >"$("$full" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/borrowed.pth"
  "$full" -c "
import lapis, torch
assert '$work' in lapis.__file__, lapis.__file__
from lapis.nn import LapisViT, calibrate
network, images = LapisViT(lapis.preset('lapis_tiny', image_size=32)), torch.rand(1, 3, 32, 32)
calibrate(network, images)
print('with torch', torch.__version__ + ':', tuple(network(images).shape))"
fi
