// SPDX-License-Identifier: MIT
// Counts the steps of the operands (walk_inputs.c), keeps those of the shard, and takes one ahead
// where that is asked for.
#include "io/walk/walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/walk/walk_internal.h"

// Bytes of members of streams that are in use, if the caller sets no limit.
#define USUAL_BYTES ((size_t)256 << 20)

// The name of an item in the plan: conv_item_target, without its extension where outputs get
// another one, so that one process sees all images that would get one name; for a member of an
// archive, the sample that it belongs to; for a link, the sample of its target.
static void name_in_plan(char name[PATH_MAX], const struct conv_operands *operands,
                         const struct conv_item *item)
{
    const struct conv_archive_body *body = item->body;
    char target[2 * PATH_MAX];
    bool links = item->is_link && body && conv_archive_body_target(target, body);
    const char *whole = links ? target : conv_item_target(item);
    bool renames = operands->npy || operands->format;
    size_t length = body      ? conv_shard_sample(whole)
                    : renames ? conv_item_extension_at(whole)
                              : strlen(whole);
    snprintf(name, PATH_MAX, "%.*s", (int)length, whole);
}

bool conv_walk_count_name(struct conv_walk *walk, const char *name, bool listed)
{
    struct conv_digest digest = conv_shard_digest(name);
    for (int i = 0; i < 2 && listed; i++)
        walk->names.word[i] += digest.word[i];
    return conv_shard_plan_has(walk->config.plan, name);
}

// Counts the step. False if it is an image of another shard.
static bool is_ours(struct conv_walk *walk, enum conv_source_step step,
                    const struct conv_item *item)
{
    char name[PATH_MAX];
    bool listed = step == CONV_SOURCE_ITEM, inside = walk->archive.unit != NULL;
    walk->is_over |= step == CONV_SOURCE_END;
    if (step == CONV_SOURCE_ITEM && item->holds > 0)
        return true; // was counted when it came first
    if (inside && walk->config.plan && walk->config.whole)
        return true; // the archive was counted as a whole
    walk->listed += listed;
    if (inside && step == CONV_SOURCE_BAD)
        listed = false; // of a member, whose name may be known
    else if (step != CONV_SOURCE_ITEM && step != CONV_SOURCE_REPEATED)
        return true;
    if (!walk->config.plan)
        return true;
    name_in_plan(name, &walk->config.operands, item);
    return !name[0] || conv_walk_count_name(walk, name, listed);
}

static enum conv_source_step set_target(const struct conv_walk *walk, struct conv_item *item,
                                        struct conv_err *err)
{
    const struct conv_operands *operands = &walk->config.operands;
    if (item->is_copy || (!operands->suffix && !operands->beside))
        return CONV_SOURCE_ITEM;
    if (operands->beside && operands->suffix && conv_item_has_suffix(item, operands->suffix))
        return CONV_SOURCE_RESULT;
    return conv_item_set_target(item, operands->suffix, operands->beside, err) ? CONV_SOURCE_BAD
                                                                               : CONV_SOURCE_ITEM;
}

// Everything but the name, which is long.
static void clear(struct conv_item *item)
{
    item->ops = NULL;
    memset(&item->target, 0, sizeof *item - offsetof(struct conv_item, target));
}

static enum conv_source_step next_item(struct conv_walk *walk, struct conv_item *item,
                                       struct conv_err *err)
{
    struct peeked *peeked = walk->peeked;
    if (peeked) {
        enum conv_source_step first = peeked->step;
        memcpy(item, &peeked->item, sizeof *item);
        if (first == CONV_SOURCE_BAD)
            *err = peeked->err;
        free(peeked);
        walk->peeked = NULL;
        return first;
    }
    clear(item);
    if (walk->found_all && !walk->has_ended)
        return conv_watch_next(walk->watch, item, err);
    enum conv_source_step step = conv_walk_next_input(walk, item, err);
    if (walk->watch && step == CONV_SOURCE_END) {
        walk->found_all = true;
        step = conv_watch_next(walk->watch, item, err);
    }
    return step;
}

