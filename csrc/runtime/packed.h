/* A packed file in memory: its checked header, then its tensors. docs/format.md specifies both. */
#ifndef LAPIS_PACKED_H
#define LAPIS_PACKED_H

#include "../engine/engine.h"
#include "../limits.h"
#include "json.h"

/* Measuring points that share a coding and a minimum code. */
enum {
#define POINT(index, name) index,
#include "schema.inc"
    CODED_POINTS
};

/* The words of a field, by their places. */
#define CHOICES(name, ...) enum { __VA_ARGS__ };
#include "schema.inc"

typedef struct {
#define INTEGER(object, name, ...) int64_t name;
#define WORD(object, name, ...) int32_t name;
#include "schema.inc"
    int64_t grid, tokens, channels, hidden; /* G, N, C, M */
    int64_t code_distances;                 /* of a query and a key, 0 included */
    int64_t allowance;                      /* entries that tables may have in all */
    int32_t low[CODED_POINTS], min_code[CODED_POINTS][MAX_BLOCKS];
    float activity[LAPIS_POINTS][MAX_BLOCKS]; /* -1: not recorded */
    double mean[3], std[3], crop[1];
} packed_header;

typedef enum {
#define KIND(name, bytes) name,
#include "schema.inc"
    WEIGHT
} item_kind;

enum {
#define TENSOR(index, ...) index,
#include "schema.inc"
    TENSORS
};

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

/* Check a description but for its sizes of tensors, and fill in the header and the class names. */
int32_t read_description(const json_value *description, packed *file, lapis_error *error);

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
