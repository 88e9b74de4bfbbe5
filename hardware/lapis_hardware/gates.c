/* An event-driven simulator of gates with inertial delays: every gate has at most one change under way. It counts the
 * toggles of a netlist, with the delays of its gates and without: what the energy of a circuit is counted from. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Events of one cycle per gate beyond which the netlist is taken to oscillate. */
enum { MOST_EVENTS_PER_GATE = 4096, GATE_INPUTS = 6 };

typedef struct {
    int64_t time, serial;
    int32_t gate;
} event;

typedef struct {
    const int32_t *inputs, *outputs, *rise, *fall;
    const uint64_t *tables;
    uint8_t *value;   /* of each net */
    int64_t *pending; /* of each gate: the serial of its change under way, or 0 */
    int64_t *first;   /* fan[first[net]..first[net+1]) are the gates that read a net */
    int32_t *fan;
    event *heap;
    int64_t waiting, room, serial;
    int64_t *counts; /* [nets, 2], or none */
    int failed;
} simulation;

static int before(const event *a, const event *b) {
    return a->time != b->time ? a->time < b->time : a->serial < b->serial;
}

static void push(simulation *s, event e) {
    if (s->waiting == s->room) {
        event *grown = realloc(s->heap, (size_t)(2 * s->room) * sizeof *grown);
        if (!grown) {
            s->failed = 1;
            return;
        }
        s->heap = grown;
        s->room *= 2;
    }
    int64_t at = s->waiting++;
    for (; at > 0 && before(&e, &s->heap[(at - 1) / 2]); at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = e;
}

static event pop(simulation *s) {
    event top = s->heap[0], last = s->heap[--s->waiting];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= s->waiting) break;
        if (child + 1 < s->waiting && before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!before(&s->heap[child], &last)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return top;
}

static int output_of(const simulation *s, int32_t gate) {
    unsigned at = 0;
    for (int i = 0; i < GATE_INPUTS; i++) at |= (unsigned)s->value[s->inputs[gate * GATE_INPUTS + i]] << i;
    return (int)(s->tables[gate] >> at & 1);
}

/* A change under way is always to the other value, so a gate either keeps it, drops it, or starts one. */
static void evaluate(simulation *s, int32_t gate, int64_t now) {
    int to = output_of(s, gate), changes = to != s->value[s->outputs[gate]];
    if (!changes) s->pending[gate] = 0;
    if (!changes || s->pending[gate]) return;
    s->pending[gate] = ++s->serial;
    push(s, (event){now + (to ? s->rise[gate] : s->fall[gate]), s->serial, gate});
}

static void set(simulation *s, int32_t net, uint8_t to, int64_t now) {
    if (s->value[net] == to) return;
    s->value[net] = to;
    if (s->counts) s->counts[2 * net + !to]++;
    for (int64_t i = s->first[net]; i < s->first[net + 1]; i++) evaluate(s, s->fan[i], now);
}

static void settle(simulation *s, int64_t most) {
    for (int64_t events = 0; s->waiting && !s->failed; events++) {
        event e = pop(s);
        if (s->pending[e.gate] != e.serial) continue;
        s->pending[e.gate] = 0;
        set(s, s->outputs[e.gate], !s->value[s->outputs[e.gate]], e.time);
        if (events > most) s->failed = 1;
    }
    s->waiting = 0;
}

static void find_fans(simulation *s, int64_t nets, int64_t gates) {
    for (int64_t i = 0; i < gates * GATE_INPUTS; i++) s->first[s->inputs[i] + 1]++;
    for (int64_t net = 0; net < nets; net++) s->first[net + 1] += s->first[net];
    for (int64_t i = gates * GATE_INPUTS; i-- > 0;) s->fan[--s->first[s->inputs[i] + 1]] = (int32_t)(i / GATE_INPUTS);
    /* Now first[net + 1] is where net begins. */
    for (int64_t net = 0; net < nets; net++) s->first[net] = s->first[net + 1];
    s->first[nets] = gates * GATE_INPUTS;
}

static int bad_nets(const int32_t *numbers, int64_t count, int64_t nets) {
    for (int64_t i = 0; i < count; i++)
        if (numbers[i] < 0 || numbers[i] >= nets) return 1;
    return 0;
}

/* Nets are numbered 0..nets-1; net 0 is always 0 and net 1 always 1. A gate's output is bit i of its table, i the
 * number that its inputs spell, the first in the lowest bit; unused inputs are net 0. A change reaches the output after
 * `rise` or `fall` (above 0), and a shorter pulse is swallowed. At each clock every register's state net takes the
 * value of its data net, and the driven nets take a row of `values` [cycles, driven]. The first row is clocked in
 * twice, uncounted.
 *
 * Out: seen [cycles, watched], the settled nets `watch` before the clock that ends a cycle; timed and settled [nets,
 * 2], the rises and falls of every net, with all pulses, and between settled states only. */
int32_t gates_run(int64_t nets, int64_t gates, const int32_t *inputs, const uint64_t *tables, const int32_t *outputs,
                  const int32_t *rise, const int32_t *fall, int64_t registers, const int32_t *data,
                  const int32_t *state, int64_t driven, const int32_t *drive, int64_t cycles, const uint8_t *values,
                  int64_t watched, const int32_t *watch, uint8_t *seen, int64_t *timed, int64_t *settled) {
    if (nets < 2 || nets > INT32_MAX / 2 || gates < 0 || gates > INT32_MAX / 8 || cycles < 1) return 1;
    if (bad_nets(inputs, gates * GATE_INPUTS, nets) || bad_nets(outputs, gates, nets) ||
        bad_nets(data, registers, nets) || bad_nets(state, registers, nets) || bad_nets(drive, driven, nets) ||
        bad_nets(watch, watched, nets))
        return 1;
    for (int64_t i = 0; i < gates; i++)
        if (rise[i] < 1 || fall[i] < 1) return 1;
    simulation s = {.inputs = inputs, .outputs = outputs, .rise = rise, .fall = fall, .tables = tables, .room = 1024};
    uint8_t *before_it = malloc((size_t)nets), *held = malloc((size_t)registers + 1);
    s.value = calloc((size_t)nets, 1);
    s.pending = calloc((size_t)gates + 1, sizeof *s.pending);
    s.first = calloc((size_t)nets + 1, sizeof *s.first);
    s.fan = malloc(((size_t)gates * GATE_INPUTS + 1) * sizeof *s.fan);
    s.heap = malloc((size_t)s.room * sizeof *s.heap);
    s.failed = !before_it || !held || !s.value || !s.pending || !s.first || !s.fan || !s.heap;
    if (!s.failed) {
        int64_t most = (gates + 1) * MOST_EVENTS_PER_GATE;
        find_fans(&s, nets, gates);
        s.value[1] = 1;
        for (int32_t gate = 0; gate < gates; gate++) evaluate(&s, gate, 0);
        settle(&s, most);
        for (int64_t cycle = -2; cycle < cycles && !s.failed; cycle++) {
            const uint8_t *row = values + (cycle < 0 ? 0 : cycle) * driven;
            s.counts = cycle < 0 ? NULL : timed;
            memcpy(before_it, s.value, (size_t)nets);
            for (int64_t i = 0; i < registers; i++) held[i] = s.value[data[i]];
            for (int64_t i = 0; i < registers; i++) set(&s, state[i], held[i], 0);
            for (int64_t i = 0; i < driven; i++) set(&s, drive[i], row[i] != 0, 0);
            settle(&s, most);
            if (cycle < 0) continue;
            for (int64_t net = 0; net < nets; net++)
                if (s.value[net] != before_it[net]) settled[2 * net + !s.value[net]]++;
            for (int64_t i = 0; i < watched; i++) seen[cycle * watched + i] = s.value[watch[i]];
        }
    }
    free(before_it);
    free(held);
    free(s.value);
    free(s.pending);
    free(s.first);
    free(s.fan);
    free(s.heap);
    return s.failed ? 2 : 0;
}
