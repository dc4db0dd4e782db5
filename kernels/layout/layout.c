// SPDX-License-Identifier: MIT
#include "kernels/layout/layout.h"

static bool is_view(const struct conv_layout_view *view)
{
    return view->channels >= 1 && view->channels <= CONV_LAYOUT_MAX_CHANNELS &&
           view->channels > view->alpha &&
           (view->sample_bytes == 1 || view->sample_bytes == 2 || view->sample_bytes == 4);
}

bool conv_layout_can(const struct conv_layout_copy *copy)
{
    const struct conv_layout_view *dst = &copy->dst, *src = &copy->src;
    if (copy->width < 1 || copy->height < 1 || !is_view(dst) || !is_view(src))
        return false;
    int dst_colors = dst->channels - dst->alpha, src_colors = src->channels - src->alpha;
    bool adds_alpha = dst->alpha && !src->alpha;
    return (dst_colors == src_colors || src_colors == 1) &&
           (src->sample_bytes < 4 || dst->sample_bytes == 4) &&
           !(adds_alpha && dst->sample_bytes == 4);
}
