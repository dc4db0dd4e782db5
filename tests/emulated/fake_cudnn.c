// SPDX-License-Identifier: MIT
// A library in the place of cuDNN: it has the functions that kernels/layer/cuda/cuda_cudnn.c looks
// up, keeps the attributes of descriptors, and computes convolutions one output after the other in
// float64. FAKE_CUDNN says what it refuses: "uneven" (pads that differ), "halves",
// "run". Of its three engines the second is Winograd's, and returns zeros;
// the third rounds float32 to TF32.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tensor/element.h"

enum { GOOD, NOT_SUPPORTED = 3000, BAD = 2000 };
enum {
    ENGINE = 2,
    CONFIG,
    HEURISTIC,
    PLAN,
    FORWARD = 10,
    POINTWISE = 13,
    GRAPH = 15,
    PACK,
    TENSOR
};
#define MOST_ATTRIBUTES 16

struct attribute {
    int name, type;
    int64_t count;
    unsigned char values[64];
};

struct descriptor {
    int kind, count, engine;
    struct descriptor *graph; // of a heuristic's configuration; of a plan a copy of its own
    struct attribute attributes[MOST_ATTRIBUTES];
};

struct handle {
    cudaStream_t stream;
};

static bool refuses(const char *what)
{
    const char *text = getenv("FAKE_CUDNN");
    return text && strstr(text, what);
}

static const void *find(const struct descriptor *of, int name)
{
    for (int i = 0; of && i < of->count; i++)
        if (of->attributes[i].name == name)
            return of->attributes[i].values;
    return NULL;
}

static const struct descriptor *part(const struct descriptor *of, int name, int index)
{
    const void *values = find(of, name);
    const struct descriptor *found = NULL;
    if (values)
        memcpy(&found, (const char *)values + sizeof found * (size_t)index, sizeof found);
    return found;
}

static int64_t number(const struct descriptor *of, int name, int index)
{
    int64_t value = 0;
    memcpy(&value, (const char *)find(of, name) + 8 * index, sizeof value);
    return value;
}

static int word(const struct descriptor *of, int name)
{
    int value = 0;
    memcpy(&value, find(of, name), sizeof value);
    return value;
}

#define IS_DESCRIPTOR 15 // type of an attribute

static struct descriptor *copy(const struct descriptor *from)
{
    struct descriptor *to = malloc(sizeof *to);
    *to = *from;
    for (int i = 0; i < to->count; i++)
        for (int64_t j = 0; to->attributes[i].type == IS_DESCRIPTOR && j < to->attributes[i].count;
             j++) {
            const struct descriptor *child = part(from, to->attributes[i].name, (int)j);
            struct descriptor *own = copy(child);
            memcpy(to->attributes[i].values + sizeof own * (size_t)j, &own, sizeof own);
        }
    return to;
}

static void free_copy(struct descriptor *made)
{
    for (int i = 0; i < made->count; i++)
        for (int64_t j = 0;
             made->attributes[i].type == IS_DESCRIPTOR && j < made->attributes[i].count; j++) {
            struct descriptor *child;
            memcpy(&child, made->attributes[i].values + sizeof child * (size_t)j, sizeof child);
            free_copy(child);
        }
    free(made);
}

const char *cudnnGetErrorString(int code);
int cudnnCreate(void **handle);
int cudnnSetStream(void *handle, void *stream);
int cudnnBackendCreateDescriptor(int kind, void **made);
int cudnnBackendDestroyDescriptor(void *made);
int cudnnBackendFinalize(void *made);
int cudnnBackendSetAttribute(void *of, int name, int type, int64_t count, const void *values);
int cudnnBackendGetAttribute(void *of, int name, int type, int64_t room, int64_t *count,
                             void *values);
int cudnnBackendExecute(void *handle, void *plan, void *pack);

const char *cudnnGetErrorString(int code)
{
    return code == NOT_SUPPORTED ? "not supported by the fake" : "bad call of the fake";
}

int cudnnCreate(void **handle)
{
    static struct handle only;
    *handle = &only;
    return GOOD;
}

int cudnnSetStream(void *handle, void *stream)
{
    ((struct handle *)handle)->stream = stream;
    return GOOD;
}

int cudnnBackendCreateDescriptor(int kind, void **made)
{
    struct descriptor *descriptor = calloc(1, sizeof *descriptor);
    descriptor->kind = kind;
    *made = descriptor;
    return GOOD;
}

int cudnnBackendDestroyDescriptor(void *made)
{
    struct descriptor *descriptor = made;
    if (descriptor->kind == PLAN && descriptor->graph)
        free_copy(descriptor->graph);
    free(made);
    return GOOD;
}

int cudnnBackendSetAttribute(void *of, int name, int type, int64_t count, const void *values)
{
    struct descriptor *descriptor = of;
    static const size_t sizes[] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8};
    if (descriptor->count == MOST_ATTRIBUTES || count > 8 || type < 0 || type > 15)
        return BAD;
    struct attribute *attribute = &descriptor->attributes[descriptor->count++];
    attribute->name = name;
    attribute->type = type;
    attribute->count = count;
    memcpy(attribute->values, values, sizes[type] * (size_t)count);
    return GOOD;
}

