/* lapis-run MODEL.safetensors IMAGE.ppm: the five likeliest classes of a picture. `lapis.h` explains the functions.
 *
 * ImageMagick makes such a picture of any other: magick photo.jpg photo.ppm */
#include <ctype.h>
#include <lapis.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SIDE = 1 << 15 };

/* The next number of a PPM's head and the space behind it; 0 if there is none. Comments go from # to the line's end. */
static int read_number(FILE *file) {
    int number = 0, c = fgetc(file);
    while (isspace(c) || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = fgetc(file);
        c = fgetc(file);
    }
    for (; isdigit(c) && number <= MAX_SIDE; c = fgetc(file)) number = 10 * number + c - '0';
    return isspace(c) ? number : 0;
}

/* The pixels of a binary PPM (P6) of 8 bits, red first; NULL if the file is no such picture. */
static uint8_t *read_ppm(const char *path, int64_t *height, int64_t *width) {
    int high = 0, wide = 0;
    uint8_t *pixels = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fgetc(file) == 'P' && fgetc(file) == '6' && (wide = read_number(file)) > 0 && (high = read_number(file)) > 0 &&
        wide <= MAX_SIDE && high <= MAX_SIDE && read_number(file) == 255) {
        const size_t bytes = (size_t)high * (size_t)wide * 3;
        pixels = malloc(bytes);
        if (pixels && fread(pixels, 1, bytes, file) != bytes) {
            free(pixels);
            pixels = NULL;
        }
    }
    fclose(file);
    *height = high;
    *width = wide;
    return pixels;
}

/* Print a name of a file or a class. Characters that control a terminal, or turn the direction of text, become '?'. */
static void show(FILE *out, const char *name) {
    for (size_t i = 0; name[i]; i++) {
        const unsigned char *c = (const unsigned char *)name + i;
        const int two = c[0] == 0xc2 && c[1] < 0xa0;
        const int three = c[0] == 0xe2 && ((c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae) ||
                                           (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
        fputc(c[0] < 0x20 || c[0] == 0x7f || two || three ? '?' : c[0], out);
        i += three ? 2 : two && c[1];
    }
}

/* Print the best classes. */
static void print_best(const lapis_network *network, const int64_t *logits) {
    int64_t best[5];
    const int64_t count = lapis_best(network, logits, 5, best);
    for (int64_t i = 0; i < count; i++) {
        const char *name = lapis_class_name(network, best[i]);
        printf("%8.3f  class %lld  ", lapis_real(network, logits[best[i]]), (long long)best[i]);
        show(stdout, name ? name : "");
        putchar('\n');
    }
}

int main(int count, char **words) {
    int64_t height = 0, width = 0;
    lapis_network *network = NULL;
    lapis_error error = {0};
    if (count != 3) return fprintf(stderr, "usage: lapis-run MODEL.safetensors IMAGE.ppm\n"), 2;
    if (lapis_open(words[1], 1, 0, &network, &error))
        return show(stderr, words[1]), fprintf(stderr, " is no network that runs here: %s\n", error.message), 2;
    uint8_t *pixels = read_ppm(words[2], &height, &width);
    int64_t *logits = malloc((size_t)lapis_classes(network) * sizeof *logits);
    const int status = pixels && logits ? lapis_run(network, pixels, 1, height, width, logits, &error) : 1;
    if (!status) print_best(network, logits);
    if (status)
        show(stderr, words[2]), fprintf(stderr, ": %s\n", pixels ? error.message : "no binary PPM (P6) of 8 bits");
    free(pixels);
    free(logits);
    lapis_close(network);
    return status ? 2 : 0;
}
