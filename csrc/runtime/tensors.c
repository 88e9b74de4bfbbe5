/* The tensors of a packed file: which there are, where they lie, and their items in this machine's memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"

/* What an entry of the header calls each kind of item, and its bytes. */
static const char *const KIND_NAMES[] = {"I64", "F32", "U32", "I32", "U16", "I16", "I8", "U8"};
static const int64_t KIND_BYTES[] = {8, 4, 4, 4, 2, 2, 1, 1};

/* Entries of tables that any network may ask for, and further ones for each byte of its tensors. */
static const int64_t FREE_ENTRIES = 1 << 24, ENTRIES_PER_BYTE = 4;

static void add(packed *file, int index, const char *name, item_kind kind, int64_t a, int64_t b, int64_t c) {
    tensor *t = &file->tensors[index];
    const int32_t rank = c ? 3 : b ? 2 : 1;
    const int64_t bytes = a * (b ? b : 1) * (c ? c : 1) * KIND_BYTES[kind];
    *t = (tensor){.name = name, .kind = kind, .rank = rank, .shape = {a, b, c}, .bytes = bytes, .columns = c};
    file->header.allowance += ENTRIES_PER_BYTE * bytes;
}

static void add_layer(packed *file, int weight, const char *const names[3], int64_t rows, int64_t columns) {
    const packed_header *h = &file->header;
    const item_kind kind = h->weight_bits == FLOAT_WEIGHTS ? F32 : I8;
    add(file, weight, names[0], kind, h->depth, rows, columns);
    if (h->weight_bits == SIX_BITS) {
        /* Counted for the allowance as one byte each; four lie in three bytes of the file. */
        tensor *t = &file->tensors[weight];
        t->kind = U8;
        t->shape[2] = (columns + 3) / 4 * 3;
        t->bytes = h->depth * rows * t->shape[2];
    }
    add(file, weight + 1, names[1], F32, h->depth, rows, 0);
    add(file, weight + 2, names[2], F32, h->depth, rows, 0);
}

static void add_affinities(packed *file) {
    const packed_header *h = &file->header;
    const int64_t l = h->depth, heads = h->heads, span = 2 * h->grid - 1;
    if (h->relation == RELATION_LEAK) {
        add(file, LEAK_MANTISSA, "blocks.leak.mantissa", U32, l, heads, 0);
        add(file, LEAK_EXPONENT, "blocks.leak.exponent", I32, l, heads, 0);
    } else if (h->relation == RELATION_TABLE) {
        add(file, AFFINITY_MANTISSA, "blocks.affinity.mantissa", U32, l, heads, h->code_distances);
        add(file, AFFINITY_EXPONENT, "blocks.affinity.exponent", I32, l, heads, h->code_distances);
    } else {
        add(file, SHIFT_HALVINGS, "blocks.shift.halvings", U16, l, heads, h->code_distances);
    }
    if (h->beit) add(file, LEAK_DELAY, "blocks.leak.delay", U16, l, span * span + 3, heads);
}

void list_tensors(packed *file) {
    static const char *const QKV[] = {"blocks.qkv.weight", "blocks.qkv.scale", "blocks.qkv.shift"};
    static const char *const PROJ[] = {"blocks.proj.weight", "blocks.proj.scale", "blocks.proj.shift"};
    static const char *const FC1[] = {"blocks.fc1.weight", "blocks.fc1.scale", "blocks.fc1.shift"};
    static const char *const FC2[] = {"blocks.fc2.weight", "blocks.fc2.scale", "blocks.fc2.shift"};
    const packed_header *h = &file->header;
    const int64_t l = h->depth, d = h->width, levels = h->window - h->low[MODE_HIDDEN];
    file->header.allowance = FREE_ENTRIES;
    add(file, PATCH_WEIGHT, "patch_weight", I16, d, 3 * h->patch_size * h->patch_size, 0);
    add(file, PATCH_SHIFT, "patch_shift", U8, d, 0, 0);
    add(file, POSITION, "position", I32, h->beit ? 2 : h->tokens, d, 0);
    add(file, HEAD_WEIGHT, "head_weight", I16, h->classes, d, 0);
    add(file, HEAD_BIAS, "head_bias", I64, h->classes, 0, 0);
    add(file, ATTENTION_GAIN, "blocks.attention_norm.gain", F32, l, d, 0);
    add(file, ATTENTION_SHIFT, "blocks.attention_norm.shift", F32, l, d, 0);
    add(file, MLP_GAIN, "blocks.mlp_norm.gain", F32, l, d, 0);
    add(file, MLP_SHIFT, "blocks.mlp_norm.shift", F32, l, d, 0);
    add_layer(file, QKV_WEIGHT, QKV, 3 * d, d);
    add_layer(file, PROJ_WEIGHT, PROJ, d, d);
    add_layer(file, FC1_WEIGHT, FC1, h->hidden, d);
    add_layer(file, FC2_WEIGHT, FC2, d, h->hidden);
    add(file, READOUT_SCALE, "blocks.readout.scale", F32, l, 0, 0);
    add(file, READOUT_SHIFT, "blocks.readout.shift", F32, l, 0, 0);
    add(file, RISE, "blocks.rise", F32, l, levels, 0);
    add(file, FALL, "blocks.fall", F32, l, levels, 0);
    add_affinities(file);
}

