#!/usr/bin/env bash
# Run every test, two folders at a time, each folder in a process of its own: what one leaves behind no other sees.
#   tools/tests.sh PYTHON
set -uo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PYTHON=$1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
run() {
  "$PYTHON" -m pytest -p no:cacheprovider "$@" >"$LOG/$(basename "$1")" 2>&1 || touch "$LOG/failed"
  cat "$LOG/$(basename "$1")"
}
export -f run
export LOG=$log
# The longest first, so that both processors end together; the files of tests/ itself are one part.
long=(tests/report tests/train tests/cli tests/ops tests/runtime tests/docs tests/rtl)
rest=$(find tests -mindepth 1 -maxdepth 1 -type d ! -name __pycache__ | sort | grep -vxF "$(printf '%s\n' "${long[@]}")")
printf '%s\n' "${long[@]}" $rest "$(echo tests/test_*.py)" | xargs -P 2 -I{} bash -c 'run {}'
[ ! -e "$log/failed" ]
