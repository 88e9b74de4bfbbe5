/* A packed file in memory: its checked header, then its tensors. docs/format.md specifies both. */
#ifndef LAPIS_PACKED_H
#define LAPIS_PACKED_H

#include "../engine/engine.h"
#include "json.h"

enum {
    MAX_HEADER = 4 << 20,
    MAX_BLOCKS = 256,
    FLOAT_WEIGHTS = 32,
    SIX_BITS = 6,
    LONGEST_DELAY = (1 << 14) - 1,
    MAX_AFFINITY_BITS = 15,
    AFFINITY_MAX = (1 << MAX_AFFINITY_BITS) - 1
};

/* Points that share a mode and a minimum code. */
enum { MODE_ATTENTION, MODE_QK, MODE_V, MODE_READOUT, MODE_MLP, MODE_HIDDEN, MODES };

typedef enum { RELATION_LEAK, RELATION_SHIFT, RELATION_TABLE } relation_kind;

typedef enum { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC, FILTER_LANCZOS } filter_kind;

typedef struct {
    int64_t image_size, patch_size, classes, width, depth, heads, mlp_ratio, window, weight_bits;
    int64_t version, fraction_bits, head_exponent, affinity_bits;
    int64_t grid, tokens, channels, hidden; /* G, N, C, M */
    int64_t code_distances;                 /* of a query and a key, 0 included */
    int64_t allowance;                      /* entries that tables may have in all */
    int beit;
    relation_kind relation;
    int32_t low[MODES], least[MODES][MAX_BLOCKS];
    float activity[LAPIS_POINTS][MAX_BLOCKS]; /* -1: not recorded */
    filter_kind filter;
    double crop;
} packed_header;

typedef enum { I64, F32, U32, I32, U16, I16, I8, U8 } item_kind;

/* clang-format off */
enum {
    PATCH_WEIGHT, PATCH_SHIFT, POSITION, HEAD_WEIGHT, HEAD_BIAS,
    ATTENTION_GAIN, ATTENTION_SHIFT, MLP_GAIN, MLP_SHIFT,
    QKV_WEIGHT, QKV_SCALE, QKV_SHIFT, PROJ_WEIGHT, PROJ_SCALE, PROJ_SHIFT,
    FC1_WEIGHT, FC1_SCALE, FC1_SHIFT, FC2_WEIGHT, FC2_SCALE, FC2_SHIFT,
    READOUT_SCALE, READOUT_SHIFT, RISE, FALL,
    LEAK_MANTISSA, LEAK_EXPONENT, LEAK_DELAY, AFFINITY_MANTISSA, AFFINITY_EXPONENT, SHIFT_HALVINGS,
    TENSORS
};
/* clang-format on */

typedef struct {
    const char *name; /* NULL: not in this network */
    item_kind kind;
    int32_t rank;
    int64_t shape[3];
    int64_t bytes, begin; /* in the file */
    int64_t columns;      /* of a weight, as it is used */
    void *items;          /* aligned, in the order of this machine's bytes; weights of six bits as int8 */
} tensor;

typedef struct {
    packed_header header;
    tensor tensors[TENSORS];
    char *names;     /* class names, each ended by a zero, one after the other */
    int64_t *starts; /* of each of them; NULL where there are none */
    int64_t data_bytes;
} packed;

/* Fill in the error and return its status: the file breaks a rule, `what` says where; or another error. */
int32_t refuse(lapis_error *error, int32_t rule, const char *what, ...);
int32_t report(lapis_error *error, lapis_status status, const char *what, ...);
int32_t no_memory(lapis_error *error);

/* Check the text of a header, of a file with `data_bytes` behind it, and fill in all but the tensors' items. */
int32_t read_header(const char *text, size_t length, int64_t data_bytes, packed *file, lapis_error *error);

/* Check the values of a description's parts. */
int32_t read_config(const json_value *config, packed_header *header, lapis_error *error);
int32_t read_preprocess(const json_value *preprocess, packed_header *header, lapis_error *error);
int32_t read_class_names(const json_value *names, packed *file, lapis_error *error);
int32_t read_activity(const json_value *activity, packed_header *header, lapis_error *error);

/* The tensors that a configuration has, with their sizes, and the allowance, which follows from these. */
void list_tensors(packed *file);
int32_t check_work(const packed_header *header, lapis_error *error);
int32_t read_offsets(const json_value *table, packed *file, lapis_error *error);

/* Take the tensors' items from the data behind the header, and check every bound that the arithmetic relies on. */
int32_t read_tensors(const unsigned char *data, packed *file, lapis_error *error);
int32_t check_tensors(const packed *file, lapis_error *error);
void free_packed(packed *file);

/* The engine of a checked file. */
int32_t make_engine(const packed *file, int32_t threads, int32_t low_memory, lapis_engine **engine, lapis_error *error);

/* A picture of any size as [image_size, image_size, 3]. */
int32_t resize_picture(const packed_header *header, const uint8_t *pixels, int64_t height, int64_t width, uint8_t *out,
                       lapis_error *error);

#endif
