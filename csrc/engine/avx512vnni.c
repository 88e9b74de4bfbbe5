/* The engine's stages in AVX-512 with VNNI's fused multiply and add. */
#include <string.h>

#include "stages.h"
#include "../simd/avx512.h"

#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#include "linear.h"
#include "rows.h"
#include "peak.h"

#define ENGINE_TABLE engine_avx512vnni
#include "table.h"
