// SPDX-License-Identifier: MIT
// The CUDA tenant: a lane is a stream with two device buffers, between which a group goes back and
// forth, one launch a filter and depth, from one copy in to one copy out.
#include "backend/backend.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/stencil.h"

#define OLDEST_CAPABILITY 75 // what the build has code for, and toolkits since CUDA 13 at all

// One filter of the chain, ready for both depths.
struct step {
    struct conv_stencil stencil[2]; // 8 bits, 16 bits
    const struct conv_variant *variant[2];
};

struct conv_backend {
    int device;
    uint8_t *d_stencils; // what the steps' stencils have uploaded
    int step_count;
    struct step steps[];
};

// What the events of a run tell apart.
enum mark { MARK_START, MARK_COPIED_IN, MARK_FILTERED, MARK_COPIED_OUT, MARK_COUNT };

struct conv_lane {
    const struct conv_backend *backend;
    cudaStream_t stream;
    cudaEvent_t marks[MARK_COUNT];
    uint8_t *d_buffer[2]; // `bytes` each; the first also takes the group's tables
    size_t bytes;
};

// --- errors --------------------------------------------------------------------------------------

// Also takes the error off the thread's record, where the check after a later launch would find it.
static enum conv_status report_cuda(struct conv_err *err, cudaError_t code, const char *doing)
{
    (void)cudaGetLastError();
    enum conv_status status = code == cudaErrorMemoryAllocation ? CONV_ERR_MEMORY : CONV_ERR_DEVICE;
    return conv_err_set(err, status, "CUDA failed to %s: %s", doing, cudaGetErrorString(code));
}

// Why a machine has no usable device, in words that tell what to install.
static enum conv_status report_no_device(struct conv_err *err, cudaError_t code)
{
    (void)cudaGetLastError();
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA driver on this machine");
    if (code == cudaErrorInsufficientDriver)
        return conv_err_set(err, CONV_ERR_DEVICE,
                            "the NVIDIA driver knows CUDA %d.%d, this program needs %d.%d or newer",
                            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                            CUDART_VERSION % 1000 / 10);
    return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device: %s", cudaGetErrorString(code));
}

// The current device is a thread's own, and lanes and staging are used by many threads.
static enum conv_status use_device(const struct conv_backend *backend, struct conv_err *err)
{
    cudaError_t code = cudaSetDevice(backend->device);
    return code ? report_cuda(err, code, "select the device") : CONV_OK;
}

// --- devices -------------------------------------------------------------------------------------

static enum conv_status count_devices(int *count, struct conv_err *err)
{
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count == 0)
        code = cudaErrorNoDevice;
    if (code) {
        *count = 0;
        return report_no_device(err, code);
    }
    return CONV_OK;
}

static enum conv_status read_capability(int device, int *capability, struct conv_err *err)
{
    int major = 0, minor = 0;
    cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!code)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = major * 10 + minor;
    return code ? report_cuda(err, code, "ask for the compute capability") : CONV_OK;
}

static enum conv_status read_device(struct conv_device_info *info, int device, struct conv_err *err)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code)
        return report_cuda(err, code, "ask for the device's properties");
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, properties.name);
    info->capability = properties.major * 10 + properties.minor;
    info->multiprocessors = properties.multiProcessorCount;
    code = cudaSetDevice(device);
    if (!code)
        code = cudaMemGetInfo(&info->free, &info->memory);
    return code ? report_cuda(err, code, "ask for the device's memory") : CONV_OK;
}

enum conv_status conv_backend_cuda_devices(struct conv_device_info *info, int room, int *count,
                                           struct conv_err *err)
{
    enum conv_status status = count_devices(count, err);
    for (int i = 0; !status && i < *count && i < room; i++)
        status = read_device(&info[i], i, err);
    return status;
}

// --- open and close ------------------------------------------------------------------------------

static enum conv_status report_no_variant(struct conv_err *err, const char *name, int depth,
                                          int capability)
{
    char names[256] = "";
    int count;
    const struct conv_variant *const *rows = conv_stencil_variants(&count);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        if (rows[i]->where == CONV_ON_CUDA)
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", rows[i]->name);
    }
    return conv_err_set(err, CONV_ERR_USAGE,
                        "kernel '%s' cannot run this filter at %d bits on a GPU of compute "
                        "capability %d.%d; the GPU kernels are %s",
                        name ? name : "any", depth, capability / 10, capability % 10, names);
}

