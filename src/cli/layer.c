// SPDX-License-Identifier: MIT
// conv layer WEIGHTS INPUT... OUTPUT: a convolution layer over a tensor or over images.
#include "cli/layer_command.h"

#include <stdio.h>
#include <string.h>

#include "base/descriptors.h"
#include "base/standard.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "io/walk/operands.h"

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

// Decides by the first bytes of a regular file, and by the name of any other file. Standard input
// is a tensor.
static bool is_tensor(const char *path)
{
    struct stat info;
    char head[6] = "";
    if (conv_paths_is_standard(path))
        return true;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return ends_in(path, ".npy");
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof head ? memcmp(head, "\x93NUMPY", sizeof head) == 0 : ends_in(path, ".npy");
}

static enum conv_status check_operands(const struct conv_options *options,
                                       const struct conv_places *places, struct conv_err *err)
{
    int least = options->inputs.files_from ? 0 : 1;
    if (options->operand_count > 0 && places->input_count >= least)
        return CONV_OK;
    if (options->operand_count > 0 && !places->last_is_output)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the input is missing: conv layer WEIGHTS %s INPUT...",
                            options->outputs.beside ? "--beside" : "--output OUTPUT");
    static const char *const missing[] = {"weights, input and output are", "input and output are",
                                          "the output is"};
    return conv_err_set(err, CONV_ERR_USAGE, "%s missing: conv layer WEIGHTS %s OUTPUT",
                        missing[options->operand_count < 2 ? options->operand_count : 2],
                        options->inputs.files_from ? "[INPUT]" : "INPUT...");
}

int conv_layer_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    struct conv_layer_setup setup = {0};
    int code = CONV_EXIT_OK;
    struct conv_places places;
    conv_places_split(&places, options);
    enum conv_status status = check_operands(options, &places, &err);
    // Before the handlers are installed: reading weights from a pipe without a writer then ends at
    // the first signal.
    if (!status)
        status = conv_layer_setup_open(&setup, options, &err);
    atomic_int *stop = conv_signals_install();
    conv_descriptors_raise();
    if (!status) {
        bool tensor = places.input_count == 1 && places.output && !options->inputs.files_from &&
                      is_tensor(places.inputs[0]);
        status = tensor ? conv_layer_run_tensor(options, &places, &setup, stop, &code, &err)
                        : conv_layer_run_images(options, &places, &setup, stop, &code, &err);
    }
    conv_layer_setup_close(&setup);
    int signal = atomic_load(stop);
    if (signal > 0) {
        if (status && status != CONV_ERR_CANCELLED)
            (void)conv_errors_fail(&err);
        return CONV_EXIT_SIGNAL + signal;
    }
    return status ? conv_errors_fail(&err) : code;
}