int cudnnBackendFinalize(void *made)
{
    struct descriptor *graph = made;
    if (graph->kind == PLAN) {
        const struct descriptor *config = part(graph, 401, 0);
        graph->engine = config->engine;
        graph->graph = copy(config->graph);
    }
    if (graph->kind != GRAPH)
        return GOOD;
    const struct descriptor *forward = part(graph, 801, 0), *how = part(forward, 702, 0);
    if (word(part(forward, 704, 0), 901) != 0 && refuses("halves"))
        return NOT_SUPPORTED;
    for (int axis = 0; axis < 2; axis++)
        if (number(how, 104, axis) != number(how, 105, axis) && refuses("uneven"))
            return NOT_SUPPORTED;
    return GOOD;
}

int cudnnBackendGetAttribute(void *of, int name, int type, int64_t room, int64_t *count,
                             void *values)
{
    struct descriptor *descriptor = of;
    (void)type;
    if (name == 202) { // the configurations of a heuristic
        for (int i = 0; i < 3 && i < room; i++) {
            struct descriptor *config = ((struct descriptor **)values)[i];
            const struct descriptor *graph = part(descriptor, 201, 0);
            config->engine = i + 1;
            memcpy(&config->graph, &graph, sizeof graph);
        }
        *count = word(descriptor, 200) == 3 ? 3 : 0; // other heuristics propose nothing
    } else if (name == 300) {
        (*(struct descriptor **)values)->engine = descriptor->engine;
        *count = 1;
    } else if (name == 1303) {
        *(int *)values = descriptor->engine == 2 ? 5 : 0;
        *count = descriptor->engine > 1;
    } else if (name == 402) {
        *(int64_t *)values = 1000;
        *count = 1;
    } else {
        return BAD;
    }
    return GOOD;
}

// --- arithmetic ----------------------------------------------------------------------------------

static double load(const void *memory, int type, int64_t at)
{
    const uint16_t *halves = memory;
    return type == 0   ? ((const float *)memory)[at]
           : type == 2 ? conv_half_to_float(halves[at])
                       : conv_bfloat_to_float(halves[at]);
}

static void store(void *memory, int type, int64_t at, float value)
{
    uint16_t *halves = memory;
    if (type == 0)
        ((float *)memory)[at] = value;
    else
        halves[at] = type == 2 ? conv_half_from_float(value) : conv_bfloat_from_float(value);
}

static int64_t place(const struct descriptor *tensor, int64_t n, int64_t c, int64_t y, int64_t x)
{
    return n * number(tensor, 903, 0) + c * number(tensor, 903, 1) + y * number(tensor, 903, 2) +
           x * number(tensor, 903, 3);
}

struct operands {
    const struct descriptor *x, *w, *y, *how;
    const void *src, *weights;
    bool tf32;
};

static double round_to(double value, bool tf32)
{
    float whole = (float)value;
    uint32_t bits;
    memcpy(&bits, &whole, sizeof bits);
    bits &= tf32 ? 0xffffe000u : 0xffffffffu;
    memcpy(&whole, &bits, sizeof whole);
    return whole;
}

static double sum_of(const struct operands *all, int64_t n, int64_t m, int64_t i, int64_t j)
{
    const struct descriptor *x = all->x, *w = all->w, *how = all->how;
    int64_t channels = number(w, 902, 1), groups = number(x, 902, 1) / channels;
    int64_t first = m / (number(w, 902, 0) / groups) * channels;
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t u = 0; u < number(w, 902, 2); u++)
            for (int64_t v = 0; v < number(w, 902, 3); v++) {
                int64_t row =
                    i * number(how, 103, 0) + u * number(how, 102, 0) - number(how, 105, 0);
                int64_t column =
                    j * number(how, 103, 1) + v * number(how, 102, 1) - number(how, 105, 1);
                if (row >= 0 && column >= 0 && row < number(x, 902, 2) &&
                    column < number(x, 902, 3))
                    sum +=
                        round_to(load(all->weights, word(w, 901), place(w, m, c, u, v)),
                                 all->tf32) *
                        round_to(load(all->src, word(x, 901), place(x, n, first + c, row, column)),
                                 all->tf32);
            }
    return sum;
}

// The pointer of a tensor, by its number.
static void *pointer(const struct descriptor *pack, const struct descriptor *tensor)
{
    void *found = NULL;
    for (int i = 0; i < pack->attributes[0].count && tensor; i++)
        if (number(pack, 1000, i) == number(tensor, 906, 0))
            memcpy(&found, (const char *)find(pack, 1001) + sizeof found * (size_t)i, sizeof found);
    return found;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    const struct descriptor *made = plan, *graph = made->graph, *forward = part(graph, 801, 0);
    const struct descriptor *y = part(forward, 705, 0);
    struct operands all = {
        part(forward, 704, 0), part(forward, 703, 0), y, part(forward, 702, 0), NULL, NULL,
        made->engine == 3};
    all.src = pointer(pack, all.x);
    all.weights = pointer(pack, all.w);
    void *dst = pointer(pack, y);
    if (refuses("run"))
        return NOT_SUPPORTED;
    if (!all.src || !all.weights || !dst || !number(pack, 1003, 0) ||
        cudaStreamSynchronize(((struct handle *)handle)->stream) != cudaSuccess)
        return BAD;
    memset((void *)(uintptr_t)number(pack, 1003, 0), 0xff, 1000);
    for (int64_t n = 0; n < number(y, 902, 0); n++)
        for (int64_t m = 0; m < number(y, 902, 1); m++)
            for (int64_t i = 0; i < number(y, 902, 2); i++)
                for (int64_t j = 0; j < number(y, 902, 3); j++)
                    store(dst, word(y, 901), place(y, n, m, i, j),
                          made->engine == 2 ? 0 : (float)sum_of(&all, n, m, i, j));
    return GOOD;
}
