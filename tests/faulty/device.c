// SPDX-License-Identifier: MIT
// The program's own objects with another GPU: conv_faulty finds this one, by --wrap of the linker,
// where conv finds CUDA's. It runs the CPU backend behind the asynchronous interface, so that the
// way of groups through lanes is tested on any machine, and fails as CONV_FAULTY says (words
// separated by blanks):
//   real           the backend behind is CUDA, not the CPU
//   lost=N         the device is lost at its Nth group, and all that it is asked for later fails
//   trap=N         (real) a kernel traps before the Nth group: CUDA itself loses the device
//   room=BYTES     no group of more bytes than that has room on the device
//   lanes=BYTES    no lane can be opened for more bytes than that
//   hog=BYTES      (real) all but so many bytes of its memory are taken
//   pins=N         the Nth block of staging memory and all later ones cannot be pinned
//   closed         the device has no memory left when it is opened
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "faulty.h"

#define TABLE_BYTES 64 // of a plane, behind the planes, as CUDA's

const struct conv_backend_ops *__real_conv_backend_cuda(void);
const struct conv_backend_ops *__wrap_conv_backend_cuda(void);
enum conv_status __wrap_conv_backend_cuda_devices(struct conv_device_info *info, int room,
                                                  int *count, struct conv_err *err);

struct conv_backend {
    struct conv_backend *inner;
};

struct conv_lane {
    struct conv_lane *inner;
};

static struct {
    bool real, closed;
    long lost, trap, pins;
    size_t room, lanes, hog;
} plan;

static const struct conv_backend_ops *inner; // who does the work
static atomic_long groups, blocks;
static atomic_bool gone;

static size_t number_of(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

static void read_plan(void)
{
    const char *text = getenv("CONV_FAULTY");
    text = text ? text : "";
    plan.real = strstr(text, "real");
    plan.closed = strstr(text, "closed");
    plan.lost = (long)number_of(text, "lost=");
    plan.trap = (long)number_of(text, "trap=");
    plan.pins = (long)number_of(text, "pins=");
    plan.room = number_of(text, "room=");
    plan.lanes = number_of(text, "lanes=");
    plan.hog = number_of(text, "hog=");
    inner = plan.real ? __real_conv_backend_cuda() : &conv_backend_cpu;
}

static enum conv_status fail(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_DEVICE, "CUDA failed to do what a test forbids");
}

static enum conv_status no_room(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "CUDA failed to take memory that a test forbids");
}

static enum conv_status open_faulty(struct conv_backend **out,
                                    const struct conv_backend_config *config, struct conv_err *err)
{
    if (plan.closed)
        return no_room(err);
    struct conv_backend *backend = calloc(1, sizeof *backend);
    if (!backend)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a faulty device");
    enum conv_status status = inner->open(&backend->inner, config, err);
    if (status)
        free(backend);
    else
        *out = backend;
#if CONV_HAVE_CUDA
    if (!status && plan.hog)
        faulty_hog(plan.hog);
#endif
    return status;
}

static void close_faulty(struct conv_backend *backend)
{
    if (backend)
        inner->close(backend->inner);
    free(backend);
}

static void describe(const struct conv_backend *backend, char *text, size_t size)
{
    (void)backend;
    snprintf(text, size, "cuda:0");
}

static const char *variant(const struct conv_backend *backend, int step, int depth)
{
    return inner->variant(backend->inner, step, depth);
}

static size_t table_bytes(const struct conv_backend *backend)
{
    return plan.real ? inner->table_bytes(backend->inner) : TABLE_BYTES;
}

static bool host_pin(struct conv_backend *backend, void *memory, size_t size)
{
    long number = atomic_fetch_add(&blocks, 1) + 1;
    if (atomic_load(&gone) || (plan.pins && number >= plan.pins))
        return false;
    return !plan.real || inner->host_pin(backend->inner, memory, size);
}

