// SPDX-License-Identifier: MIT
// For files that implement struct conv_filter_rows with vectors: calls with a constant type, so
// that loops inlined there have no branch on it.
#ifndef CONV_PNG_CPU_FILTER_ROWS_DISPATCH_H
#define CONV_PNG_CPU_FILTER_ROWS_DISPATCH_H

#include "png/cpu/filter_rows.h"

#define CONV_ROW_DISPATCH(type, CALL)                                                              \
    do {                                                                                           \
        switch (type) {                                                                            \
        case CONV_ROW_SUB:                                                                         \
            CALL(CONV_ROW_SUB);                                                                    \
            break;                                                                                 \
        case CONV_ROW_UP:                                                                          \
            CALL(CONV_ROW_UP);                                                                     \
            break;                                                                                 \
        case CONV_ROW_AVERAGE:                                                                     \
            CALL(CONV_ROW_AVERAGE);                                                                \
            break;                                                                                 \
        case CONV_ROW_PAETH:                                                                       \
            CALL(CONV_ROW_PAETH);                                                                  \
            break;                                                                                 \
        default:                                                                                   \
            CALL(CONV_ROW_NONE);                                                                   \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

// In filter() and filter_join(): filter_as() and filter_join_as() of the same file.
#define CONV_ROW_FILTER_AS(type) filter_as(dst, type, row, above, n)
#define CONV_ROW_FILTER_JOIN_AS(type)                                                              \
    if (planes == 4)                                                                               \
        filter_join_as(dst, type, row, above, 4, n, left);                                         \
    else                                                                                           \
        filter_join_as(dst, type, row, above, 3, n, left)

#endif