static enum conv_status prepare_step(struct conv_backend *backend, int index, int depth_index,
                                     const struct conv_backend_config *config, int capability,
                                     struct conv_err *err)
{
    struct step *step = &backend->steps[index];
    struct conv_stencil *stencil = &step->stencil[depth_index];
    int depth = depth_index ? 16 : 8;
    conv_stencil_init(stencil, &config->filters[index], depth, config->border,
                      config->border_value);
    const struct conv_variant *variant =
        conv_stencil_pick(stencil, CONV_ON_CUDA, (unsigned)capability, config->variant);
    if (!variant)
        return report_no_variant(err, config->variant, depth, capability);
    step->variant[depth_index] = variant;
    size_t at = (size_t)(2 * index + depth_index) * conv_cuda_upload_bytes();
    if (conv_cuda_upload(stencil, backend->d_stencils + at))
        return report_cuda(err, cudaGetLastError(), "copy the filters to the device");
    return CONV_OK;
}

static enum conv_status prepare_chain(struct conv_backend *backend,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err)
{
    int capability;
    enum conv_status status = read_capability(backend->device, &capability, err);
    if (status)
        return status;
    if (capability < OLDEST_CAPABILITY)
        return conv_err_set(err, CONV_ERR_DEVICE,
                            "CUDA device %d has compute capability %d.%d; 7.5 (Turing) is needed",
                            backend->device, capability / 10, capability % 10);
    status = use_device(backend, err);
    if (status)
        return status;
    size_t bytes = 2 * (size_t)backend->step_count * conv_cuda_upload_bytes();
    cudaError_t code = cudaMalloc((void **)&backend->d_stencils, bytes);
    if (code)
        return report_cuda(err, code, "take memory for the filters");
    for (int i = 0; !status && i < 2 * backend->step_count; i++)
        status = prepare_step(backend, i / 2, i % 2, config, capability, err);
    return status;
}

static void cuda_close(struct conv_backend *backend)
{
    if (!backend)
        return;
    // Nothing can be done about a failure to free, here and below.
    if (backend->d_stencils && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaFree(backend->d_stencils);
    free(backend);
}

static enum conv_status cuda_open(struct conv_backend **out,
                                  const struct conv_backend_config *config, struct conv_err *err)
{
    int devices;
    enum conv_status status = count_devices(&devices, err);
    if (status)
        return status;
    if (config->device < 0 || config->device >= devices)
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device %d: the devices are 0 to %d",
                            config->device, devices - 1);

    size_t steps_size = (size_t)config->filter_count * sizeof(struct step);
    struct conv_backend *backend = calloc(1, sizeof *backend + steps_size);
    if (!backend)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the filters");
    backend->device = config->device;
    backend->step_count = config->filter_count;
    status = prepare_chain(backend, config, err);
    if (status)
        cuda_close(backend);
    else
        *out = backend;
    return status;
}

static void cuda_describe(const struct conv_backend *backend, char *text, size_t size)
{
    snprintf(text, size, "cuda:%d", backend->device);
}

static const char *cuda_variant(const struct conv_backend *backend, int step, int depth)
{
    return backend->steps[step].variant[depth == 16]->name;
}

static size_t cuda_table_bytes(const struct conv_backend *backend)
{
    return (size_t)backend->step_count * sizeof(struct conv_stencil_plane);
}

// Pinned, so that copies run at the bus's speed and beside kernels; portable, so that it is pinned
// for every thread and device.
static enum conv_status cuda_host_alloc(struct conv_backend *backend, void **memory, size_t size,
                                        struct conv_err *err)
{
    enum conv_status status = use_device(backend, err);
    if (status)
        return status;
    cudaError_t code = cudaHostAlloc(memory, size, cudaHostAllocPortable);
    return code ? report_cuda(err, code, "take pinned memory for staging") : CONV_OK;
}

