// SPDX-License-Identifier: MIT
// A thread decodes rows into a ring. Whenever the rows of a band, and those that its filters read
// around it, are there, the worker copies them, so that the ring can take the next ones, filters
// them as an image of their own, and encodes the rows of the band. Only the results near a cut
// differ from those of the whole image: they belong to other bands.
#include <stdlib.h>
#include <sys/mman.h>

#include "base/buffer.h"
#include "base/lock.h"
#include "run/pool.h"
#include "run/scheduler.h"
#include "run/stages.h"
#include "run/worker.h"

// Samples of a band: enough for all threads to filter and encode at once, and many more than those
// of the rows around it.
#define BAND_BYTES ((size_t)24 << 20)
#define LEAST_REACHES 4 // rows of a band for each row that its filters reach
#define WAIT_NS 1000000000

// --- the plan ------------------------------------------------------------------------------------

// Rows that are filtered for a band, at most: one more above it is for the encoder, and further
// ones lead up to a multiple of the grid.
static int most_rows(const struct conv_bands_plan *plan, int height)
{
    int64_t rows = plan->rows + 2 * (int64_t)plan->reach + plan->grid;
    return rows < height ? (int)rows : height;
}

// The shape of that part of an image.
static struct conv_image part_of(const struct conv_image *shape, int rows)
{
    struct conv_image part = *shape;
    part.height = rows;
    return part;
}

static const char *find_refusal(const struct conv_pipeline_config *config,
                                const struct conv_job *job, int reach)
{
    const struct conv_sink *sink = config->sink;
    struct conv_existing existing = {0};
    if (config->output_type == CONV_OUTPUT_F32)
        return "an .npy file has plane after plane";
    if (job->header.orientation > 1)
        return "it has to be turned";
    if (reach < 0)
        return "with this border its last rows reach the first ones";
    if (!job->format->decodes_bands || !job->output_format->encodes_bands)
        return "this format is read or written as a whole";
    if (config->no_save)
        return NULL;
    conv_sink_look(sink, &job->output, &existing);
    return sink->ops->makes_files && !existing.is_special ? NULL : "its output is not a file";
}

// The memory for bands of plan->rows.
static size_t count_bytes(const struct conv_bands_plan *plan, const struct conv_scheduler *s,
                          const struct conv_job *job, const struct conv_image *file, size_t decoder,
                          size_t encoder)
{
    const struct conv_image *shape = &job->header.shape;
    int rows = most_rows(plan, shape->height);
    struct conv_image part = part_of(shape, rows), ring = part_of(file, rows);
    size_t bytes = 2 * conv_group_need(&part, s->filter_alpha, s->table_bytes) +
                   conv_image_bytes(&ring) + job->meta.bytes.capacity;
    bytes += s->config->ops->scratch_bytes(s->config->backends[0], shape->width, shape->depth);
    return __builtin_add_overflow(bytes, decoder, &bytes) ||
                   __builtin_add_overflow(bytes, encoder, &bytes)
               ? SIZE_MAX
               : bytes;
}

void conv_bands_plan(struct conv_bands_plan *plan, const struct conv_scheduler *s,
                     const struct conv_worker *worker, const struct conv_job *job, size_t most)
{
    const struct conv_pipeline_config *config = s->config;
    const struct conv_format *to = job->output_format;
    struct conv_bands decoding, encoding;
    struct conv_image_header header;
    *plan = (struct conv_bands_plan){0};
    plan->reach = config->ops->reach(config->backends[0], &plan->grid);
    plan->refusal = find_refusal(config, job, plan->reach);
    if (plan->refusal)
        return;
    const struct conv_image shape = conv_output_shape(config, job);
    const struct conv_codec *codec = conv_codecs_of(worker->codecs, to);
    conv_blend_file_header(job, &header);
    job->format->decodes_bands(&header, job->file->size, &decoding);
    to->encodes_bands(codec, &shape, &job->meta, 0, &encoding);
    plan->refusal = decoding.refusal ? decoding.refusal : encoding.refusal;
    if (plan->refusal)
        return;
    int unit = encoding.unit;
    size_t row = conv_image_stride(shape.width, job->header.shape.depth) * (size_t)shape.channels;
    size_t least = (size_t)LEAST_REACHES * (size_t)plan->reach, units = BAND_BYTES / row;
    units = ((units > least ? units : least) + (size_t)unit - 1) / (size_t)unit;
    for (units = units > 0 ? units : 1; units > 0; units /= 2) {
        if (units > 1 && units * (size_t)unit > (size_t)shape.height)
            continue;
        plan->rows = (int)units * unit;
        to->encodes_bands(codec, &shape, &job->meta, plan->rows, &encoding);
        plan->bytes = count_bytes(plan, s, job, &header.shape, decoding.bytes, encoding.bytes);
        if (plan->bytes <= most)
            return;
    }
    plan->refusal = "even a few rows of it take too much memory";
}

