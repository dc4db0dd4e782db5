// SPDX-License-Identifier: MIT
#include "io/walk/limited_source.h"

static enum conv_source_step next_item(struct conv_source *source, struct conv_item *item,
                                       struct conv_err *err)
{
    struct conv_limited_source *limited = (struct conv_limited_source *)source;
    if (limited->left == 0 && !limited->inner->ops->end)
        return CONV_SOURCE_END;
    if (limited->left == 0)
        limited->inner->ops->end(limited->inner); // links to what came before are left
    enum conv_source_step step = conv_source_next(limited->inner, item, err);
    limited->left -= step == CONV_SOURCE_ITEM && !item->is_copy;
    return step;
}

static enum conv_status hold(struct conv_source *source, struct conv_item *item,
                             struct conv_err *err)
{
    return conv_source_hold(((struct conv_limited_source *)source)->inner, item, err);
}

static bool may_wait(const struct conv_source *source)
{
    const struct conv_limited_source *limited = (const struct conv_limited_source *)source;
    return limited->left > 0 && conv_source_may_wait(limited->inner);
}

static bool is_full(const struct conv_source *source)
{
    return conv_source_is_full(((const struct conv_limited_source *)source)->inner);
}

static bool limit(struct conv_source *source, size_t usual, size_t most)
{
    return conv_source_limit(((struct conv_limited_source *)source)->inner, usual, most);
}

void conv_limited_source_init(struct conv_limited_source *limited, struct conv_source *inner,
                              uint64_t images)
{
    static const struct conv_source_ops ops = {
        .next = next_item,
        .may_wait = may_wait,
        .is_full = is_full,
        .limit = limit,
        .hold = hold,
    };
    *limited = (struct conv_limited_source){{&ops}, inner, images};
}
