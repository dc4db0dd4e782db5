// SPDX-License-Identifier: MIT
// Tables that kernels read. The upload of a table must not stop the caller, so it is copied from
// pinned memory, which stays until the device has read it. A filter that runs on the same images
// again finds its table there.
#include <string.h>

#include "engine/cuda_context.h"

// A table for up to 46 planes. Memory for all such tables is taken at once, so that later calls
// take none, however fast they follow each other.
#define SMALL_BYTES ((size_t)4 << 10)

static void free_pair(uint8_t *h_data, uint8_t *d_data)
{
    if (h_data)
        (void)cudaFreeHost(h_data); // nothing can be done about failures
    if (d_data)
        (void)cudaFree(d_data);
}

static enum conv_status take_pair(uint8_t **h_data, uint8_t **d_data, size_t bytes,
                                  struct conv_err *err)
{
    void *h_new = NULL, *d_new = NULL;
    cudaError_t code = cudaHostAlloc(&h_new, bytes, cudaHostAllocDefault);
    if (code)
        return conv_cuda_device_report(err, code, "allocate pinned memory for tables");
    code = cudaMalloc(&d_new, bytes);
    if (code) {
        (void)cudaFreeHost(h_new);
        return conv_cuda_device_report(err, code, "allocate memory for tables");
    }
    *h_data = h_new;
    *d_data = d_new;
    return CONV_OK;
}

void conv_cuda_table_free(struct conv_cuda_table_cache *tables)
{
    for (int i = 0; i < tables->count; i++) {
        struct conv_cuda_table *table = &tables->table[i];
        if (table->large)
            free_pair(table->h_data, table->d_data);
        conv_cuda_event_destroy(&table->used);
    }
    free_pair(tables->h_block, tables->d_block);
    *tables = (struct conv_cuda_table_cache){0};
}

// Memory of its own for a table that no work reads; its content is lost.
static enum conv_status grow(struct conv_cuda_table *table, size_t bytes, struct conv_err *err)
{
    uint8_t *h_data = NULL, *d_data = NULL;
    size_t capacity = (bytes + bytes / 4 + SMALL_BYTES - 1) / SMALL_BYTES * SMALL_BYTES;
    enum conv_status status = take_pair(&h_data, &d_data, capacity, err);
    if (status)
        return status;
    if (table->large)
        free_pair(table->h_data, table->d_data);
    table->h_data = h_data;
    table->d_data = d_data;
    table->capacity = capacity;
    table->bytes = 0;
    table->large = true;
    return CONV_OK;
}

static struct conv_cuda_table *find_equal(struct conv_cuda_table_cache *tables, const void *content,
                                          size_t bytes)
{
    // The most recent tables are compared first.
    for (int i = 1; i <= tables->count; i++) {
        int at = (tables->next - i + tables->count) % tables->count;
        struct conv_cuda_table *table = &tables->table[at];
        if (table->bytes == bytes && memcmp(table->h_data, content, bytes) == 0)
            return table;
    }
    return NULL;
}

// A table that no work reads any more. The oldest is the first to become free.
static enum conv_status find_free(struct conv_cuda_table_cache *tables,
                                  struct conv_cuda_table **out, struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    if (tables->count > 0) {
        struct conv_cuda_table *oldest = &tables->table[tables->next % tables->count];
        code = tables->count < CONV_CUDA_TABLES ? cudaEventQuery(oldest->used)
                                                : cudaEventSynchronize(oldest->used);
        if (!code) {
            tables->next = (tables->next + 1) % tables->count;
            *out = oldest;
            return CONV_OK;
        }
    }
    if (code && code != cudaErrorNotReady)
        return conv_cuda_device_report(err, code, "wait for a filter");
    (void)cudaGetLastError();
    // All are in use: adds another one, which is the most recent.
    struct conv_cuda_table *added = &tables->table[tables->count];
    enum conv_status status = tables->h_block ? CONV_OK
                                              : take_pair(&tables->h_block, &tables->d_block,
                                                          CONV_CUDA_TABLES * SMALL_BYTES, err);
    if (!status)
        status = conv_cuda_context_event(&added->used, err);
    if (status)
        return status;
    added->h_data = tables->h_block + (size_t)tables->count * SMALL_BYTES;
    added->d_data = tables->d_block + (size_t)tables->count * SMALL_BYTES;
    added->capacity = SMALL_BYTES;
    tables->count++;
    // The order of use starts again, which costs one more table at most.
    tables->next = 0;
    *out = added;
    return CONV_OK;
}

enum conv_status conv_cuda_table_get(struct conv_cuda_table_cache *tables, const void *content,
                                     size_t bytes, cudaStream_t stream,
                                     struct conv_cuda_table **out, struct conv_err *err)
{
    struct conv_cuda_table *table = find_equal(tables, content, bytes);
    cudaError_t code = cudaSuccess;
    if (table) {
        // Its last use may be on another stream, and kernels keep counters in it. Comparing streams
        // does not help: a new one may have the address of one that has been destroyed. Only the
        // default stream is always the same.
        if (stream != NULL || !table->on_default)
            code = cudaStreamWaitEvent(stream, table->used, 0);
    } else {
        enum conv_status status = find_free(tables, &table, err);
        if (!status && bytes > table->capacity)
            status = grow(table, bytes, err);
        if (status)
            return status;
        memcpy(table->h_data, content, bytes);
        table->bytes = bytes;
        code = cudaMemcpyAsync(table->d_data, table->h_data, bytes, cudaMemcpyHostToDevice, stream);
    }
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    *out = table;
    return CONV_OK;
}

enum conv_status conv_cuda_table_used(struct conv_cuda_table *table, cudaStream_t stream,
                                      struct conv_err *err)
{
    table->on_default = stream == NULL;
    return conv_cuda_event_record(table->used, stream, err);
}
