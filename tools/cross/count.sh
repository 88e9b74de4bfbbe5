#!/usr/bin/env bash
# How many ARM instructions each instruction set executes for the same work, counted by QEMU. Counts, not times.
#   tools/cross/count.sh      after `make cross`; takes a minute. `work.c` says what the work is
set -euo pipefail
cd "$(dirname "$0")/../.."
model=models/lapis_tiny.cifar10_dense.safetensors
# gcc vectorizes the plain kernels by itself; without that they are what a processor does one number at a time.
cmake -S . -B build/arm_plain -G Ninja -DCMAKE_TOOLCHAIN_FILE=tools/cross/arm.cmake -DCMAKE_C_FLAGS=-fno-tree-vectorize >/dev/null
cmake --build build/arm_plain --target lapis_static >/dev/null
cc -O2 -Wall -Wextra -shared -fPIC tools/cross/count.c -o build/arm/count.so
for build in arm arm_plain; do
  aarch64-linux-gnu-gcc -O2 -std=c11 -Wall -Wextra -Icsrc tools/cross/work.c "build/$build/liblapis.a" -lm -lpthread \
    -o "build/$build/work"
done
executed() {  # BUILD ISA TASK REPEATS
  qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -plugin build/arm/count.so "build/$1/work" "$2" "$3" "$4" "$model" 2>&1 |
    sed -n 's/^instructions //p'
}
for task in distance linear image; do
  plain=$(($(executed arm_plain scalar $task 2) - $(executed arm_plain scalar $task 1)))
  echo "$task: one number at a time $plain"
  for isa in scalar neon neondot neoni8mm; do
    more=$(($(executed arm $isa $task 2) - $(executed arm $isa $task 1)))
    awk "BEGIN { printf \"$task: %-9s %12d  %.1f times fewer\n\", \"$isa\", $more, $plain / $more }"
  done
done
