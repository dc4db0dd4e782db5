// SPDX-License-Identifier: MIT
// conv_faulty: the program with a backend of its own in place of CUDA's. Its devices run the CPU
// backend through the asynchronous interface, so that groups and streams are tested on any machine,
// and fail as the words of the variable CONV_FAULTY say:
//   devices=N      number of devices, at most 8; 1 by default
//   codes          the devices decode and encode PNG
//   real           the devices run the CUDA backend instead; the machine's devices in turn
//   lost=N         a device is lost at its Nth group, and every later call for it fails
//   trap=N         (real) a kernel traps before the Nth group: CUDA itself loses the device
//   room=BYTES     larger groups find no device memory
//   streams=BYTES  streams for larger groups cannot be opened
//   full=N         the Nth stream and all later ones find no device memory
//   hog=BYTES      (real) device memory is taken until at most this much is free
//   pins=N         the Nth block of staging memory and all later ones cannot be pinned
//   closed         the device has no memory left when it is opened
//   together=N     (codes) a stream runs up to N groups at once
//   apart          (together) groups that run together find no device memory
//   slow=MS        least time of a group
//   left           closing a device aborts the program: the end of the process must free it
//   open=MS        time to open a device; there is a driver then, and `auto` does not wait for it
//   gate           the same until the test opens the FIFO `gate` in the working directory
// Each word holds for every device, or after a number (1:lost=3) for that device only.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "coders.h"
#include "engine/engine.h"
#include "faulty.h"

// The program's calls of conv_staging_free come here: the linker's --wrap.
void __wrap_conv_staging_free(void *memory, size_t size);
void __real_conv_staging_free(void *memory, size_t size);

#define TABLE_BYTES 64 // per plane, after the planes, as CUDA's
#define MOST_DEVICES 8
#define MOST_PINS 4096

struct conv_backend {
    int device;
    struct conv_backend *inner;
};

struct conv_stream {
    int device;
    struct conv_stream *inner;
};

static struct device {
    bool closed, gate;
    long lost, trap, pins, slow, open, full;
    size_t room, streams, hog;
    atomic_long groups, blocks, opened; // so far; `opened`: streams
    atomic_bool gone;
} devices[MOST_DEVICES];

static bool real, codes, left, apart;
static int most_together = 1;
static int device_count, real_count = 1;
static const struct conv_device_ops *inner; // the backend that does the work

static struct {
    pthread_mutex_t lock;
    const void *pinned[MOST_PINS]; // NULL: free
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER};

// The number after `word`, for one device; -1 without such a word.
static long number_of(const char *text, int device, const char *word)
{
    char own[32];
    snprintf(own, sizeof own, "%d:%s", device, word);
    while (*text) {
        size_t size = strcspn(text, " ");
        for (int i = 0; i < 2; i++) {
            const char *name = i ? word : own;
            if (strncmp(text, name, strlen(name)) == 0)
                return strtol(text + strlen(name), NULL, 10);
        }
        text += size + (text[size] == ' ');
    }
    return -1;
}

static long number_or_0(const char *text, int device, const char *word)
{
    long number = number_of(text, device, word);
    return number > 0 ? number : 0;
}

static void read_words(void)
{
    const char *text = getenv("CONV_FAULTY");
    text = text ? text : "";
    real = number_of(text, 0, "real") >= 0;
    codes = number_of(text, 0, "codes") >= 0;
    left = number_of(text, 0, "left") >= 0;
    apart = number_of(text, 0, "apart") >= 0;
    most_together = number_of(text, 0, "together=") > 0 ? (int)number_of(text, 0, "together=") : 1;
    long count = number_or_0(text, 0, "devices=");
    device_count = count < 1 ? 1 : count < MOST_DEVICES ? (int)count : MOST_DEVICES;
    for (int d = 0; d < device_count; d++) {
        struct device *device = &devices[d];
        device->closed = number_of(text, d, "closed") >= 0;
        device->gate = number_of(text, d, "gate") >= 0;
        device->lost = number_or_0(text, d, "lost=");
        device->trap = number_or_0(text, d, "trap=");
        device->pins = number_or_0(text, d, "pins=");
        device->slow = number_or_0(text, d, "slow=");
        device->open = number_or_0(text, d, "open=");
        device->full = number_or_0(text, d, "full=");
        device->room = (size_t)number_or_0(text, d, "room=");
        device->streams = (size_t)number_or_0(text, d, "streams=");
        device->hog = (size_t)number_or_0(text, d, "hog=");
    }
    inner = real ? &conv_device_cuda : &conv_device_cpu;
    if (real && inner->devices(NULL, 0, &real_count, NULL))
        real_count = 1; // opening it reports the reason
}

