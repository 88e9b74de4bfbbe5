#!/usr/bin/env bash
# Run tests in parts, two at a time, each in a process of its own: what one leaves behind no other sees.
#   tools/tests.sh PYTHON            every test, one part per folder
#   tools/tests.sh PYTHON PART...    each part is a line of words for pytest
set -uo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PYTHON=$1
shift
LOG=$(mktemp -d)
export LOG
trap 'rm -rf "$LOG"' EXIT
run() {
  "$PYTHON" -m pytest -p no:cacheprovider "$@" >"$LOG/$$" 2>&1 || touch "$LOG/failed"
  cat "$LOG/$$"
}
export -f run
if [ $# = 0 ]; then
  # The longest first, so that both processors end together; the files of tests/ itself are one part.
  set -- tests/report tests/train tests/cli tests/ops tests/runtime tests/docs hardware/tests
  rest=$(find tests -mindepth 1 -maxdepth 1 -type d ! -name __pycache__ | sort | grep -vxF "$(printf '%s\n' "$@")")
  set -- "$@" $rest "$(echo tests/test_*.py)"
fi
printf '%s\n' "$@" | xargs -d '\n' -P 2 -I{} bash -c 'run {}'
[ ! -e "$LOG/failed" ]
