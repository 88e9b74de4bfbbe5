/* The engine's stages in WebAssembly's vectors, with relaxed products of bytes. */
#define LAPIS_LINEAR LINEAR_QUADS
#define TARGET wasmrelaxed
#include "../simd/wasm128.h"
#include "engine128.inc"