// Takes a step ahead, so that may_wait is exact while images found by the walk are left.
static void look_ahead(struct conv_walk *walk)
{
    struct peeked *peeked = calloc(1, sizeof *peeked);
    if (!peeked)
        return;
    peeked->step = conv_walk_next_input(walk, &peeked->item, &peeked->err);
    walk->found_all = peeked->step == CONV_SOURCE_END;
    if (walk->found_all)
        free(peeked);
    else
        walk->peeked = peeked;
}

static enum conv_source_step next_counted(void *from, struct conv_item *item, struct conv_err *err)
{
    struct conv_walk *walk = from;
    enum conv_source_step step = next_item(walk, item, err);
    while (!is_ours(walk, step, item)) {
        conv_item_release(item);
        step = next_item(walk, item, err);
    }
    bool is_copy = step == CONV_SOURCE_ITEM && item->is_copy;
    walk->items += step != CONV_SOURCE_END && item->holds == 0 && !is_copy;
    if (walk->watch && !walk->found_all && step != CONV_SOURCE_END)
        look_ahead(walk);
    return step == CONV_SOURCE_ITEM ? set_target(walk, item, err) : step;
}

enum conv_source_step conv_source_next(struct conv_source *source, struct conv_item *item,
                                       struct conv_err *err)
{
    struct conv_walk *walk = (struct conv_walk *)source;
    enum conv_source_step step;
    if (walk->left == 0) { // links to what came before are left
        walk->has_ended = true;
        conv_archive_source_leave(&walk->archive);
    }
    if (walk->all) {
        clear(item);
        step = walk->left > 0 ? conv_sorted_next(walk->all, item, err) : CONV_SOURCE_END;
    } else {
        step = next_counted(walk, item, err);
    }
    walk->left -= step == CONV_SOURCE_ITEM && !item->is_copy;
    return step;
}

bool conv_source_may_wait(const struct conv_source *source)
{
    const struct conv_walk *walk = (const struct conv_walk *)source;
    if (walk->peeked || walk->all || walk->left == 0)
        return false;
    if (walk->watch)
        return walk->found_all && conv_watch_may_wait(walk->watch);
    return conv_archive_source_may_wait(&walk->archive) ||
           (walk->config.operands.files_from && conv_list_source_may_wait(&walk->list));
}

bool conv_source_is_full(const struct conv_source *source)
{
    const struct conv_archive_source *archive = &((const struct conv_walk *)source)->archive;
    return atomic_load(&archive->held) > archive->usual;
}

bool conv_source_limit(struct conv_source *source, size_t usual, size_t most)
{
    struct conv_walk *walk = (struct conv_walk *)source;
    walk->archive.spare = usual / 5;
    walk->archive.usual = usual - walk->archive.spare;
    walk->archive.most = most;
    return walk->archives.count > 0;
}

enum conv_status conv_source_hold(struct conv_source *source, struct conv_item *item,
                                  struct conv_err *err)
{
    return conv_archive_source_hold(&((struct conv_walk *)source)->archive, item, err);
}

enum conv_status conv_walk_sort(struct conv_walk *walk, const struct conv_walk_order *order,
                                struct conv_err *err)
{
    return conv_sorted_open(&walk->all, next_counted, walk, order, err);
}

uint64_t conv_walk_known(const struct conv_walk *walk, uint64_t images)
{
    return conv_sorted_count(walk->all, images);
}

enum conv_status conv_walk_peek(struct conv_walk *walk, bool *is_image, struct conv_err *err)
{
    if (walk->all) {
        *is_image = conv_sorted_count(walk->all, 1) == 1;
        return CONV_OK;
    }
    struct peeked *peeked = calloc(1, sizeof *peeked);
    if (!peeked)
        return conv_err_memory(err, "no memory for the walk");
    peeked->step = next_item(walk, &peeked->item, &peeked->err);
    walk->peeked = peeked;
    *is_image = peeked->step == CONV_SOURCE_ITEM;
    return CONV_OK;
}

