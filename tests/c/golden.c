/* The golden vectors of docs/format.md ("Test vector") on every instruction set of this processor:
 *
 *     golden ROOT     reads ROOT/docs/format-vector.json and the networks that it names
 *
 * Logits are compared one by one, codes by their SHA-256. CTest runs it: ctest --test-dir build/library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "runtime/json.h"

static const char *const POINTS[] = {"attention_in", "q", "k", "v", "readout", "mlp_in", "mlp_hidden"};
enum { POINT_COUNT = 7, HEX = 64, MAX_VALUES = 1 << 20 };

static void fail(const char *what, const char *where) {
    fprintf(stderr, "golden: %s: %s\n", where, what);
    exit(1);
}

static char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail("cannot be read", path);
    *bytes = (size_t)ftell(file);
    char *data = malloc(*bytes + 1);
    rewind(file);
    if (!data || fread(data, 1, *bytes, file) != *bytes) fail("cannot be read", path);
    fclose(file);
    return data;
}

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The fractions of the roots of the first primes, from which SHA-256 takes its constants: exact in integers, as the
 * largest x with x^power <= prime 2^(32 power). */
static uint32_t root_fraction(unsigned prime, int power) {
    uint64_t x = 0;
    for (int bit = 36; bit >= 0; bit--) {
        const uint64_t larger = x | UINT64_C(1) << bit;
        unsigned __int128 product = (unsigned __int128)larger * larger, limit = (unsigned __int128)prime << 64;
        /* A cube of 36 bits has 108 bits; prime 2^96 has at most 105. */
        if (power == 3) product *= larger, limit <<= 32;
        if (larger >> 36 || product > limit) continue;
        x = larger;
    }
    return (uint32_t)x;
}

static void sha256_block(const unsigned char *block, const uint32_t *constants, uint32_t *state) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t first = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) +
                               ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        const uint32_t second = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) +
                                ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

static void sha256(const void *data, size_t bytes, char hex[HEX + 1]) {
    uint32_t constants[64], state[8];
    for (unsigned prime = 2, found = 0; found < 64; prime++) {
        unsigned divisor = 2;
        while (divisor < prime && prime % divisor) divisor++;
        if (divisor < prime) continue;
        if (found < 8) state[found] = root_fraction(prime, 2);
        constants[found++] = root_fraction(prime, 3);
    }
    const unsigned char *at = data;
    size_t left = bytes;
    for (; left >= 64; left -= 64, at += 64) sha256_block(at, constants, state);
    unsigned char tail[128] = {0};
    const size_t size = left < 56 ? 64 : 128;
    memcpy(tail, at, left);
    tail[left] = 0x80;
    for (int i = 0; i < 8; i++) tail[size - 1 - (size_t)i] = (unsigned char)((uint64_t)bytes * 8 >> 8 * i);
    for (size_t block = 0; block < size; block += 64) sha256_block(tail + block, constants, state);
    for (int i = 0; i < 8; i++) sprintf(hex + 8 * i, "%08x", (unsigned)state[i]);
}

static int64_t number(const json_value *image, const char *name) {
    const json_value *field = json_field(image, name);
    if (!field || field->kind != JSON_INTEGER) fail("is not an integer of the vector", name);
    return field->integer;
}

static void check_hash(const json_value *wanted, const void *data, size_t bytes, const char *what, const char *where) {
    char hex[HEX + 1];
    sha256(data, bytes, hex);
    if (!wanted || !json_equals(wanted->text, hex)) fail(what, where);
}

static uint8_t *picture(const json_value *image, int64_t height, int64_t width) {
    const int64_t row = number(image, "per_row"), column = number(image, "per_column"),
                  product = number(image, "per_product"), colour = number(image, "per_colour"),
                  start = number(image, "start");
    uint8_t *pixels = malloc((size_t)(height * width * 3));
    for (int64_t i = 0; pixels && i < height * width * 3; i++) {
        const int64_t y = i / 3 / width, x = i / 3 % width;
        pixels[i] = (uint8_t)((row * y + column * x + product * y * x + colour * (i % 3) + start) % 256);
    }
    return pixels;
}

static void check_codes(const json_value *wanted, const lapis_sizes *sizes, const int8_t *codes, const char *where) {
    for (int64_t block = 0; block < sizes->depth; block++) {
        char name[24];
        sprintf(name, "%lld", (long long)block);
        const json_value *points = json_field(wanted, name);
        for (int point = 0; point < POINT_COUNT; point++) {
            const int64_t count = sizes->tokens * (point == POINT_COUNT - 1 ? sizes->hidden : sizes->width);
            if (points) check_hash(json_field(points, POINTS[point]), codes, (size_t)count, POINTS[point], where);
            codes += count;
        }
    }
}

static void check_image(lapis_network *network, const json_value *image, const char *where) {
    const lapis_sizes *sizes = lapis_sizes_of(network);
    const int64_t height = number(image, "height"), width = number(image, "width");
    uint8_t *pixels = picture(image, height, width);
    int64_t *logits = malloc((size_t)sizes->classes * sizeof *logits);
    int8_t *codes = malloc((size_t)lapis_trace_bytes(network));
    lapis_error error;
    if (!pixels || !logits || !codes) fail("no memory", where);
    check_hash(json_field(image, "image_sha256"), pixels, (size_t)(height * width * 3), "the image differs", where);
    if (lapis_watch(network, pixels, height, width, logits, codes, &error)) fail(error.message, where);
    const json_value *wanted = json_field(image, "logits");
    if (!wanted || wanted->count != sizes->classes) fail("has another number of logits", where);
    const json_value *logit = wanted->first;
    for (int64_t i = 0; i < sizes->classes; i++, logit = logit->next)
        if (logits[i] != logit->integer) fail("a logit differs", where);
    check_codes(json_field(image, "codes_sha256"), sizes, codes, where);
    free(pixels);
    free(logits);
    free(codes);
}

static void check_network(const char *root, const json_value *entry, int32_t isa) {
    const json_value *file = json_field(entry, "file"), *images = json_field(entry, "images");
    char path[4096], where[4224];
    lapis_error error;
    lapis_network *network;
    if (!file || !images) fail("has no file or images", "format-vector.json");
    snprintf(path, sizeof path, "%s/%.*s", root, (int)file->text.length, file->text.bytes);
    snprintf(where, sizeof where, "%s on %s", path, lapis_isa_name(isa));
    if (lapis_open(path, 1, 0, &network, &error)) fail(error.message, where);
    for (const json_value *image = images->first; image; image = image->next) check_image(network, image, where);
    lapis_close(network);
    printf("%s: %d images\n", where, (int)images->count);
}

int main(int count, char **arguments) {
    if (count != 2) return fputs("usage: golden ROOT\n", stderr), 2;
    char path[4096];
    size_t bytes;
    json_document document = {0};
    snprintf(path, sizeof path, "%s/docs/format-vector.json", arguments[1]);
    char *text = read_file(path, &bytes);
    if (json_parse(text, bytes, MAX_VALUES, &document) != JSON_OK || document.root->kind != JSON_LIST)
        fail("is no list in JSON", path);
    for (int32_t isa = 0; lapis_isa_name(isa); isa++) {
        if (lapis_isa_select(isa)) continue;
        for (const json_value *entry = document.root->first; entry; entry = entry->next)
            check_network(arguments[1], entry, isa);
    }
    json_free(&document);
    free(text);
    return 0;
}
