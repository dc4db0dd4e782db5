// SPDX-License-Identifier: MIT
// The only file that uses libjpeg and its long jumps. A function that calls setjmp only calls its
// inner half, so no local variable lives across a jump; its caller owns and frees all memory.
//
// The classic interface and not TurboJPEG's: that one needs the whole image interleaved in memory,
// cannot be cancelled, and does not say what it warns about.
#include "jpeg/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h> // needs stdio.h

#include <jerror.h>

#include "base/parallel.h"
#include "jpeg/cpu/cpu_jpeg.h"

// Bytes of the output buffer at first, and at least that much is added.
#define LEAST_ROOM ((size_t)1 << 16)

// Stray bytes before EOI that are accepted: cameras pad their data, and more of them are a sign of
// damage in the data before.
#define MOST_STRAY 64

#define CHANNELS 3

// The error, set before a long jump. The first member is what libjpeg has a pointer to.
struct fault {
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    struct conv_format_fault why;
};
_Static_assert(sizeof((struct conv_format_fault){0}.text) >= JMSG_LENGTH_MAX, "room for messages");

static struct fault *fault_of(j_common_ptr jpeg)
{
    return (struct fault *)jpeg->err;
}

static void on_error(j_common_ptr jpeg)
{
    struct fault *fault = fault_of(jpeg);
    fault->why.no_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    jpeg->err->format_message(jpeg, fault->why.text);
    longjmp(fault->jump, 1);
}

static void fail(j_common_ptr jpeg, const char *text)
{
    struct fault *fault = fault_of(jpeg);
    snprintf(fault->why.text, sizeof fault->why.text, "%s", text);
    longjmp(fault->jump, 1);
}

// libjpeg replaces damaged data by gray or a guess and warns; here that is an error.
static void on_message(j_common_ptr jpeg, int level)
{
    const struct jpeg_error_mgr *errors = jpeg->err;
    if (level >= 0)
        return;
    switch (errors->msg_code) {
    case JWRN_ADOBE_XFORM: // an unknown colour transform counts as YCbCr
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL: // wrong numbers in a sequential scan, which do not matter
        return;
    case JWRN_EXTRANEOUS_DATA:
        if (errors->msg_parm.i[0] <= MOST_STRAY && errors->msg_parm.i[1] == JPEG_EOI)
            return;
        break;
    default:
        break;
    }
    on_error(jpeg);
}

static void check_stop(j_common_ptr jpeg, const atomic_int *stop)
{
    if (conv_cancel_is_asked(stop)) {
        fault_of(jpeg)->why.cancelled = true;
        fail(jpeg, CONV_CANCEL_TEXT);
    }
}

static void init_errors(struct fault *fault)
{
    jpeg_std_error(&fault->errors);
    fault->errors.error_exit = on_error;
    fault->errors.emit_message = on_message;
}

// --- decoding ------------------------------------------------------------------------------------

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    const uint8_t *data;
    size_t size;
    const struct conv_image_header *header;
    const struct conv_image *dst;
    const struct conv_rows *rows; // instead of dst; may be NULL
    struct conv_buffer *scratch;
    struct conv_jpeg_planes planes;
    const atomic_int *stop;
};

// Rows of all components in a row of MCUs, as libjpeg wants them.
struct mcu_rows {
    uint8_t *row[CHANNELS][CONV_JPEG_PLANES_MOST_ROWS];
    JSAMPARRAY component[CHANNELS];
};

static void find_rows(struct mcu_rows *rows, const struct conv_jpeg_planes *planes, int mcu_row)
{
    for (int c = 0; c < planes->components; c++) {
        conv_jpeg_planes_rows(planes, c, mcu_row, rows->row[c]);
        rows->component[c] = rows->row[c];
    }
}

static void place_planes(j_common_ptr jpeg, struct conv_jpeg_planes *planes,
                         struct conv_buffer *scratch)
{
    if (!conv_buffer_reserve(scratch, conv_jpeg_planes_bytes(planes))) {
        fault_of(jpeg)->why.no_memory = true;
        fail(jpeg, "out of memory");
    }
    conv_jpeg_planes_place(planes, scratch->data);
}

static void start_source(j_decompress_ptr)
{
}

// All bytes were supplied at the start, so this is the end of the file.
static boolean fill_source(j_decompress_ptr jpeg)
{
    fault_of((j_common_ptr)jpeg)->why.truncated = true;
    fail((j_common_ptr)jpeg, "truncated");
    return FALSE;
}

