/* The engine's stages in WebAssembly's vectors, with relaxed products of bytes. */
#include "../simd/wasm128.h"

#define LAPIS_LINEAR LINEAR_QUADS
#define ENGINE engine_wasmrelaxed
#include "engine128.inc"
