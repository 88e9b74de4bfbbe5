/* Toggles of a netlist of gates, with their delays and without: what the energy of a circuit is counted from. */
#ifndef LAPIS_GATES_H
#define LAPIS_GATES_H

#include "lapis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LAPIS_GATE_INPUTS = 6 };

/* Nets are numbered 0..nets-1; net 0 is always 0 and net 1 always 1. A gate's output is bit i of its table, i the
 * number that its inputs spell, the first in the lowest bit; unused inputs are net 0. A change reaches the output after
 * `rise` or `fall` (above 0), and a shorter pulse is swallowed. At each clock every register's state net takes the
 * value of its data net, and the driven nets take a row of `values` [cycles, driven]. The first row is clocked in
 * twice, uncounted.
 *
 * Out: seen [cycles, watched], the settled nets `watch` before the clock that ends a cycle; timed and settled [nets,
 * 2], the rises and falls of every net, with all pulses, and between settled states only. */
LAPIS_API int32_t lapis_gates_run(int64_t nets, int64_t gates, const int32_t *inputs, const uint64_t *tables,
                                  const int32_t *outputs, const int32_t *rise, const int32_t *fall, int64_t registers,
                                  const int32_t *data, const int32_t *state, int64_t driven, const int32_t *drive,
                                  int64_t cycles, const uint8_t *values, int64_t watched, const int32_t *watch,
                                  uint8_t *seen, int64_t *timed, int64_t *settled);

#ifdef __cplusplus
}
#endif

#endif