static void skip_source(j_decompress_ptr jpeg, long count)
{
    struct jpeg_source_mgr *source = jpeg->src;
    if (count <= 0)
        return;
    if ((size_t)count > source->bytes_in_buffer)
        (void)fill_source(jpeg);
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
}

// Called for each row of blocks, while scans are collected too.
static void watch(j_common_ptr jpeg)
{
    const struct reader *reader = jpeg->client_data;
    check_stop(jpeg, reader->stop);
    if (reader->jpeg.input_scan_number > CONV_LIBJPEG_MOST_SCANS)
        fail(jpeg, "far too many scans");
}

// Components are Y, Cb, Cr or R, G, B by libjpeg's judgement of markers and component ids.
static void set_planes(struct reader *reader)
{
    j_decompress_ptr jpeg = &reader->jpeg;
    struct conv_jpeg_planes *planes = &reader->planes;
    *planes = (struct conv_jpeg_planes){.width = (int)jpeg->image_width,
                                        .height = (int)jpeg->image_height,
                                        .components = jpeg->num_components,
                                        .ycc = jpeg->jpeg_color_space == JCS_YCbCr,
                                        .luma = reader->header->jpeg.luma,
                                        .put = reader->rows};
    for (int c = 0; c < planes->components; c++) {
        planes->h[c] = (uint8_t)jpeg->comp_info[c].h_samp_factor;
        planes->v[c] = (uint8_t)jpeg->comp_info[c].v_samp_factor;
        jpeg->comp_info[c].component_needed = c == 0 || !planes->luma || !planes->ycc;
    }
    if (!conv_jpeg_planes_fit(planes))
        ERREXIT(jpeg, JERR_FRACT_SAMPLE_NOTIMPL);
    place_planes((j_common_ptr)jpeg, planes, reader->scratch);
}

static void open_reader(struct reader *reader)
{
    j_decompress_ptr jpeg = &reader->jpeg;
    const struct conv_image_header *header = reader->header;
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = 0; // no limit, whatever JPEGMEM in the environment says
    jpeg->client_data = reader;
    reader->source = (struct jpeg_source_mgr){
        .next_input_byte = reader->data,
        .bytes_in_buffer = reader->size,
        .init_source = start_source,
        .fill_input_buffer = fill_source,
        .skip_input_data = skip_source,
        .resync_to_restart = jpeg_resync_to_restart, // warns first
        .term_source = start_source,
    };
    jpeg->src = &reader->source;
    reader->progress.progress_monitor = watch;
    jpeg->progress = &reader->progress;
    (void)jpeg_read_header(jpeg, TRUE);
    if (jpeg->image_width != (JDIMENSION)header->shape.width ||
        jpeg->image_height != (JDIMENSION)header->shape.height ||
        jpeg->num_components != header->jpeg.components)
        fail((j_common_ptr)jpeg, "contradicts its header");
}

static void start_reading(struct reader *reader)
{
    j_decompress_ptr jpeg = &reader->jpeg;
    open_reader(reader);
    set_planes(reader);
    // Defaults otherwise: the accurate integer DCT, as in other programs.
    jpeg->raw_data_out = TRUE;
    (void)jpeg_start_decompress(jpeg);
}

// A file may end before all components had a scan: libjpeg fills them with gray in silence.
static void check_scans(struct reader *reader)
{
    j_decompress_ptr jpeg = &reader->jpeg;
    for (int c = 0; c < jpeg->num_components; c++)
        if (!jpeg->comp_info[c].quant_table || (jpeg->coef_bits && jpeg->coef_bits[c][0] < 0))
            fail((j_common_ptr)jpeg, "a channel has no image data");
}

static void read_rows(struct reader *reader)
{
    j_decompress_ptr jpeg = &reader->jpeg;
    JDIMENSION lines = (JDIMENSION)(DCTSIZE * reader->planes.most_v);
    for (int i = 0; jpeg->output_scanline < jpeg->output_height; i++) {
        struct mcu_rows rows;
        check_stop((j_common_ptr)jpeg, reader->stop);
        find_rows(&rows, &reader->planes, i);
        (void)jpeg_read_raw_data(jpeg, rows.component, lines);
        conv_jpeg_planes_put(&reader->planes, i, reader->dst);
    }
}

static bool read_guarded(struct reader *reader)
{
    if (setjmp(((struct fault *)reader->jpeg.err)->jump))
        return false;
    start_reading(reader);
    check_scans(reader);
    read_rows(reader);
    (void)jpeg_finish_decompress(&reader->jpeg); // reads on to EOI
    return true;
}

