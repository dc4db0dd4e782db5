// SPDX-License-Identifier: MIT
#include "image/format.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct kind {
    const char *name;
    size_t at; // of the magic bytes in the file
    size_t length;
    const char *magic;
    const char *extensions[5]; // ended by NULL
} kinds[] = {
    {"PNG", 0, 4, "\x89PNG", {"png", "apng"}},
    {"JPEG", 0, 3, "\xFF\xD8\xFF", {"jpg", "jpeg", "jpe", "jfif"}},
    {"TIFF", 0, 4, "II*\0", {"tif", "tiff"}},
    {"TIFF", 0, 4, "MM\0*", {NULL}},
    {"WebP", 8, 4, "WEBP", {"webp"}},
    {"GIF", 0, 4, "GIF8", {"gif"}},
    {"AVIF", 4, 8, "ftypavif", {"avif"}},
    {"HEIC", 4, 7, "ftyphei", {"heic", "heif"}},
    {"HEIC", 4, 8, "ftypmif1", {NULL}},
    {"JPEG XL", 4, 4, "JXL ", {"jxl"}},
    {"JPEG XL", 0, 2, "\xFF\x0A", {NULL}},
    {"JPEG 2000", 4, 4, "jP  ", {"jp2", "j2k"}},
    {"BMP", 0, 2, "BM", {"bmp"}},
    {"OpenEXR", 0, 4, "\x76\x2F\x31\x01", {"exr"}},
    {"PDF", 0, 4, "%PDF", {"pdf"}},
    {"netpbm", 0, 3, "P5\n", {"pgm", "pnm", "pam", "pbm"}},
    {"netpbm", 0, 3, "P6\n", {"ppm"}},
    {"SVG", 0, 4, "<svg", {"svg"}},
    {"TGA", 0, 0, NULL, {"tga"}},
    {"raw", 0, 0, NULL, {"dng", "nef", "cr2", "cr3"}},
    {"raw", 0, 0, NULL, {"arw", "raf", "orf", "rw2"}},
};

#define COUNT (sizeof kinds / sizeof kinds[0])

const char *conv_format_of_bytes(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < COUNT; i++) {
        const struct kind *kind = &kinds[i];
        if (kind->length > 0 && size >= kind->at + kind->length &&
            memcmp(data + kind->at, kind->magic, kind->length) == 0)
            return kind->name;
    }
    return NULL;
}

const char *conv_format_of_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (!dot || strchr(dot, '/'))
        return NULL;
    for (size_t i = 0; i < COUNT; i++)
        for (const char *const *extension = kinds[i].extensions; *extension; extension++)
            if (strcasecmp(dot + 1, *extension) == 0)
                return kinds[i].name;
    return NULL;
}

const char *conv_format_article(const char *format)
{
    return strchr("AEHIO", format[0]) || strcmp(format, "SVG") == 0 ? "an" : "a";
}

void conv_metadata_free(struct conv_metadata *metadata)
{
    free(metadata->data);
    *metadata = (struct conv_metadata){0};
}
