// SPDX-License-Identifier: MIT
// Writes the seeds of fuzz_jpeg: a small image of every kind, and one with all metadata.
#include <stdio.h>
#include <string.h>

#include "support/jpeg_make.h"

static bool write_seed(const char *folder, const char *name, const struct png_file *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.jpg", folder, name);
    FILE *stream = fopen(path, "wb");
    bool bad = !stream || fwrite(file->data, 1, file->size, stream) != file->size;
    bad |= stream && fclose(stream) != 0;
    if (bad)
        perror(path);
    return !bad;
}

static void add_metadata(struct png_file *file)
{
    static const uint8_t exif[] =
        "Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\6\0\0\0\0\0\32"
        "\0\2\2\1\0\4\0\0\0\1\0\0\0\70\2\2\0\4\0\0\0\1\0\0\0\4\0\0\0\0abcd";
    static const uint8_t xmp[] =
        "http://ns.adobe.com/xap/1.0/\0<?xpacket begin=''?><x:xmpmeta xmlns:x='adobe:ns:meta/'>"
        "<d a='1' xmlns:g='http://ns.adobe.com/xap/1.0/g/img/' g:image='&#xA;'><!-- c --><g:b/>"
        "<Thumbnails><l>/9j/4AAQ</l></Thumbnails>t&amp;</d></x:xmpmeta><?xpacket end='w'?>";
    static const uint8_t photoshop[] = "Photoshop 3.0\0"
                                       "8BIM\4\14\0\0\0\0\0\2ab"
                                       "8BIM\4\4\0\0\0\0\0\11\34\2\170\0\4text\0";
    uint8_t icc[14 + 132] = "ICC_PROFILE\0\1\1";
    memcpy(icc + 14 + 16, "RGB ", 4);
    jpeg_insert(file, 20, 0xFE, "comment", 7);
    jpeg_insert(file, 20, 0xED, photoshop, sizeof photoshop);
    jpeg_insert(file, 20, 0xE2, icc, sizeof icc);
    jpeg_insert(file, 20, 0xE1, xmp, sizeof xmp - 1);
    jpeg_insert(file, 20, 0xE1, exif, sizeof exif - 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct jpeg_spec spec;
    } seeds[] = {
        {"gray", {.channels = 1}},
        {"rgb", {.channels = 3, .colors = JPEG_RGB}},
        {"ycc-420", {.channels = 3, .sampling_h = 2, .sampling_v = 2}},
        {"ycc-411-optimized", {.channels = 3, .sampling_h = 4, .optimized = true}},
        {"restart", {.channels = 3, .restart = 1}},
        {"separate", {.channels = 3, .separate = true}},
        {"progressive", {.channels = 3, .sampling_h = 2, .progressive = true}},
        {"progressive-gray", {.channels = 1, .progressive = true, .restart = 1}},
        {"scans", {.channels = 3, .scans = 20}},
        {"arithmetic", {.channels = 3, .arithmetic = true}},
        {"arithmetic-progressive", {.channels = 1, .arithmetic = true, .progressive = true}},
        {"cmyk", {.channels = 4}},
        {"metadata", {.channels = 3}},
    };
    bool good = argc == 2;
    if (!good)
        fputs("usage: make_jpeg_seeds FOLDER\n", stderr);
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0] && good; i++) {
        struct png_file file = {0};
        struct jpeg_spec spec = seeds[i].spec;
        spec.width = 19;
        spec.height = 13;
        spec.quality = 40;
        jpeg_make(&file, &spec, i);
        if (strcmp(seeds[i].name, "metadata") == 0)
            add_metadata(&file);
        good = write_seed(argv[1], seeds[i].name, &file);
        png_make_free(&file);
    }
    return good ? 0 : 1;
}