static enum conv_status begin_watch(struct conv_walk *walk, struct conv_err *err)
{
    const struct conv_operands *operands = &walk->config.operands;
    enum conv_status status =
        conv_watch_open(&walk->watch, &walk->folder.rules, walk->config.stop, err);
    for (int i = 0; i < operands->input_count && !status; i++) {
        const char *input = operands->inputs[i];
        struct conv_err cause;
        status = conv_watch_add(walk->watch, input, conv_walk_folder_target(walk, input), &cause);
        if (status)
            conv_err_set(err, status, "%s: %s", input, cause.text);
    }
    return status;
}

// Opens the archives among the operands, and determines the kind of output.
static enum conv_status open_archives(struct conv_walk *walk, struct conv_err *err)
{
    const struct conv_walk_config *config = &walk->config;
    const struct conv_operands *operands = &config->operands;
    struct conv_operands checked = *operands;
    enum conv_status status = CONV_OK;
    walk->archives.standard.fd = -1;
    if (config->archives.enabled) {
        checked.archives = &walk->archives;
        status = conv_archive_operands_open(&walk->archives, &config->archives, operands,
                                            config->stop, err);
    }
    if (!status)
        status = conv_operands_check(&checked, &walk->shape, err);
    for (int i = 0; i < operands->input_count && !status && walk->shape.several; i++)
        if (walk->archives.count > 0)
            status = conv_walk_add_folder(walk, operands->inputs[i],
                                          walk->archives.inputs[i] != NULL, err);
    if (operands->output && walk->shape.sink != CONV_SINK_ARCHIVE)
        walk->archive.links.folder = operands->output;
    return status;
}

enum conv_status conv_walk_open(struct conv_walk **out, const struct conv_walk_config *config,
                                struct conv_err *err)
{
    const struct conv_operands *operands = &config->operands;
    struct conv_walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return conv_err_memory(err, "no memory for the walk");
    walk->config = *config;
    walk->left = config->limit ? config->limit : UINT64_MAX;
    walk->folder.rules = config->rules;
    walk->folder.rules.recursive = operands->recursive;
    walk->folder.rules.in_place = operands->in_place;
    walk->folder.rules.omitted = walk->shape.below;
    walk->archive.rules = &walk->folder.rules;
    walk->archive.images_only = config->archives.images_only;
    walk->archive.max_pixels = config->archives.max_pixels;
    walk->archive.passed = &walk->folder;
    walk->archive.usual = walk->archive.most = USUAL_BYTES;
    walk->list.fd = -1;
    enum conv_status status = open_archives(walk, err);
    if (!status && operands->files_from) {
        walk->list.path = operands->files_from;
        walk->list.folder = operands->input_count ? operands->inputs[0] : NULL;
        walk->list.in_place = operands->in_place;
        walk->list.beside = operands->beside;
        walk->list.base = operands->base ? walk->base : NULL;
        if (operands->base && !conv_paths_resolve(operands->base, walk->base))
            status = conv_err_errno(err, errno, "%s", operands->base);
        walk->list.nul = config->nul;
        walk->list.stop = config->stop;
        if (!status)
            status = conv_list_source_open(&walk->list, err);
    }
    if (!status && config->watch)
        status = begin_watch(walk, err);
    if (status) {
        conv_walk_close(walk);
        return status;
    }
    *out = walk;
    return CONV_OK;
}

void conv_walk_close(struct conv_walk *walk)
{
    if (!walk)
        return;
    conv_sorted_close(walk->sorted);
    conv_sorted_close(walk->all);
    conv_folder_source_close(&walk->folder);
    conv_archive_source_close(&walk->archive);
    conv_archive_operands_close(&walk->archives);
    conv_digest_set_free(&walk->used);
    conv_digest_set_free(&walk->shared);
    conv_list_source_close(&walk->list);
    if (walk->peeked)
        conv_item_release(&walk->peeked->item);
    free(walk->peeked);
    conv_watch_close(walk->watch);
    free(walk);
}

struct conv_source *conv_walk_source(struct conv_walk *walk)
{
    return (struct conv_source *)walk;
}

