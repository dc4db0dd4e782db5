// SPDX-License-Identifier: MIT
// The coefficients of filter banks, as weights of a layer.
#include <string.h>

#include "api/api_context.h"
#include "filter/bank.h"

static void copy_filter(float *weights, int height, int width,
                        const struct conv_bank_filter *filter)
{
    int top = (height - filter->height) / 2, left = (width - filter->width) / 2;
    for (int j = 0; j < filter->height; j++)
        for (int i = 0; i < filter->width; i++)
            weights[(top + j) * width + left + i] = (float)filter->coef[j * filter->width + i];
}

conv_status conv_bank_weights(const char *bank, int32_t *filters, int32_t *height, int32_t *width,
                              float *weights, size_t room, char *message)
{
    struct conv_bank parsed = {0};
    struct conv_err err = {0};
    enum conv_status status = CONV_OK;
    if (!bank || !filters || !height || !width)
        status = conv_err_set(&err, CONV_ERR_USAGE, "`%s` is NULL",
                              !bank      ? "bank"
                              : !filters ? "filters"
                              : !height  ? "height"
                                         : "width");
    if (!status)
        status = conv_bank_parse(&parsed, bank, &err);
    size_t rows = 0, columns = 0;
    for (int f = 0; f < parsed.filter_count; f++) {
        const struct conv_bank_filter *filter = &parsed.filters[f];
        rows = (size_t)filter->height > rows ? (size_t)filter->height : rows;
        columns = (size_t)filter->width > columns ? (size_t)filter->width : columns;
    }
    size_t count = (size_t)parsed.filter_count * rows * columns;
    if (!status && weights && room < count)
        status = conv_err_set(&err, CONV_ERR_USAGE, "`room` is %zu; the bank has %zu weights", room,
                              count);
    if (!status) {
        *filters = parsed.filter_count;
        *height = (int32_t)rows;
        *width = (int32_t)columns;
    }
    if (!status && weights) {
        memset(weights, 0, count * sizeof *weights);
        for (int f = 0; f < parsed.filter_count; f++)
            copy_filter(weights + (size_t)f * rows * columns, (int)rows, (int)columns,
                        &parsed.filters[f]);
    }
    conv_bank_free(&parsed);
    if (status && message)
        conv_api_explain(message, CONV_MESSAGE_SIZE, &err);
    return status;
}
