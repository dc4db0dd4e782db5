// SPDX-License-Identifier: MIT
// Tensor files: weights as a whole, and .npy files of any size in parts, in constant memory.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "io/files/temporary.h"
#include "io/sink.h"
#include "tensor/tensor_formats.h"

// --- weights -------------------------------------------------------------------------------------

// A tensor in memory as float32.
struct conv_tensor {
    struct conv_tensor_shape shape;
    float *values; // malloc'ed
};

// Reads `name`: a .npy file, or FILE.safetensors:TENSOR. Integers become floats of the same value.
// `most_bytes`: bound of the float32 tensor. The text of an error begins with the path.
// CONV_ERR_USAGE for a name without or with an unknown tensor, CONV_ERR_IO, CONV_ERR_FORMAT,
// CONV_ERR_UNSUPPORTED, CONV_ERR_LIMIT, CONV_ERR_MEMORY; the tensor is then empty.
enum conv_status conv_tensor_load(struct conv_tensor *tensor, const char *name, size_t most_bytes,
                                  struct conv_err *err);
void conv_tensor_free(struct conv_tensor *tensor); // {0} afterwards

// --- reading in parts ----------------------------------------------------------------------------

struct conv_tensor_reader {
    int fd;
    bool is_regular; // parts can be read in any order by several threads
    struct conv_npy npy;
    struct stat info;
    uint64_t at;      // of other files: the next byte of the data
    atomic_int *stop; // ends the wait for a pipe; may be NULL
};

// Opens a .npy file ("-": standard input) and reads its header. Of a regular file the size is
// checked as well. Errors as conv_tensor_load, without the path; nothing is open then.
enum conv_status conv_tensor_reader_open(struct conv_tensor_reader *reader, const char *path,
                                         atomic_int *stop, struct conv_err *err);

// Reads `count` elements from element `first` on, as the file has them. Unless is_regular, the
// parts are read in order, by one thread at a time. CONV_ERR_IO, CONV_ERR_FORMAT if the file has
// become shorter or a pipe ends, CONV_ERR_CANCELLED.
enum conv_status conv_tensor_reader_read(struct conv_tensor_reader *reader, uint64_t first,
                                         size_t count, void *data, struct conv_err *err);

// After the last element: CONV_ERR_FORMAT if a pipe has more bytes, CONV_ERR_IO if a file has
// changed since it was opened.
enum conv_status conv_tensor_reader_finish(struct conv_tensor_reader *reader, struct conv_err *err);
void conv_tensor_reader_close(struct conv_tensor_reader *reader);

// --- writing in parts ----------------------------------------------------------------------------

// A .npy file that appears whole or not at all; or a stream, to which it is written in order.
struct conv_tensor_writer {
    struct conv_sink sink; // for conv_signals_watch: only `remove_temporaries` is set
    bool force;            // a write-protected file is replaced, too; set before it is opened
    struct conv_temporary_file file;
    size_t header;
};

// Writes a header for that shape, or room for one if `reserve`: conv_tensor_writer_set_shape sets
// it later. Makes the folder of `path`. CONV_ERR_IO; CONV_ERR_USAGE if `path` is a folder, or
// `reserve` and it is a pipe.
enum conv_status conv_tensor_writer_open(struct conv_tensor_writer *writer, const char *path,
                                         enum conv_element element,
                                         const struct conv_tensor_shape *shape, bool reserve,
                                         const atomic_int *stop, struct conv_err *err);

// Writes bytes at `offset` of the data; any thread unless file.is_stream. CONV_ERR_IO,
// CONV_ERR_CANCELLED.
enum conv_status conv_tensor_writer_write(struct conv_tensor_writer *writer, uint64_t offset,
                                          const void *data, size_t size, struct conv_err *err);

// Writes the header that `reserve` has left room for. CONV_ERR_IO, CONV_ERR_CANCELLED.
enum conv_status conv_tensor_writer_set_shape(struct conv_tensor_writer *writer,
                                              enum conv_element element,
                                              const struct conv_tensor_shape *shape,
                                              struct conv_err *err);

// Gives the file its name, or with keep == false removes it. Closes the writer either way.
// CONV_ERR_IO. {0} is fine.
enum conv_status conv_tensor_writer_close(struct conv_tensor_writer *writer, bool keep, bool fsync,
                                          struct conv_err *err);