static enum conv_status fail(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_DEVICE, "CUDA failed to do what a test forbids");
}

static enum conv_status no_room(struct conv_err *err)
{
    return conv_err_memory(err, "CUDA failed to allocate memory that a test forbids");
}

static void wait_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    if (ms > 0)
        nanosleep(&pause, NULL);
}

static void wait_for_gate(void)
{
    FILE *gate = fopen("gate", "r");
    if (gate)
        fclose(gate);
}

static enum conv_status open_faulty(struct conv_backend **out,
                                    const struct conv_backend_config *config, struct conv_err *err)
{
    if (config->device >= device_count)
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device %d: the devices are 0 to %d",
                            config->device, device_count - 1);
    wait_ms(devices[config->device].open);
    if (devices[config->device].gate)
        wait_for_gate();
    if (devices[config->device].closed)
        return no_room(err);
    struct conv_backend *backend = calloc(1, sizeof *backend);
    if (!backend)
        return conv_err_memory(err, "no memory for a faulty device");
    struct conv_backend_config behind = *config;
    behind.device = config->device % real_count;
    backend->device = config->device;
    enum conv_status status = inner->open(&backend->inner, &behind, err);
    if (status)
        free(backend);
    else
        *out = backend;
#if CONV_HAVE_CUDA
    if (!status && devices[config->device].hog)
        faulty_hog(behind.device, devices[config->device].hog);
#endif
    return status;
}

static void close_faulty(struct conv_backend *backend)
{
    if (left)
        abort();
    if (backend)
        inner->close(backend->inner);
    free(backend);
}

static const char *variant(const struct conv_backend *backend, int step, int depth)
{
    return inner->variant(backend->inner, step, depth);
}

static size_t table_bytes(int filter_count, bool with_coders)
{
    return real ? inner->table_bytes(filter_count, with_coders) : TABLE_BYTES;
}

// Puts `now` on record in the place of `known`; NULL: a free place. False if there is none.
static bool change_pin(const void *known, const void *now)
{
    int i = 0;
    pthread_mutex_lock(&pins.lock);
    while (i < MOST_PINS && pins.pinned[i] != known)
        i++;
    if (i < MOST_PINS)
        pins.pinned[i] = now;
    pthread_mutex_unlock(&pins.lock);
    return i < MOST_PINS;
}

// Aborts if the memory is pinned: a device that is lost would copy to and from other pages there.
void __wrap_conv_staging_free(void *memory, size_t size)
{
    if (memory && change_pin(memory, memory))
        abort();
    __real_conv_staging_free(memory, size);
}

static bool host_pin(struct conv_backend *backend, void *memory, size_t size)
{
    struct device *device = &devices[backend->device];
    long number = atomic_fetch_add(&device->blocks, 1) + 1;
    if (atomic_load(&device->gone) || (device->pins && number >= device->pins))
        return false;
    if (real && !inner->host_pin(backend->inner, memory, size))
        return false;
    return change_pin(NULL, memory);
}

static bool host_unpin(struct conv_backend *backend, void *memory)
{
    if (atomic_load(&devices[backend->device].gone) ||
        (real && !inner->host_unpin(backend->inner, memory)))
        return false;
    return change_pin(memory, NULL);
}

static enum conv_status stream_open(struct conv_backend *backend, struct conv_stream **out,
                                    size_t bytes, struct conv_err *err)
{
    struct device *device = &devices[backend->device];
    long number = atomic_fetch_add(&device->opened, 1) + 1;
    if ((device->full && number >= device->full) || (device->streams && bytes > device->streams))
        return no_room(err);
    struct conv_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_memory(err, "no memory for a faulty stream");
    stream->device = backend->device;
    enum conv_status status = inner->stream_open(backend->inner, &stream->inner, bytes, err);
    if (status)
        free(stream);
    else
        *out = stream;
    return status;
}

static void stream_close(struct conv_stream *stream)
{
    if (left)
        abort();
    if (stream)
        inner->stream_close(stream->inner);
    free(stream);
}