static int has_shape(const json_value *shape, const tensor *t) {
    if (shape->kind != JSON_LIST || shape->count != t->rank) return 0;
    const json_value *side = shape->first;
    for (int32_t i = 0; i < t->rank; i++, side = side->next)
        if (side->kind != JSON_INTEGER || side->integer != t->shape[i]) return 0;
    return 1;
}

static int32_t read_entry(const json_value *entry, tensor *t, lapis_error *error) {
    static const char *const FIELDS[] = {"dtype", "shape", "data_offsets", NULL};
    if (!json_has_exactly(entry, FIELDS)) return refuse(error, 31, "%s", t->name);
    const json_value *kind = json_field(entry, "dtype"), *offsets = json_field(entry, "data_offsets");
    if (kind->kind != JSON_STRING || !json_equals(kind->text, KIND_NAMES[t->kind]) ||
        !has_shape(json_field(entry, "shape"), t))
        return refuse(error, 32, "%s", t->name);
    if (offsets->kind != JSON_LIST || offsets->count != 2) return refuse(error, 33, "%s", t->name);
    const json_value *begin = offsets->first, *end = begin->next;
    if (begin->kind != JSON_INTEGER || end->kind != JSON_INTEGER || begin->integer < 0 ||
        end->integer < begin->integer || end->integer - begin->integer != t->bytes)
        return refuse(error, 33, "%s", t->name);
    t->begin = begin->integer;
    return LAPIS_OK;
}

/* The tensor that starts at a byte, or NULL. */
static const tensor *tensor_at(const packed *file, int64_t begin) {
    for (int i = 0; i < TENSORS; i++)
        if (file->tensors[i].name && file->tensors[i].begin == begin) return &file->tensors[i];
    return NULL;
}

int32_t read_offsets(const json_value *table, packed *file, lapis_error *error) {
    int32_t count = 0;
    for (int i = 0; i < TENSORS; i++) {
        const char *name = file->tensors[i].name;
        if (!name) continue;
        if (!json_field(table, name)) return refuse(error, 30, "%s", name);
        count++;
    }
    if (table->count != count + 1) return refuse(error, 30, "%d tensors", (int)table->count - 1);
    for (int i = 0; i < TENSORS; i++) {
        tensor *t = &file->tensors[i];
        int32_t status = t->name ? read_entry(json_field(table, t->name), t, error) : LAPIS_OK;
        if (status) return status;
    }
    /* No tensor is empty, so two that start together leave another without a start. */
    int64_t end = 0;
    for (int32_t i = 0; i < count; i++) {
        const tensor *t = tensor_at(file, end);
        if (!t) return refuse(error, 34, "byte %lld", (long long)end);
        end += t->bytes;
    }
    return end == file->data_bytes ? LAPIS_OK : refuse(error, 35, "%lld bytes", (long long)file->data_bytes);
}

/* Files are little-endian and put tensors anywhere; here they are aligned, in this machine's order. */
static void copy_items(void *out, const unsigned char *bytes, int64_t count, int64_t size) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    unsigned char *to = out;
    for (int64_t i = 0; i < count; i++)
        for (int64_t b = 0; b < size; b++) to[i * size + b] = bytes[i * size + size - 1 - b];
#else
    memcpy(out, bytes, (size_t)(count * size));
#endif
}

/* One row of six-bit weights; 0, or the rule that it breaks. */
static int32_t unpack_row(const unsigned char *bytes, int64_t columns, int8_t *out) {
    for (int64_t at = 0; at < columns; at += 4, bytes += 3) {
        const unsigned all = bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16;
        for (int i = 0; i < 4; i++) {
            const int low = all >> 6 * i & 63, weight = low < 32 ? low : low - 64;
            if (weight == -32) return 38;
            if (at + i < columns)
                out[at + i] = (int8_t)weight;
            else if (weight)
                return 39;
        }
    }
    return 0;
}

static int32_t unpack_weight(const unsigned char *bytes, const tensor *t, lapis_error *error) {
    const int64_t rows = t->shape[0] * t->shape[1];
    for (int64_t row = 0; row < rows; row++) {
        int32_t rule = unpack_row(bytes + row * t->shape[2], t->columns, (int8_t *)t->items + row * t->columns);
        if (rule) return refuse(error, rule, "%s, block %lld", t->name, (long long)(row / t->shape[1]));
    }
    return LAPIS_OK;
}

int32_t read_tensors(const unsigned char *data, packed *file, lapis_error *error) {
    for (int i = 0; i < TENSORS; i++) {
        tensor *t = &file->tensors[i];
        const int squeezed = t->kind == U8 && t->rank == 3;
        if (!t->name) continue;
        const int64_t bytes = squeezed ? t->shape[0] * t->shape[1] * t->columns : t->bytes;
        if ((uint64_t)bytes > SIZE_MAX || !(t->items = malloc((size_t)bytes))) return no_memory(error);
        if (!squeezed) {
            copy_items(t->items, data + t->begin, t->bytes / KIND_BYTES[t->kind], KIND_BYTES[t->kind]);
            continue;
        }
        int32_t status = unpack_weight(data + t->begin, t, error);
        if (status) return status;
    }
    return LAPIS_OK;
}

void free_packed(packed *file) {
    for (int i = 0; i < TENSORS; i++) free(file->tensors[i].items);
    free(file->names);
    free(file->starts);
    *file = (packed){0};
}
