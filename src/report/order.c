// SPDX-License-Identifier: MIT
#include "report/order.h"

#include <stdlib.h>

static void swap(struct conv_order_line *a, struct conv_order_line *b)
{
    struct conv_order_line line = *a;
    *a = *b;
    *b = line;
}

static void sift_up(struct conv_order_line *lines, int at)
{
    for (int up; at > 0 && lines[at].number < lines[up = (at - 1) / 2].number; at = up)
        swap(&lines[at], &lines[up]);
}

static void sift_down(struct conv_order_line *lines, int count)
{
    for (int at = 0, least; (least = 2 * at + 1) < count; at = least) {
        if (least + 1 < count && lines[least + 1].number < lines[least].number)
            least++;
        if (lines[at].number <= lines[least].number)
            break;
        swap(&lines[at], &lines[least]);
    }
}

static void print_first(struct conv_order *order, FILE *stream)
{
    struct conv_order_line first = order->lines[0];
    order->lines[0] = order->lines[--order->count];
    sift_down(order->lines, order->count);
    if (first.text)
        fputs(first.text, stream);
    free(first.text);
    if (first.number > order->printed)
        order->printed = first.number;
}

void conv_order_add(struct conv_order *order, FILE *stream, uint64_t number, char *text)
{
    if (order->count == CONV_ORDER_MOST)
        print_first(order, stream);
    order->lines[order->count] = (struct conv_order_line){number, text};
    sift_up(order->lines, order->count++);
    while (order->count > 0 && order->lines[0].number <= order->printed + 1)
        print_first(order, stream);
}

void conv_order_flush(struct conv_order *order, FILE *stream)
{
    while (order->count > 0)
        print_first(order, stream);
}
