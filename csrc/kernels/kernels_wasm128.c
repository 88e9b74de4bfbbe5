/* WebAssembly's vectors: 128 bits. */
#define TARGET wasm128
#include "../simd/wasm128.h"
#include "kernels128.inc"