// --- the ring ------------------------------------------------------------------------------------

struct ring {
    const struct conv_format *format;
    struct conv_image_header header; // of the file
    const uint8_t *data;             // of the file
    size_t size;
    struct conv_codec_config config;
    struct conv_image rows; // row y is at y % rows.height
    atomic_int stop;        // of the decoder
    struct conv_lock lock;  // guards all below
    pthread_cond_t decoded, freed;
    int count; // rows that were decoded
    int first; // rows before it are not needed any more
    bool over;
    enum conv_status status;
    struct conv_err err;
};

static struct conv_image row_of(const struct ring *ring, int y)
{
    struct conv_image row = part_of(&ring->rows, 1);
    for (int c = 0; c < row.channels; c++)
        row.plane[c].data += y % ring->rows.height * row.plane[c].stride;
    return row;
}

// Waits for room. A row that comes again, from another decoder, is the same.
static void put(void *context, int y, const struct conv_image *from)
{
    struct ring *ring = context;
    conv_lock_acquire(&ring->lock);
    while (y >= ring->first + ring->rows.height && !atomic_load(&ring->stop))
        conv_lock_wait(&ring->lock, &ring->freed, WAIT_NS);
    bool is_new = y == ring->count && !atomic_load(&ring->stop);
    conv_lock_release(&ring->lock);
    if (!is_new)
        return;
    const struct conv_image to = row_of(ring, y);
    conv_image_copy(&to, from);
    conv_lock_acquire(&ring->lock);
    ring->count = y + 1;
    pthread_cond_signal(&ring->decoded);
    conv_lock_release(&ring->lock);
}

static void *decode(void *context)
{
    struct ring *ring = context;
    const struct conv_rows rows = {.put = put, .context = ring};
    struct conv_codec *codec;
    enum conv_status status = conv_codec_open(&codec, ring->format, &ring->config, &ring->err);
    if (!status)
        status = ring->format->decode(codec, ring->data, ring->size, &ring->header, NULL, &rows,
                                      &ring->err);
    conv_codec_close(codec);
    conv_lock_acquire(&ring->lock);
    ring->over = true;
    ring->status = status;
    pthread_cond_signal(&ring->decoded);
    conv_lock_release(&ring->lock);
    return NULL;
}

// Waits until rows before `end` are there, or with -1 for the end of the decoder.
static enum conv_status await(struct ring *ring, int end, const atomic_int *stop,
                              struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    conv_lock_acquire(&ring->lock);
    while (!ring->over && (end < 0 || ring->count < end) && !conv_cancel_is_asked(stop))
        conv_lock_wait(&ring->lock, &ring->decoded, WAIT_NS);
    if (conv_cancel_is_asked(stop))
        status = conv_err_cancelled(err);
    else if (ring->over && ring->status) {
        *err = ring->err;
        status = ring->status;
    }
    conv_lock_release(&ring->lock);
    return status;
}

// --- the bands -----------------------------------------------------------------------------------

struct run {
    const struct conv_bands_plan *plan;
    const struct conv_pipeline_config *config;
    struct conv_blend blend; // of the config, which may be gone: job.h
    struct conv_worker *worker;
    struct conv_job *job;
    struct conv_image shape; // job->header.shape, whose height becomes that of a part
    bool filter_alpha;
    size_t table_bytes;
    struct ring ring;
    struct conv_slot slot;
    struct conv_group_plane planes[CONV_IMAGE_MAX_CHANNELS];
    int from;     // the first row that is not encoded
    void *memory; // of the ring and the slot
};

