// SPDX-License-Identifier: MIT
// The table, and how a format is chosen from it.
#include "io/files/formats.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "png/png.h"
#if CONV_HAVE_JPEG
#include "jpeg/jpeg.h"
#endif
#if CONV_HAVE_TIFF
#include "tiff/tiff.h"
#endif

const struct conv_format *const conv_formats[] = {
    &conv_png_format,
#if CONV_HAVE_JPEG
    &conv_jpeg_format,
#endif
#if CONV_HAVE_TIFF
    &conv_tiff_format,
#endif
#if CONV_HAVE_WEBP
    &conv_webp_format,
#endif
    &conv_pnm_format,  &conv_ppm_format, &conv_pgm_format, &conv_pam_format,
};
const int conv_format_count = sizeof conv_formats / sizeof conv_formats[0];

#if CONV_HAVE_JPEG
#define JPEG ", JPEG"
#else
#define JPEG ""
#endif
#if CONV_HAVE_TIFF
#define TIFF ", TIFF"
#else
#define TIFF ""
#endif
#if CONV_HAVE_WEBP
#define WEBP ", WebP"
#else
#define WEBP ""
#endif
const char conv_formats_read[] = "PNG" JPEG TIFF WEBP " or PNM",
           conv_formats_written[] = "PNG" JPEG TIFF WEBP " and PNM";

const struct conv_format *conv_formats_of_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; i < conv_format_count; i++)
        for (const char *const *pattern = conv_formats[i]->patterns; *pattern; pattern++)
            if (fnmatch(*pattern, name, FNM_CASEFOLD) == 0)
                return conv_formats[i];
    return NULL;
}

const struct conv_format *conv_formats_of_extension(const char *extension)
{
    char name[16];
    int length = snprintf(name, sizeof name, "x.%s", extension);
    return length > 2 && length < (int)sizeof name ? conv_formats_of_name(name) : NULL;
}

static const struct conv_format *find(const char *name)
{
    for (int i = 0; name && i < conv_format_count; i++)
        if (strcmp(conv_formats[i]->name, name) == 0)
            return conv_formats[i];
    return NULL;
}

const struct conv_format *conv_formats_find(const uint8_t *data, size_t size)
{
    const struct conv_format *format = find(conv_format_of_bytes(data, size));
    return format ? format : conv_formats[0];
}

const char *conv_formats_converter(const char *format)
{
    if (strstr("DNG NEF CR2 CR3 ARW RAF ORF RW2", format)) // of cameras
        return "darktable-cli INPUT OUTPUT.png";
    // Formats that libvips does not read by itself.
    static const char *const others[] = {"BMP", "TGA"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(format, others[i]) == 0)
            return "mogrify -format png INPUT";
    return "vips copy INPUT OUTPUT.png";
}

enum conv_status conv_formats_check(const struct conv_format **format, const uint8_t *data,
                                    size_t size, bool is_whole, struct conv_err *err)
{
    const char *name = conv_format_of_bytes(data, size);
    const struct conv_format *found = find(name);
    *format = found ? found : conv_formats[0];
    if (!is_whole && size < (*format)->head_bytes) {
        *format = NULL;
        return CONV_OK;
    }
    if (name && !found)
        return conv_err_format(err, "%s %s; conv reads %s only (%s converts it)",
                               conv_format_article(name), name, conv_formats_written,
                               conv_formats_converter(name));
    // A file that ends within a signature is truncated.
    bool begins = size > 0 && (data[0] == 0x89 || data[0] == 0xFF);
    if (!name && size > 0 && !(begins && size < conv_formats[0]->head_bytes))
        return conv_err_format(err, "not a %s (bad signature)", conv_formats_read);
    return conv_format_check_head(*format, data, size, err);
}
