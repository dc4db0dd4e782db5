// SPDX-License-Identifier: MIT
#include "engine/file_memory.h"

#include <stdlib.h>
#include <string.h>

enum conv_status conv_file_memory_open(struct conv_file_memory *files,
                                       const conv_encode_options *options, int most,
                                       struct conv_err *err)
{
    size_t count = most > 0 ? (size_t)most : 1;
    *files = (struct conv_file_memory){
        .allocate = options->allocate,
        .user = options->user,
        .indices = calloc(count, sizeof *files->indices),
        .sizes = calloc(count, sizeof *files->sizes),
        .memory = calloc(count, sizeof *files->memory),
    };
    if (files->indices && files->sizes && files->memory)
        return CONV_OK;
    conv_file_memory_close(files);
    return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

void conv_file_memory_close(struct conv_file_memory *files)
{
    free(files->indices);
    free(files->sizes);
    free(files->memory);
    *files = (struct conv_file_memory){0};
}

void conv_file_memory_add(struct conv_file_memory *files, int index, size_t size)
{
    files->indices[files->count] = index;
    files->sizes[files->count] = size;
    files->memory[files->count] = NULL;
    files->count++;
}

void conv_file_memory_call(struct conv_file_memory *files)
{
    if (files->count > 0)
        files->allocate(files->user, files->count, files->indices, files->sizes, files->memory);
}
