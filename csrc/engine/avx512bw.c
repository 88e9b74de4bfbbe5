/* The engine's stages in AVX-512 with byte and word operations. */
#include <string.h>

#include "stages.h"
#include "../simd/avx512.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#include "linear.h"
#include "rows.h"
#include "spikes.h"
#include "peak.h"

#define ENGINE_TABLE engine_avx512bw
#include "table.h"
