/* The engine's stages in WebAssembly's vectors. */
#include "../simd/wasm128.h"

#define LAPIS_LINEAR LINEAR_PAIRS
#define ENGINE engine_wasm128
#include "engine128.inc"