enum conv_status conv_libjpeg_decode(struct conv_buffer *scratch, const uint8_t *data, size_t size,
                                     const struct conv_image_header *header,
                                     const struct conv_image *dst, const struct conv_rows *rows,
                                     const atomic_int *stop, struct conv_err *err)
{
    struct fault fault = {0};
    struct reader reader = {.data = data,
                            .size = size,
                            .header = header,
                            .dst = dst,
                            .rows = rows,
                            .scratch = scratch,
                            .stop = stop};
    init_errors(&fault);
    reader.jpeg.err = &fault.errors;
    enum conv_status status =
        read_guarded(&reader) ? CONV_OK : conv_format_read_failure(&fault.why, size, err);
    jpeg_destroy_decompress(&reader.jpeg);
    return status;
}

// --- encoding ------------------------------------------------------------------------------------

struct writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_destination_mgr destination;
    const struct conv_image *src;
    const struct conv_row_source *source; // instead of the planes of src; may be NULL
    const struct conv_jpeg_encoding *encoding;
    struct jpeg_progress_mgr progress;
    size_t most; // bytes that the file's buffer is expected to take
    struct conv_buffer *scratch;
    struct conv_jpeg_planes planes;
    struct conv_buffer *file;
    const atomic_int *stop;
};

static void offer_room(j_compress_ptr jpeg)
{
    struct writer *writer = jpeg->client_data;
    struct conv_buffer *file = writer->file;
    writer->destination.next_output_byte = file->data + file->size;
    writer->destination.free_in_buffer = file->capacity - file->size;
}

// The buffer grows by half, at the end to what the largest file takes.
static boolean grow_file(j_compress_ptr jpeg)
{
    const struct writer *writer = jpeg->client_data;
    struct conv_buffer *file = writer->file;
    size_t more = file->capacity / 2 > LEAST_ROOM ? file->capacity / 2 : LEAST_ROOM;
    size_t capacity = file->capacity + more, most = writer->most;
    file->size = file->capacity; // libjpeg calls this when all of it is full
    if (capacity > most && file->capacity < most)
        capacity = most;
    if (!conv_buffer_reserve(file, capacity)) {
        fault_of((j_common_ptr)jpeg)->why.no_memory = true;
        fail((j_common_ptr)jpeg, "out of memory");
    }
    offer_room(jpeg);
    return TRUE;
}

static void end_file(j_compress_ptr jpeg)
{
    const struct writer *writer = jpeg->client_data;
    writer->file->size = writer->file->capacity - writer->destination.free_in_buffer;
}

// Called for each row of blocks in each pass.
static void watch_writing(j_common_ptr jpeg)
{
    const struct writer *writer = jpeg->client_data;
    check_stop(jpeg, writer->stop);
}

// Components of equal divisors share a table.
static void set_tables(j_compress_ptr jpeg, const struct conv_jpeg_encoding *encoding)
{
    bool same = memcmp(encoding->quant[1], encoding->quant[2], sizeof encoding->quant[1]) == 0;
    for (int c = 0; c < jpeg->num_components; c++) {
        unsigned divisors[DCTSIZE2];
        for (int k = 0; k < DCTSIZE2; k++)
            divisors[conv_jpeg_zigzag[k]] = encoding->quant[c][k];
        jpeg->comp_info[c].quant_tbl_no = c == 2 && same ? 1 : c;
        jpeg_add_quant_table(jpeg, jpeg->comp_info[c].quant_tbl_no, divisors, 100, FALSE);
    }
}

static void open_writer(struct writer *writer)
{
    j_compress_ptr jpeg = &writer->jpeg;
    jpeg_create_compress(jpeg);
    jpeg->mem->max_memory_to_use = 0; // as above
    jpeg->client_data = writer;
    writer->destination = (struct jpeg_destination_mgr){
        .init_destination = offer_room,
        .empty_output_buffer = grow_file,
        .term_destination = end_file,
    };
    jpeg->dest = &writer->destination;
    writer->progress.progress_monitor = watch_writing;
    jpeg->progress = &writer->progress;
}

// After the defaults have been set.
static void set_coding(j_compress_ptr jpeg, const struct conv_jpeg_encoding *encoding)
{
    if (encoding->progressive)
        jpeg_simple_progression(jpeg);
    jpeg->optimize_coding = encoding->optimize;
    jpeg->write_JFIF_header = FALSE;
}