const struct conv_operands_shape *conv_walk_shape(const struct conv_walk *walk)
{
    return &walk->shape;
}

struct conv_archive_target *conv_walk_targets(struct conv_walk *walk, int *count)
{
    *count = walk->archives.target_count;
    return walk->archives.targets;
}

void conv_walk_describe_outputs(struct conv_walk *walk, struct conv_sink_config *config)
{
    const struct conv_operands *operands = &walk->config.operands;
    config->kind = walk->shape.sink;
    config->targets = conv_walk_targets(walk, &config->target_count);
    config->may_coincide = walk->shape.may_coincide;
    config->returns = walk->watch != NULL;
    config->format = operands->format;
    config->npy = operands->npy;
}

enum conv_status conv_walk_skip(struct conv_walk *walk, enum conv_archive_done which,
                                struct conv_journal *journal, struct conv_err *err)
{
    enum conv_status status =
        conv_archive_done_find(&walk->archives, &walk->config.operands, which, journal, err);
    if (status || !walk->all || !walk->archives.targets[0].done)
        return status;
    // What has been sorted was for the only archive: the inputs are walked again.
    conv_sorted_close(walk->all);
    walk->all = NULL;
    walk->next_input = 0;
    walk->items = 0;
    return CONV_OK;
}

bool conv_walk_reads_archives(const struct conv_walk *walk)
{
    return walk->archives.count > 0;
}

bool conv_walk_allows_another(const struct conv_walk *walk, bool *images)
{
    *images = !walk->archives.has_stream;
    return *images && !walk->archives.standard.buffer;
}

bool conv_walk_is_repeatable(const struct conv_walk_config *config)
{
    struct stat info;
    const char *list = config->operands.files_from;
    return !list ||
           (!conv_paths_is_standard(list) && stat(list, &info) == 0 && S_ISREG(info.st_mode));
}

struct conv_walk_count conv_walk_count(const struct conv_walk *walk)
{
    return (struct conv_walk_count){
        .items = walk->items,
        .are_archives = walk->config.plan && walk->config.whole && walk->archives.count > 0,
        .listed = walk->listed,
        .names = walk->names,
        .is_complete = walk->is_over,
        .passed = &walk->folder.passed,
    };
}

// --- plans ---------------------------------------------------------------------------------------

bool conv_walk_plan_has_pipe(const struct conv_walk_config *config)
{
    struct stat info;
    for (int i = 0; i < config->operands.input_count; i++)
        if (conv_paths_is_standard(config->operands.inputs[i]))
            return fstat(STDIN_FILENO, &info) != 0 || !S_ISREG(info.st_mode);
    return false;
}

enum conv_status conv_walk_plan_fill(struct conv_shard_plan *plan,
                                     const struct conv_walk_config *config, const atomic_int *stop,
                                     struct conv_err *err)
{
    struct conv_walk *walk;
    struct conv_err ignored;
    struct conv_item item;
    char name[PATH_MAX];
    enum conv_source_step step = CONV_SOURCE_ITEM;
    struct conv_walk_config naming = *config;
    naming.operands.suffix = NULL; // shards go by the names of the images
    // An archive that is divided as a whole is listed as a file, and an input that can be read only
    // once is left for the run.
    naming.archives.enabled &= !config->whole && !conv_walk_plan_has_pipe(config);
    if (config->archives.enabled && !naming.archives.enabled)
        naming.operands.output = NULL; // an archive is not an output of a file
    enum conv_status status = conv_walk_open(&walk, &naming, err);
    if (status)
        return status;
    while (!status && step != CONV_SOURCE_END && !(stop && atomic_load(stop))) {
        step = conv_source_next(conv_walk_source(walk), &item, &ignored);
        if (step != CONV_SOURCE_ITEM)
            continue;
        name_in_plan(name, &config->operands, &item);
        status = conv_shard_plan_add(plan, name, conv_item_bytes(&item), err);
        conv_item_release(&item);
    }
    conv_walk_close(walk);
    return status ? status : conv_shard_plan_balance(plan, err);
}