// The rows that are filtered for those from `from` to `to`. The encoder reads one more above.
static int find_top(const struct run *run, int from)
{
    int top = from - 1 - run->plan->reach;
    return top > 0 ? top - top % run->plan->grid : 0;
}

static int find_bottom(const struct run *run, int to)
{
    int left = run->shape.height - to;
    return to + (left < run->plan->reach ? left : run->plan->reach);
}

// Copies the rows from `top` to `bottom` to the place of an image of their own.
static enum conv_status take_rows(struct run *run, int top, int bottom, int to,
                                  struct conv_err *err)
{
    struct conv_job *job = run->job;
    struct ring *ring = &run->ring;
    struct conv_image planes, rows;
    job->header.shape = part_of(&run->shape, bottom - top);
    conv_group_reset(&run->slot.group);
    if (!conv_group_place(&run->slot.group, &job->header.shape, run->filter_alpha, run->table_bytes,
                          &job->placed))
        return conv_err_memory(err, "no room for a band"); // a fault of the plan
    enum conv_status status = await(ring, bottom, run->config->stop, err);
    if (status)
        return status;
    conv_phase_begin(job->phase);
    conv_blend_target(job, &planes);
    rows = part_of(&planes, 1);
    rows.depth = job->file_depth;
    for (int y = top; y < bottom; y++) {
        const struct conv_image row = row_of(ring, y);
        conv_image_copy(&rows, &row);
        for (int c = 0; c < rows.channels; c++)
            rows.plane[c].data += rows.plane[c].stride;
    }
    if (job->file->is_mapped) // what is read of it no longer counts; what is needed comes again
        (void)madvise((void *)(uintptr_t)job->file->bytes, job->file->size, MADV_DONTNEED);
    conv_lock_acquire(&ring->lock);
    ring->first = to < run->shape.height ? find_top(run, to) : bottom;
    pthread_cond_signal(&ring->freed);
    conv_lock_release(&ring->lock);
    conv_blend_begin(&run->blend, job, &planes,
                     conv_codecs_curve(run->worker->codecs, &run->blend, job));
    conv_phase_end(job->phase);
    return CONV_OK;
}

static enum conv_status encode_rows(struct run *run, int top, int to, struct conv_encoded *file,
                                    struct conv_err *err)
{
    struct conv_job *job = run->job;
    struct conv_codec *codec = conv_codecs_of(run->worker->codecs, job->output_format);
    struct conv_image out;
    conv_group_result(&run->slot.group, &job->placed, &out);
    bool narrow = conv_output_depth(run->config, job) < out.depth;
    struct conv_blend blend = run->blend;
    blend.y -= top;
    conv_phase_begin(job->phase);
    conv_blend_end(&blend, job, &out, narrow, conv_codecs_curve(run->worker->codecs, &blend, job));
    out.height = run->shape.height;
    for (int c = 0; c < out.channels; c++)
        out.plane[c].data -= top * out.plane[c].stride;
    enum conv_status status =
        job->output_format->encode(codec, &out, &job->meta, run->from, to, file, err);
    conv_phase_end(job->phase);
    return status;
}

static enum conv_status next_band(struct run *run, struct conv_encoded *file, struct conv_err *err)
{
    struct conv_job *job = run->job;
    int height = run->shape.height;
    int to = height - run->from > run->plan->rows ? run->from + run->plan->rows : height;
    int top = find_top(run, run->from);
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    enum conv_status status = take_rows(run, top, find_bottom(run, to), to, err);
    if (!status && to == height) // damage after the last row counts, too
        status = await(&run->ring, -1, run->config->stop, err);
    if (!status && to == height)
        status = conv_stages_check_mapped(job, err);
    conv_stages_end(job, CONV_STAGE_DECODE, start);
    if (!status)
        status = conv_stages_filter(run->config, run->worker->stream, job);
    start = conv_trace_begin(CONV_STAGE_ENCODE);
    if (!status)
        status = encode_rows(run, top, to, file, err);
    conv_stages_end(job, CONV_STAGE_ENCODE, start);
    run->from = to;
    return status;
}