static bool host_unpin(struct conv_backend *backend, void *memory)
{
    return !atomic_load(&gone) && (!plan.real || inner->host_unpin(backend->inner, memory));
}

static enum conv_status lane_open(struct conv_backend *backend, struct conv_lane **out,
                                  size_t bytes, struct conv_err *err)
{
    if (plan.lanes && bytes > plan.lanes)
        return no_room(err);
    struct conv_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a faulty lane");
    enum conv_status status = inner->lane_open(backend->inner, &lane->inner, bytes, err);
    if (status)
        free(lane);
    else
        *out = lane;
    return status;
}

static void lane_close(struct conv_lane *lane)
{
    if (lane)
        inner->lane_close(lane->inner);
    free(lane);
}

// As CUDA does it: the table is written behind the planes, h_in stays, the result is in h_out, and
// each of the three steps has its time.
static enum conv_status run_like_cuda(struct conv_lane *lane, struct conv_group *group,
                                      struct conv_err *err)
{
    uint8_t *planes = malloc(group->front);
    if (!planes)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a faulty device's copy");
    group->ns_start = conv_clock_ns();
    memset(group->h_in + group->front, 0xA5, (size_t)group->plane_count * TABLE_BYTES);
    memcpy(planes, group->h_in, group->front);
    group->ns_copy_in = conv_clock_ns() - group->ns_start;
    enum conv_status status = inner->lane_run(lane->inner, group, err);
    uint64_t filtered = conv_clock_ns();
    group->ns_kernel = filtered - group->ns_start - group->ns_copy_in;
    if (!status && group->h_result != group->h_out)
        memcpy(group->h_out, group->h_result, group->front);
    group->h_result = group->h_out;
    memcpy(group->h_in, planes, group->front);
    group->ns_copy_out = conv_clock_ns() - filtered;
    free(planes);
    return status;
}

static enum conv_status lane_run(struct conv_lane *lane, struct conv_group *group,
                                 struct conv_err *err)
{
    long number = atomic_fetch_add(&groups, 1) + 1;
    if (plan.room && group->front > plan.room)
        return no_room(err);
    if (plan.lost && number >= plan.lost)
        atomic_store(&gone, true);
    if (atomic_load(&gone)) {
        memset(group->h_out, 0x5A, group->front); // half of a result
        return fail(err);
    }
#if CONV_HAVE_CUDA
    if (plan.trap == number)
        faulty_trap();
#endif
    return plan.real ? inner->lane_run(lane->inner, group, err) : run_like_cuda(lane, group, err);
}

static enum conv_status lane_again(struct conv_lane *lane, struct conv_group *group, uint64_t *ns,
                                   struct conv_err *err)
{
    return inner->lane_again(lane->inner, group, ns, err);
}

static enum conv_status lane_copy(struct conv_lane *lane, struct conv_group *group, uint64_t *ns,
                                  struct conv_err *err)
{
    return inner->lane_copy(lane->inner, group, ns, err);
}

const struct conv_backend_ops *__wrap_conv_backend_cuda(void)
{
    static const struct conv_backend_ops ops = {
        .name = "cuda",
        .async = true,
        .open = open_faulty,
        .close = close_faulty,
        .describe = describe,
        .variant = variant,
        .table_bytes = table_bytes,
        .host_pin = host_pin,
        .host_unpin = host_unpin,
        .lane_open = lane_open,
        .lane_close = lane_close,
        .lane_run = lane_run,
        .lane_again = lane_again,
        .lane_copy = lane_copy,
    };
    read_plan();
    return inner ? &ops : NULL;
}

enum conv_status __wrap_conv_backend_cuda_devices(struct conv_device_info *info, int room,
                                                  int *count, struct conv_err *err)
{
    (void)err;
    if (room > 0)
        info[0] = (struct conv_device_info){.name = "a faulty device", .capability = 75};
    *count = 1;
    return CONV_OK;
}
