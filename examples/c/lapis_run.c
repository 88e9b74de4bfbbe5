/* lapis-run MODEL.safetensors IMAGE.ppm: the five likeliest classes of a picture. `lapis.h` explains the functions.
 *
 * ImageMagick makes such a picture of any other: magick photo.jpg photo.ppm */
#include <lapis.h>
#include <stdio.h>
#include <stdlib.h>

/* The pixels of a binary PPM (P6) of 8 bits, red first; NULL if the file is no such picture. */
static uint8_t *read_ppm(const char *path, int64_t *height, int64_t *width) {
    enum { MAX_SIDE = 1 << 15 };
    int high = 0, wide = 0, white = 0;
    uint8_t *pixels = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fscanf(file, "P6 %d %d %d", &wide, &high, &white) == 3 && fgetc(file) != EOF && white == 255 && wide > 0 &&
        high > 0 && wide <= MAX_SIDE && high <= MAX_SIDE) {
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

/* Print the best classes; control characters of a name stay out of the terminal. */
static void print_best(const lapis_network *network, const int64_t *logits) {
    int64_t best[5];
    const int64_t count = lapis_best(network, logits, 5, best);
    for (int64_t i = 0; i < count; i++) {
        const char *name = lapis_class_name(network, best[i]);
        printf("%8.3f  class %lld  ", lapis_real(network, logits[best[i]]), (long long)best[i]);
        for (; name && *name; name++) putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
        putchar('\n');
    }
}

int main(int count, char **words) {
    int64_t height, width;
    lapis_network *network = NULL;
    lapis_error error = {0};
    if (count != 3) return fprintf(stderr, "usage: lapis-run MODEL.safetensors IMAGE.ppm\n"), 2;
    if (lapis_open(words[1], 1, 0, &network, &error))
        return fprintf(stderr, "%s is no network that runs here: %s\n", words[1], error.message), 2;
    uint8_t *pixels = read_ppm(words[2], &height, &width);
    int64_t *logits = malloc((size_t)lapis_classes(network) * sizeof *logits);
    int status = 2;
    if (!pixels || !logits)
        fprintf(stderr, "%s is no binary PPM (P6) of 8 bits\n", words[2]);
    else if (lapis_run(network, pixels, 1, height, width, logits, &error))
        fprintf(stderr, "%s: %s\n", words[2], error.message);
    else
        print_best(network, logits), status = 0;
    free(pixels);
    free(logits);
    lapis_close(network);
    return status;
}