// conv_encoded.next.
static enum conv_status make_next(struct conv_encoded *file, struct conv_err *err)
{
    struct run *run = file->context;
    struct conv_job *job = run->job;
    struct conv_encoded made = {0};
    conv_stages_end(job, CONV_STAGE_WRITE, job->slice);
    enum conv_status status =
        run->from < run->shape.height ? next_band(run, &made, &job->err) : CONV_OK;
    if (status && err != &job->err)
        *err = job->err;
    made.next = file->next;
    made.context = file->context;
    *file = made;
    job->record.bytes_out = status ? 0 : job->record.bytes_out + file->size;
    job->slice = conv_trace_begin(CONV_STAGE_WRITE);
    return status;
}

// False: out of memory.
static bool place(struct run *run)
{
    int rows = most_rows(run->plan, run->shape.height);
    struct conv_image part = part_of(&run->shape, rows);
    struct conv_image ring = part_of(&run->ring.header.shape, rows);
    struct conv_group *group = &run->slot.group;
    size_t each = conv_group_need(&part, run->filter_alpha, run->table_bytes);
    size_t align = CONV_IMAGE_PAGE, in_ring = conv_image_align(conv_image_bytes(&ring), align);
    each = conv_image_align(each, align);
    uint8_t *memory = run->memory = aligned_alloc(align, in_ring + 2 * each);
    if (!memory)
        return false;
    conv_huge_use(memory, in_ring + 2 * each);
    conv_image_lay_out(&run->ring.rows, &ring, memory);
    *group = (struct conv_group){.h_in = memory + in_ring,
                                 .h_out = memory + in_ring + each,
                                 .capacity = each,
                                 .in_capacity = each,
                                 .planes = run->planes,
                                 .plane_capacity = CONV_IMAGE_MAX_CHANNELS,
                                 .parallel = &run->worker->parallel};
    return true;
}

// With the thread that decodes.
static enum conv_status write_all(struct run *run)
{
    struct conv_job *job = run->job;
    struct ring *ring = &run->ring;
    const struct conv_encoded file = {.next = make_next, .context = run};
    pthread_t thread;
    int errnum = conv_thread_start(&thread, decode, ring);
    if (errnum)
        return conv_err_errno(&job->err, errnum, "cannot start a thread to decode");
    job->slot = &run->slot;
    enum conv_status status = conv_stages_write(run->config, run->worker->index, job, &file);
    job->slot = NULL;
    conv_lock_acquire(&ring->lock);
    atomic_store(&ring->stop, 1); // as by a signal: nothing is read of it any more
    pthread_cond_signal(&ring->freed);
    conv_lock_release(&ring->lock);
    pthread_join(thread, NULL);
    job->header.shape = run->shape;
    return status;
}

enum conv_status conv_bands_run(const struct conv_bands_plan *plan, const struct conv_scheduler *s,
                                struct conv_worker *worker, struct conv_job *job)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return conv_err_memory(&job->err, "out of memory");
    struct ring *ring = &run->ring;
    run->plan = plan;
    run->config = s->config;
    run->blend = s->config->blend;
    run->worker = worker;
    run->job = job;
    run->shape = job->header.shape;
    run->filter_alpha = s->filter_alpha;
    run->table_bytes = s->table_bytes;
    ring->format = job->format;
    ring->data = job->file->bytes;
    ring->size = job->file->size;
    ring->config = s->config->codec;
    ring->config.parallel = NULL;
    ring->config.stop = &ring->stop;
    struct conv_bands decoding;
    conv_blend_file_header(job, &ring->header);
    ring->format->decodes_bands(&ring->header, ring->size, &decoding);
    conv_lock_init(&ring->lock);
    conv_lock_init_condition(&ring->decoded);
    conv_lock_init_condition(&ring->freed);
    enum conv_status status =
        place(run) ? write_all(run)
                   : conv_err_memory(&job->err, "no memory for %zu MiB of rows", plan->bytes >> 20);
    conv_codecs_trim(worker->codecs);
    free(run->memory);
    free(run);
    return status;
}