static void cuda_host_free(struct conv_backend *backend, void *memory, size_t size)
{
    (void)size;
    if (memory && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaFreeHost(memory);
}

// --- lanes ---------------------------------------------------------------------------------------

static void free_buffers(struct conv_lane *lane)
{
    for (int i = 0; i < 2; i++) {
        if (lane->d_buffer[i])
            (void)cudaFree(lane->d_buffer[i]);
        lane->d_buffer[i] = NULL;
    }
    lane->bytes = 0;
}

// Nothing of the old content stays.
static enum conv_status reserve_buffers(struct conv_lane *lane, size_t bytes, struct conv_err *err)
{
    if (bytes <= lane->bytes)
        return CONV_OK;
    free_buffers(lane);
    for (int i = 0; i < 2; i++) {
        cudaError_t code = cudaMalloc((void **)&lane->d_buffer[i], bytes);
        if (code) {
            lane->d_buffer[i] = NULL;
            free_buffers(lane);
            return report_cuda(err, code, "take device memory for a group of pictures");
        }
    }
    lane->bytes = bytes;
    return CONV_OK;
}

static void cuda_lane_close(struct conv_lane *lane)
{
    if (!lane)
        return;
    if (cudaSetDevice(lane->backend->device) == cudaSuccess) {
        free_buffers(lane);
        for (int i = 0; i < MARK_COUNT; i++)
            if (lane->marks[i])
                (void)cudaEventDestroy(lane->marks[i]);
        if (lane->stream)
            (void)cudaStreamDestroy(lane->stream);
    }
    free(lane);
}

static enum conv_status fill_lane(struct conv_lane *lane, size_t bytes, struct conv_err *err)
{
    enum conv_status status = use_device(lane->backend, err);
    if (status)
        return status;
    cudaError_t code = cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking);
    if (code)
        return report_cuda(err, code, "make a stream");
    for (int i = 0; i < MARK_COUNT; i++) {
        // Blocking: a thread that waits for its lane sleeps and leaves its core to the codecs.
        code = cudaEventCreateWithFlags(&lane->marks[i], cudaEventBlockingSync);
        if (code)
            return report_cuda(err, code, "make an event");
    }
    return reserve_buffers(lane, bytes, err);
}

static enum conv_status cuda_lane_open(struct conv_backend *backend, struct conv_lane **out,
                                       size_t bytes, struct conv_err *err)
{
    struct conv_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CUDA lane");
    lane->backend = backend;
    enum conv_status status = fill_lane(lane, bytes, err);
    if (status)
        cuda_lane_close(lane);
    else
        *out = lane;
    return status;
}

// --- a group's way through a lane ----------------------------------------------------------------

// One launch: the planes of one depth at one step of the chain.
struct launch {
    uint32_t tiles;
    int first, count; // in the step's part of the table
};

// Fills one part of the table: the group's planes of one depth.
static void fill_table(struct conv_stencil_plane *table, const struct conv_group *group, int depth,
                       const uint8_t *d_src, uint8_t *d_dst)
{
    for (int i = 0; i < group->plane_count; i++) {
        const struct conv_group_plane *plane = &group->planes[i];
        if (plane->depth != depth)
            continue;
        int64_t stride = (int64_t)conv_image_stride(plane->width, depth);
        *table++ = (struct conv_stencil_plane){
            .src = d_src + plane->offset,
            .dst = d_dst + plane->offset,
            .src_stride = stride,
            .dst_stride = stride,
            .width = plane->width,
            .height = plane->height,
        };
    }
}

// Builds the tables of all steps behind the group's planes, where the copy in takes them along. A
// step's part has its 8-bit planes first, then the 16-bit ones.
static void build_tables(const struct conv_lane *lane, struct conv_stencil_plane *tables,
                         const struct conv_group *group,
                         struct launch launches[CONV_FILTER_MAX_CHAIN][2])
{
    int deep = 0;
    for (int i = 0; i < group->plane_count; i++)
        deep += group->planes[i].depth == 16;
    for (int s = 0; s < lane->backend->step_count; s++) {
        const struct step *step = &lane->backend->steps[s];
        struct conv_stencil_plane *table = tables + (size_t)s * (size_t)group->plane_count;
        for (int d = 0; d < 2; d++) {
            struct launch *launch = &launches[s][d];
            launch->first = d ? group->plane_count - deep : 0;
            launch->count = d ? deep : group->plane_count - deep;
            if (launch->count == 0)
                continue;
            fill_table(table + launch->first, group, d ? 16 : 8, lane->d_buffer[s % 2],
                       lane->d_buffer[(s + 1) % 2]);
            launch->tiles =
                conv_stencil_tiles(step->variant[d], table + launch->first, launch->count);
        }
    }
}

