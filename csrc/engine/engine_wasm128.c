/* The engine's stages in WebAssembly's vectors. */
#define LAPIS_LINEAR LINEAR_PAIRS
#define TARGET wasm128
#include "../simd/wasm128.h"
#include "engine128.inc"
