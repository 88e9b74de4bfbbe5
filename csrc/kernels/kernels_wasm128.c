/* WebAssembly's vectors: 128 bits. */
#include "../simd/wasm128.h"

#define KERNELS kernels_wasm128
#include "kernels128.inc"