static void start_writing(struct writer *writer)
{
    j_compress_ptr jpeg = &writer->jpeg;
    const struct conv_jpeg_encoding *encoding = writer->encoding;
    bool gray = writer->src->channels < 3;
    open_writer(writer);
    jpeg->image_width = (JDIMENSION)writer->src->width;
    jpeg->image_height = (JDIMENSION)writer->src->height;
    jpeg->input_components = gray ? 1 : CHANNELS;
    jpeg->in_color_space = gray ? JCS_GRAYSCALE : JCS_YCbCr;
    jpeg_set_defaults(jpeg);
    set_tables(jpeg, encoding);
    jpeg->comp_info[0].h_samp_factor = encoding->h;
    jpeg->comp_info[0].v_samp_factor = encoding->v;
    set_coding(jpeg, encoding);
    jpeg->raw_data_in = TRUE;
    struct conv_jpeg_planes *planes = &writer->planes;
    *planes = (struct conv_jpeg_planes){.width = writer->src->width,
                                        .height = writer->src->height,
                                        .components = jpeg->num_components,
                                        .get = writer->source};
    for (int c = 0; c < planes->components; c++) {
        planes->h[c] = (uint8_t)jpeg->comp_info[c].h_samp_factor;
        planes->v[c] = (uint8_t)jpeg->comp_info[c].v_samp_factor;
    }
    place_planes((j_common_ptr)jpeg, planes, writer->scratch);
    jpeg_start_compress(jpeg, TRUE);
}

static void write_rows(struct writer *writer, int to)
{
    j_compress_ptr jpeg = &writer->jpeg;
    JDIMENSION lines = (JDIMENSION)(DCTSIZE * writer->planes.most_v);
    while (jpeg->next_scanline < (JDIMENSION)to) {
        struct mcu_rows rows;
        int i = (int)(jpeg->next_scanline / lines);
        check_stop((j_common_ptr)jpeg, writer->stop);
        conv_jpeg_planes_get(&writer->planes, i, writer->src);
        find_rows(&rows, &writer->planes, i);
        (void)jpeg_write_raw_data(jpeg, rows.component, lines);
    }
    if ((JDIMENSION)to == jpeg->image_height)
        jpeg_finish_compress(jpeg);
    else
        end_file(jpeg); // so far
}

static bool write_guarded(struct writer *writer, int from, int to)
{
    if (setjmp(((struct fault *)writer->jpeg.err)->jump))
        return false;
    if (from == 0)
        start_writing(writer);
    else
        offer_room(&writer->jpeg);
    write_rows(writer, to);
    return true;
}

struct conv_libjpeg_session {
    struct fault fault;
    struct writer writer;
};

void conv_libjpeg_end(struct conv_libjpeg_session **session)
{
    if (*session)
        jpeg_destroy_compress(&(*session)->writer.jpeg);
    free(*session);
    *session = NULL;
}

static bool begin_session(struct conv_libjpeg_session **made, const struct writer *writer)
{
    conv_libjpeg_end(made);
    struct conv_libjpeg_session *session = *made = calloc(1, sizeof *session);
    if (!session)
        return false;
    session->writer = *writer;
    session->writer.most = conv_jpeg_most_bytes(writer->encoding, writer->src);
    init_errors(&session->fault);
    session->writer.jpeg.err = &session->fault.errors;
    return true;
}

enum conv_status conv_libjpeg_encode_some(struct conv_libjpeg_session **session,
                                          struct conv_buffer *scratch, struct conv_buffer *file,
                                          const struct conv_image *src,
                                          const struct conv_row_source *source,
                                          const struct conv_jpeg_encoding *encoding, int from,
                                          int to, const atomic_int *stop, struct conv_err *err)
{
    const struct writer writer = {.source = source,
                                  .src = src,
                                  .encoding = encoding,
                                  .scratch = scratch,
                                  .file = file,
                                  .stop = stop};
    file->size = 0;
    if (!conv_buffer_reserve(file, LEAST_ROOM) || (from == 0 && !begin_session(session, &writer)))
        return conv_err_memory(err, "out of memory");
    (*session)->writer.src = src;
    enum conv_status status = CONV_OK;
    if (!write_guarded(&(*session)->writer, from, to))
        status = conv_format_write_failure(&(*session)->fault.why, err);
    if (status || to == src->height)
        conv_libjpeg_end(session);
    return status;
}

// --- replacing luma ------------------------------------------------------------------------------

// The coefficients of a file and of its new luma, which has been encoded as a gray image.
struct transfer {
    struct reader source, luma;
    jvirt_barray_ptr *blocks; // of source
    struct writer writer;
};

static jvirt_barray_ptr *read_blocks(struct reader *reader)
{
    open_reader(reader);
    jvirt_barray_ptr *blocks = jpeg_read_coefficients(&reader->jpeg);
    check_scans(reader);
    return blocks;
}

