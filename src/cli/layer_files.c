// SPDX-License-Identifier: MIT
// Which files `conv layer` may read and write when it converts one tensor to another.
#include "cli/layer_command.h"

#include <sys/stat.h>

#include "cli/own_files.h"
#include "io/files/paths.h"
#include "io/walk/operands.h"

// True if `path` is the same regular file as the output.
static bool would_overwrite(const char *output, const char *path)
{
    struct conv_paths_identity in, out;
    return conv_paths_identify(&in, path) && in.exists && S_ISREG(in.info.st_mode) &&
           conv_paths_identify(&out, output) && conv_paths_is_same(&in, &out);
}

enum conv_status conv_layer_check_files(const struct conv_options *options, const char *input,
                                        const char *output, struct conv_err *err)
{
    struct conv_own_files_use use = {options->operands[0], &input, 1, output};
    enum conv_status status = conv_own_files_check(options, &use, err);
    bool to_standard = conv_paths_is_standard(output);
    if (status)
        return status;
    if (options->outputs.resume_path)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--resume is for many outputs, and %s is one; use --skip-existing or "
                            "--update",
                            output);
    if (!to_standard && would_overwrite(output, input))
        return conv_err_set(err, CONV_ERR_USAGE, "%s: the output would overwrite the input", input);
    if (!to_standard && would_overwrite(output, options->operands[0]))
        return conv_err_set(err, CONV_ERR_USAGE, "%s: the output would overwrite the weights",
                            options->operands[0]);
    if (!to_standard && options->filter.settings.bias &&
        would_overwrite(output, options->filter.settings.bias))
        return conv_err_set(err, CONV_ERR_USAGE, "%s: the output would overwrite the bias",
                            options->filter.settings.bias);
    return conv_places_check_standard(options, output, "tensor", err);
}

const char *conv_layer_skip_reason(const struct conv_output_options *outputs, const char *input,
                                   const char *output)
{
    struct stat in, out;
    if (conv_paths_is_standard(output) || stat(output, &out) != 0 || !S_ISREG(out.st_mode))
        return NULL;
    if (outputs->skip_existing)
        return "the output exists";
    if (!outputs->update || stat(input, &in) != 0)
        return NULL;
    return conv_paths_is_older(&out, &in) ? NULL : "the output is up to date";
}
