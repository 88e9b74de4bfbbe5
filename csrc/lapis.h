/* Lapis in C: open a packed network, give it a picture, get its logits. Needs libc, libm and threads, nothing else.
 *
 *     lapis_error error;
 *     lapis_network *network;
 *     if (lapis_open("model.safetensors", 1, 0, &network, &error)) return puts(error.message), 1;
 *     int64_t *logits = malloc(lapis_classes(network) * sizeof *logits);
 *     if (lapis_run(network, pixels, 1, height, width, logits, &error)) return puts(error.message), 1;
 *     lapis_close(network);
 *
 * A network may be used by one thread at a time; several networks may be used at once. The file and the answers are
 * specified in docs/format.md; the logits are the integers of its test vector on every machine. */
#ifndef LAPIS_H
#define LAPIS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define LAPIS_API __declspec(dllexport)
#else
#define LAPIS_API __attribute__((visibility("default")))
#endif

typedef enum {
    LAPIS_OK = 0,
    LAPIS_BAD_ARGUMENT = 1, /* a size, a null pointer or an enum out of range */
    LAPIS_OUT_OF_MEMORY = 2,
    LAPIS_BAD_CODES = 3,      /* fp32 codes that are not integers, or that span more than 0..255 */
    LAPIS_BAD_DISTANCE = 4,   /* a distance (with its delay) outside the affinity table */
    LAPIS_WOULD_OVERFLOW = 5, /* an int32 accumulator could overflow at this shape */
    LAPIS_CANNOT_READ = 6,    /* there is no such file, or the system does not let it be read */
    LAPIS_BAD_FILE = 7,       /* the file breaks a rule of docs/format.md: lapis_error.rule */
    LAPIS_UNSUPPORTED = 8     /* a valid file that this engine does not run: its tables or sums would be too large */
} lapis_status;

/* Why a call failed. Functions below take NULL for it and return the same status. */
typedef struct {
    int32_t status; /* a lapis_status */
    int32_t rule;   /* the rule that the file breaks, as docs/format.md numbers them; 0 for other errors */
    char message[496];
} lapis_error;

typedef struct lapis_network lapis_network;

enum { LAPIS_LOW_MEMORY = 1 }; /* keep one form of each layer: the same answers, a little later */

/* Open a packed file, or its bytes, which are not needed afterwards. Everything that docs/format.md lets a reader
 * reject is checked before anything runs. `threads`, 1 to 256, share the work of a run; `flags` is 0 or
 * LAPIS_LOW_MEMORY. On failure *network is NULL. */
LAPIS_API int32_t lapis_open(const char *path, int32_t threads, int32_t flags, lapis_network **network,
                             lapis_error *error);
LAPIS_API int32_t lapis_open_memory(const void *data, size_t bytes, int32_t threads, int32_t flags,
                                    lapis_network **network, lapis_error *error);
LAPIS_API void lapis_close(lapis_network *network); /* NULL is closed already */

/* Sizes of a network. Channels of a token are `width`, those of the hidden layer `hidden`; codes lie in low..window. */
typedef struct {
    int64_t image_size, patch_size, tokens, classes, width, depth, heads, hidden;
    int32_t window, head_exponent;
    int32_t low_attention_in, low_qk, low_v, low_readout, low_mlp_in, low_mlp_hidden; /* 0, or -window */
} lapis_sizes;
LAPIS_API const lapis_sizes *lapis_sizes_of(const lapis_network *network);

/* The number of classes, and the name of one in UTF-8: NULL where the file has no names, or no such class. Names come
 * from the file and may hold any character, also those that control a terminal; one with U+0000 ends there. */
LAPIS_API int64_t lapis_classes(const lapis_network *network);
LAPIS_API const char *lapis_class_name(const lapis_network *network, int64_t index);

/* pixels [batch, height, width, 3], red first, of any size -> logits [batch, classes]. */
LAPIS_API int32_t lapis_run(lapis_network *network, const uint8_t *pixels, int64_t batch, int64_t height, int64_t width,
                            int64_t *logits, lapis_error *error);

/* The same for one picture, with its codes: lapis_trace_bytes bytes. Blocks lie one after the other; in each the codes
 * of attention_in, q, k, v, readout, mlp_in [tokens, width] and of mlp_hidden [tokens, hidden]. */
LAPIS_API int32_t lapis_watch(lapis_network *network, const uint8_t *pixels, int64_t height, int64_t width,
                              int64_t *logits, int8_t *codes, lapis_error *error);
LAPIS_API int64_t lapis_trace_bytes(const lapis_network *network);

/* One picture resized and cut as the network sees it: [image_size, image_size, 3]. lapis_run does this itself. */
LAPIS_API int32_t lapis_prepare(const lapis_network *network, const uint8_t *pixels, int64_t height, int64_t width,
                                uint8_t *prepared, lapis_error *error);

/* The real number that a logit stands for, by which classes are ranked. */
LAPIS_API float lapis_real(const lapis_network *network, int64_t logit);

/* The `count` best classes of the logits of one picture, best first, equal ones in their order; returns how many there
 * are, at most the number of classes. */
LAPIS_API int64_t lapis_best(const lapis_network *network, const int64_t *logits, int64_t count, int64_t *classes);

#ifdef __cplusplus
}
#endif
#endif