static bool read_source_guarded(struct transfer *transfer)
{
    if (setjmp(((struct fault *)transfer->source.jpeg.err)->jump))
        return false;
    transfer->blocks = read_blocks(&transfer->source);
    return true;
}

static void replace_blocks(struct transfer *transfer)
{
    j_common_ptr source = (j_common_ptr)&transfer->source.jpeg;
    j_common_ptr luma = (j_common_ptr)&transfer->luma.jpeg;
    const jpeg_component_info *component = &transfer->source.jpeg.comp_info[0];
    jvirt_barray_ptr *blocks = read_blocks(&transfer->luma);
    const jpeg_component_info *gray = &transfer->luma.jpeg.comp_info[0];
    if (gray->width_in_blocks != component->width_in_blocks ||
        gray->height_in_blocks != component->height_in_blocks)
        fail(source, "contradicts its header");
    for (JDIMENSION y = 0; y < component->height_in_blocks; y++) {
        JBLOCKARRAY to = source->mem->access_virt_barray(source, transfer->blocks[0], y, 1, TRUE);
        JBLOCKARRAY from = luma->mem->access_virt_barray(luma, blocks[0], y, 1, FALSE);
        memcpy(to[0], from[0], component->width_in_blocks * sizeof(JBLOCK));
    }
}

static bool transfer_guarded(struct transfer *transfer)
{
    struct writer *writer = &transfer->writer;
    if (setjmp(((struct fault *)transfer->source.jpeg.err)->jump))
        return false;
    replace_blocks(transfer);
    open_writer(writer);
    jpeg_copy_critical_parameters(&transfer->source.jpeg, &writer->jpeg);
    set_coding(&writer->jpeg, writer->encoding);
    jpeg_write_coefficients(&writer->jpeg, transfer->blocks);
    jpeg_finish_compress(&writer->jpeg);
    return true;
}

// Of the file's luma.
static struct conv_jpeg_encoding luma_encoding(const struct reader *source)
{
    struct conv_jpeg_encoding encoding = {.h = 1, .v = 1};
    const JQUANT_TBL *table = source->jpeg.comp_info[0].quant_table;
    for (int k = 0; k < DCTSIZE2; k++)
        encoding.quant[0][k] = table->quantval[conv_jpeg_zigzag[k]];
    return encoding;
}

enum conv_status conv_libjpeg_replace_luma(struct conv_buffer *scratch, struct conv_buffer *luma,
                                           struct conv_buffer *file, const struct conv_image *src,
                                           const uint8_t *source, size_t size,
                                           const struct conv_jpeg_encoding *encoding,
                                           const atomic_int *stop, struct conv_err *err)
{
    struct fault fault = {0};
    struct conv_image gray = *src;
    gray.channels = 1;
    struct conv_image_header header = {.shape = gray, .jpeg = {.components = CHANNELS}};
    struct conv_image_header luma_header = {.shape = gray, .jpeg = {.components = 1}};
    struct transfer transfer = {
        .source = {.data = source, .size = size, .header = &header, .stop = stop},
        .luma = {.header = &luma_header, .stop = stop},
        .writer = {.src = src, .encoding = encoding, .file = file, .stop = stop},
    };
    init_errors(&fault);
    transfer.source.jpeg.err = transfer.luma.jpeg.err = transfer.writer.jpeg.err = &fault.errors;
    bool read = read_source_guarded(&transfer);
    enum conv_status status = read ? CONV_OK : conv_format_read_failure(&fault.why, size, err);
    if (read) {
        const struct conv_jpeg_encoding of_luma = luma_encoding(&transfer.source);
        struct conv_libjpeg_session *session = NULL;
        status = conv_libjpeg_encode_some(&session, scratch, luma, &gray, NULL, &of_luma, 0,
                                          gray.height, stop, err);
    }
    file->size = 0;
    if (!status && !conv_buffer_reserve(file, LEAST_ROOM))
        status = conv_err_memory(err, "out of memory");
    transfer.luma.data = luma->data;
    transfer.luma.size = luma->size;
    transfer.writer.most = conv_jpeg_most_bytes(encoding, src) + size;
    if (!status && !transfer_guarded(&transfer))
        status = conv_format_write_failure(&fault.why, err);
    jpeg_destroy_compress(&transfer.writer.jpeg);
    jpeg_destroy_decompress(&transfer.luma.jpeg);
    jpeg_destroy_decompress(&transfer.source.jpeg);
    return status;
}
