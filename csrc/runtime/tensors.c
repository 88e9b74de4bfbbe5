/* The tensors of a packed file: which there are, where they lie, and their items in this machine's memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"

/* What an entry of the header calls each kind of item, and its bytes. */
static const char *const KIND_NAMES[] = {
#define KIND(name, bytes) #name,
#include "schema.inc"
};
static const int64_t KIND_BYTES[] = {
#define KIND(name, bytes) bytes,
#include "schema.inc"
};

/* List one tensor; `sides` are those of one block where it is of a block. */
static void add(packed *file, int index, const char *name, item_kind kind, int of_block, int32_t rank, int64_t first,
                int64_t second) {
    packed_header *h = &file->header;
    tensor *t = &file->tensors[index];
    *t = (tensor){.name = name, .kind = kind == WEIGHT ? I8 : kind, .rank = of_block + rank, .columns = second};
    if (of_block) t->shape[0] = h->depth;
    if (rank > 0) t->shape[of_block] = first;
    if (rank > 1) t->shape[of_block + 1] = second;
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    t->bytes = count * KIND_BYTES[t->kind];
    h->allowance += ENTRIES_PER_BYTE * t->bytes;
    if (kind != WEIGHT || h->weight_bits != PACKED_BITS) return;
    /* Counted for the allowance as one byte each; four lie in three bytes of the file. */
    t->kind = U8;
    t->bytes = t->bytes / second * ((second + 3) / 4 * 3);
    t->shape[2] = (second + 3) / 4 * 3;
}

void list_tensors(packed *file) {
    const packed_header *h = &file->header;
    file->header.allowance = FREE_ENTRIES;
#define TENSOR(index, name, kind, only, of_block, rank, first, second, low, high, rule) \
    if (only) add(file, index, name, kind, of_block, rank, first, second);
#include "schema.inc"
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

/* One row of six-bit weights; 0, or the rule that it breaks. Whole fours are spread over the bytes of a word, whose
 * sign bits are then copied upwards; a weight of -32 leaves a byte of `found` without its highest bit. */
static int32_t unpack_row(const unsigned char *bytes, int64_t columns, int8_t *out) {
    const uint32_t signs = UINT32_C(0x20202020);
    uint32_t found = UINT32_MAX;
    int64_t at = 0;
    for (; at + 4 <= columns; at += 4, bytes += 3) {
        const uint32_t all = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
        const uint32_t fours = (all & 0x3f) | (all << 2 & 0x3f00) | (all << 4 & 0x3f0000) | (all << 6 & 0x3f000000);
        const uint32_t weights = fours | (fours & signs) << 1 | (fours & signs) << 2;
        found &= (fours ^ signs) + UINT32_C(0x7f7f7f7f);
        for (int i = 0; i < 4; i++) out[at + i] = (int8_t)(uint8_t)(weights >> 8 * i);
    }
    if (~found & UINT32_C(0x80808080)) return 38;
    for (; at < columns; at += 4, bytes += 3) {
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
        const int packed6 = t->kind == U8 && t->rank == 3;
        if (!t->name) continue;
        const int64_t bytes = packed6 ? t->shape[0] * t->shape[1] * t->columns : t->bytes;
        if ((uint64_t)bytes > SIZE_MAX || !(t->items = malloc((size_t)bytes))) return no_memory(error);
        if (!packed6) {
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
