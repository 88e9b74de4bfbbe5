/* The engine's stages in AVX-512 with VNNI, and its linear layers in AMX. */
#include <string.h>

#include "stages.h"
#include "../simd/avx512.h"

#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define LAPIS_AMX 1
#include "linear.h"
#include "rows.h"
#include "peak.h"

#define ENGINE_TABLE engine_amx
#include "table.h"
