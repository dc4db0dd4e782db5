// SPDX-License-Identifier: MIT
// The encoders that a program offers by name.
#include <string.h>

#include "base/suggest.h"
#include "png/png.h"

static const struct {
    const char *name;
    const struct conv_png_encoder *encoder;
} encoders[] = {{"fast", NULL}, {"libpng", &conv_png_libpng}, {"stb", &conv_png_stb}};
enum { COUNT = sizeof encoders / sizeof encoders[0] };

enum conv_status conv_png_parse_encoder(const struct conv_png_encoder **encoder, const char *name,
                                        struct conv_err *err)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(name, encoders[i].name) == 0) {
            *encoder = encoders[i].encoder;
            return CONV_OK;
        }
    }
    const char *near = conv_suggest_nearest(name, &encoders[0].name, sizeof encoders[0], COUNT);
    if (near)
        return conv_err_set(err, CONV_ERR_USAGE, "unknown encoder '%.64s'; did you mean '%s'?",
                            name, near);
    return conv_err_set(err, CONV_ERR_USAGE,
                        "unknown encoder '%.64s' (there are fast, libpng, stb)", name);
}