// Has the side effects of CUDA's stream_run: a table after the planes, h_in unchanged, the result
// in h_out, times of upload, kernels and download.
static enum conv_status run_like_cuda(struct conv_stream *stream, struct conv_group *group,
                                      struct conv_err *err)
{
    uint8_t *planes = malloc(group->front);
    if (!planes)
        return conv_err_memory(err, "no memory for a faulty device's copy");
    group->ns_start = conv_clock_ns();
    memset(group->h_in + group->front, 0xA5, (size_t)group->plane_count * TABLE_BYTES);
    memcpy(planes, group->h_in, group->front);
    group->ns_copy_in = conv_clock_ns() - group->ns_start;
    enum conv_status status = inner->stream_run(stream->inner, group, err);
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

static enum conv_status filter_planes(void *context, struct conv_group *planes,
                                      struct conv_err *err)
{
    struct conv_stream *stream = context;
    return inner->stream_run(stream->inner, planes, err);
}

static enum conv_status run_fake(struct conv_stream *stream, struct conv_group *group,
                                 struct conv_err *err)
{
    if (!group->decoded && !group->encoded)
        return run_like_cuda(stream, group, err);
    group->ns_start = conv_clock_ns();
    enum conv_status status = CONV_OK;
    for (struct conv_group *one = group; one && !status; one = one->next)
        status = faulty_run_coded(filter_planes, stream, one, err);
    group->ns_copy_in = group->ns_copy_out = 0;
    group->ns_kernel = conv_clock_ns() - group->ns_start;
    return status;
}

static enum conv_status stream_run(struct conv_stream *stream, struct conv_group *group,
                                   struct conv_err *err)
{
    struct device *device = &devices[stream->device];
    long number = atomic_fetch_add(&device->groups, 1) + 1;
    wait_ms(apart && group->next ? device->slow : 0);
    if (apart && group->next)
        return no_room(err);
    if (device->room && group->front > device->room)
        return no_room(err);
    if (device->lost && number >= device->lost)
        atomic_store(&device->gone, true);
    if (atomic_load(&device->gone)) {
        if (group->h_out)
            memset(group->h_out, 0x5A, group->front); // half of a result
        return fail(err);
    }
    wait_ms(device->slow);
#if CONV_HAVE_CUDA
    if (device->trap == number)
        faulty_trap(stream->device % real_count);
#endif
    return real ? inner->stream_run(stream->inner, group, err) : run_fake(stream, group, err);
}

static int together(const struct conv_backend *backend)
{
    (void)backend;
    return most_together;
}

static bool takes_stream(enum conv_device_coder coder, const struct conv_image_header *header,
                         size_t most_bytes)
{
    return real ? inner->takes_stream(coder, header, most_bytes)
                : faulty_takes_stream(coder, header, most_bytes);
}

static size_t encoded_bytes(const struct conv_image *shape,
                            const struct conv_device_encoding *encoding)
{
    return real ? inner->encoded_bytes(shape, encoding) : faulty_encoded_bytes(shape, encoding);
}

static enum conv_status list_devices(struct conv_device_info *info, int room, int *count,
                                     struct conv_err *err)
{
    (void)err;
    for (int d = 0; d < device_count && d < room; d++)
        info[d] =
            (struct conv_device_info){.name = "a faulty device", .capability = 75, .offers = 75};
    *count = device_count;
    return CONV_OK;
}

static bool has_driver(void)
{
    bool any = false;
    for (int d = 0; d < device_count; d++)
        any |= devices[d].open > 0 || devices[d].gate;
    return any;
}

int main(int argc, char **argv)
{
    read_words();
    const struct conv_device_ops faulty = {
        .name = "cuda",
        .title = "CUDA",
        .place = CONV_ON_CUDA,
        .built = true,
        .async = true,
        .freed_at_exit = left,
        .has_driver = has_driver,
        .devices = list_devices,
        .open = open_faulty,
        .close = close_faulty,
        .variant = variant,
        .table_bytes = table_bytes,
        .takes_stream = codes ? takes_stream : NULL,
        .encoded_bytes = codes ? encoded_bytes : NULL,
        .host_pin = host_pin,
        .host_unpin = host_unpin,
        .stream_open = stream_open,
        .stream_close = stream_close,
        .together = codes && most_together > 1 ? together : NULL,
        .stream_run = stream_run,
    };
    const struct conv_device_ops *const backends[CONV_ENGINE_DEVICES] = {
        [CONV_ON_CPU] = &conv_device_cpu,
        [CONV_ON_CUDA] = &faulty,
    };
    return conv_commands_main(backends, argc, argv);
}
