#!/usr/bin/env bash
# Build the C library, and the programs that its tests run, for another system.
#   tools/cross/build.sh arm|riscv|windows      into build/arm, ...; says what is missing where a compiler is
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:?usage: tools/cross/build.sh arm|riscv|windows}
case $target in
  arm) compiler=aarch64-linux-gnu-gcc packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
  riscv) compiler=riscv64-linux-gnu-gcc packages="gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user" ;;
  windows) compiler=x86_64-w64-mingw32-gcc packages="gcc-mingw-w64-x86-64 wine64" ;;
  *) echo "$target is no system of tools/cross; use arm, riscv or windows" >&2; exit 2 ;;
esac
command -v "$compiler" >/dev/null || { echo "no $compiler; to build for $target: apt-get install $packages" >&2; exit 1; }
build=build/$target
cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="tools/cross/$target.cmake" -DLAPIS_WERROR="${WERROR:-OFF}" >/dev/null
cmake --build "$build" >/dev/null || { cmake --build "$build"; exit 1; }
flags="-O2 -std=c11 -Wall -Wextra -Icsrc"
if [ "$target" = windows ]; then
  "$compiler" $flags tools/cross/logits.c "$build/liblapis.a" -o "$build/logits.exe"
else
  "$compiler" $flags tools/cross/logits.c "$build/liblapis.a" -lm -lpthread -o "$build/logits"
  "$compiler" $flags tools/cross/guest.c -ldl -o "$build/guest"
fi
echo "build/$target is ready"