static enum conv_status launch_chain(const struct conv_lane *lane,
                                     const struct conv_stencil_plane *tables, size_t table_offset,
                                     int plane_count,
                                     struct launch launches[CONV_FILTER_MAX_CHAIN][2],
                                     struct conv_err *err)
{
    const uint8_t *d_memory = lane->d_buffer[0] + table_offset;
    const struct conv_stencil_plane *d_tables =
        (const struct conv_stencil_plane *)(const void *)d_memory;
    for (int s = 0; s < lane->backend->step_count; s++) {
        const struct step *step = &lane->backend->steps[s];
        for (int d = 0; d < 2; d++) {
            const struct launch *launch = &launches[s][d];
            if (launch->count == 0)
                continue;
            size_t first = (size_t)s * (size_t)plane_count + (size_t)launch->first;
            struct conv_stencil_batch batch = {
                .planes = tables + first,
                .d_planes = d_tables + first,
                .count = launch->count,
                .tiles = launch->tiles,
                .stream = lane->stream,
            };
            if (step->variant[d]->run(&step->stencil[d], &batch)) {
                char doing[96];
                snprintf(doing, sizeof doing, "launch kernel %s", step->variant[d]->name);
                return report_cuda(err, cudaGetLastError(), doing);
            }
        }
    }
    return CONV_OK;
}

static enum conv_status set_mark(const struct conv_lane *lane, enum mark mark, struct conv_err *err)
{
    cudaError_t code = cudaEventRecord(lane->marks[mark], lane->stream);
    return code ? report_cuda(err, code, "record an event") : CONV_OK;
}

// Queues everything, waits for nothing.
static enum conv_status queue_group(struct conv_lane *lane, struct conv_group *group,
                                    struct conv_err *err)
{
    struct launch launches[CONV_FILTER_MAX_CHAIN][2] = {0};
    size_t table_offset = conv_image_align(group->front, CONV_IMAGE_PLANE_ALIGN);
    size_t bytes = table_offset + (size_t)group->plane_count * cuda_table_bytes(lane->backend);
    assert(bytes + group->back <= group->capacity);
    // Lanes are opened for the common group; one huge picture may need more, which then stays.
    enum conv_status status = reserve_buffers(lane, bytes, err);
    if (status)
        return status;
    struct conv_stencil_plane *tables = (void *)(group->h_in + table_offset);
    build_tables(lane, tables, group, launches);

    if ((status = set_mark(lane, MARK_START, err)))
        return status;
    cudaError_t code = cudaMemcpyAsync(lane->d_buffer[0], group->h_in, bytes,
                                       cudaMemcpyHostToDevice, lane->stream);
    if (code)
        return report_cuda(err, code, "copy pictures to the device");
    if ((status = set_mark(lane, MARK_COPIED_IN, err)))
        return status;
    status = launch_chain(lane, tables, table_offset, group->plane_count, launches, err);
    if (status || (status = set_mark(lane, MARK_FILTERED, err)))
        return status;
    code = cudaMemcpyAsync(group->h_out, lane->d_buffer[lane->backend->step_count % 2],
                           group->front, cudaMemcpyDeviceToHost, lane->stream);
    if (code)
        return report_cuda(err, code, "copy pictures from the device");
    return set_mark(lane, MARK_COPIED_OUT, err);
}

static enum conv_status read_time(const struct conv_lane *lane, enum mark from, uint64_t *ns,
                                  struct conv_err *err)
{
    float ms = 0;
    cudaError_t code = cudaEventElapsedTime(&ms, lane->marks[from], lane->marks[from + 1]);
    *ns = (uint64_t)((double)ms * 1e6);
    return code ? report_cuda(err, code, "read the time between events") : CONV_OK;
}

static enum conv_status cuda_lane_run(struct conv_lane *lane, struct conv_group *group,
                                      struct conv_err *err)
{
    group->h_result = group->h_out;
    if (group->plane_count == 0)
        return CONV_OK;
    enum conv_status status = use_device(lane->backend, err);
    if (status)
        return status;
    status = queue_group(lane, group, err);
    if (status) {
        // What is queued already must not touch the caller's memory after we return.
        (void)cudaStreamSynchronize(lane->stream);
        (void)cudaGetLastError();
        return status;
    }
    cudaError_t code = cudaEventSynchronize(lane->marks[MARK_COPIED_OUT]);
    if (code)
        return report_cuda(err, code, "filter a group of pictures");
    if ((status = read_time(lane, MARK_START, &group->ns_copy_in, err)) ||
        (status = read_time(lane, MARK_COPIED_IN, &group->ns_kernel, err)))
        return status;
    return read_time(lane, MARK_FILTERED, &group->ns_copy_out, err);
}

static const struct conv_backend_ops cuda_ops = {
    .name = "cuda",
    .async = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .variant = cuda_variant,
    .table_bytes = cuda_table_bytes,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .lane_open = cuda_lane_open,
    .lane_close = cuda_lane_close,
    .lane_run = cuda_lane_run,
};

const struct conv_backend_ops *conv_backend_cuda(void)
{
    return &cuda_ops;
}
