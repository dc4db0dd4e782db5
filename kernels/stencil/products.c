// SPDX-License-Identifier: MIT
// All rows of a matrix of rank 2 are integer combinations of two vectors of the lattice that they
// span. Euclid's algorithm finds a basis of it, and Lagrange's reduction the shortest basis (Nguyen
// and Stehle, "Low-dimensional lattice basis reduction revisited", 2004), which keeps the numbers
// as small as those of the matrix.
#include "kernels/stencil/stencil.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIDE CONV_FILTER_MAX_SIDE
#define MOST_COEF (1 << 26) // products of two such numbers and of sums of them fit 64 bits
#define MOST_ROUNDS 100     // of the reduction, whose numbers shrink by a factor in each

// The rows so far span the lattice of these rows; in the second row, the columns before its pivot
// are 0.
struct basis {
    int64_t row[2][SIDE];
    int pivot[2], count, width;
};

// to -= factor * from. False if a number does not fit.
static bool subtract(int64_t *to, const int64_t *from, int64_t factor, int width)
{
    for (int i = 0; i < width; i++) {
        int64_t product;
        if (__builtin_mul_overflow(from[i], factor, &product) ||
            __builtin_sub_overflow(to[i], product, &to[i]))
            return false;
    }
    return true;
}

static int first_nonzero(const int64_t *row, int width)
{
    int i = 0;
    while (i < width && row[i] == 0)
        i++;
    return i;
}

// Euclid's algorithm on the pivot column: the row has 0 there afterwards.
static bool eliminate(int64_t *kept, int64_t *row, int pivot, int width)
{
    while (row[pivot] != 0) {
        int64_t swapped[SIDE];
        if (!subtract(kept, row, kept[pivot] / row[pivot], width))
            return false;
        memcpy(swapped, kept, sizeof swapped);
        memcpy(kept, row, sizeof swapped);
        memcpy(row, swapped, sizeof swapped);
    }
    return true;
}

// False if the row is not in the plane of the two basis rows.
static bool insert(struct basis *basis, int64_t *row)
{
    for (int k = 0; k < 2; k++) {
        if (k == basis->count) {
            basis->pivot[k] = first_nonzero(row, basis->width);
            if (basis->pivot[k] == basis->width)
                return true;
            memcpy(basis->row[k], row, sizeof basis->row[k]);
            basis->count++;
            return true;
        }
        if (!eliminate(basis->row[k], row, basis->pivot[k], basis->width))
            return false;
    }
    int at = basis->pivot[1];
    return first_nonzero(row, basis->width) == basis->width &&
           subtract(basis->row[0], basis->row[1], basis->row[0][at] / basis->row[1][at],
                    basis->width);
}

static double dot(const int64_t *a, const int64_t *b, int width)
{
    double sum = 0;
    for (int i = 0; i < width; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static bool reduce(struct basis *basis)
{
    int shorter = 0;
    for (int round = 0; round < MOST_ROUNDS && basis->count == 2; round++) {
        int64_t *less = basis->row[shorter], *more = basis->row[1 - shorter];
        double factor = rint(dot(less, more, basis->width) / dot(less, less, basis->width));
        if (!(fabs(factor) < 0x1p62) || !subtract(more, less, (int64_t)factor, basis->width))
            return false;
        if (dot(more, more, basis->width) >= dot(less, less, basis->width))
            return true;
        shorter = 1 - shorter;
    }
    return basis->count < 2;
}

// The multiples of the basis that make up the row: Cramer's rule in two columns.
static bool solve(int64_t multiples[2], const struct basis *basis, const int32_t *row)
{
    const int64_t *u = basis->row[0], *v = basis->row[1];
    int x = basis->pivot[0], y = basis->pivot[1];
    multiples[1] = 0;
    if (basis->count == 1) {
        multiples[0] = row[x] / u[x];
        return true;
    }
    int64_t determinant = u[x] * v[y] - u[y] * v[x];
    multiples[0] = (row[x] * v[y] - row[y] * v[x]) / determinant;
    multiples[1] = (row[y] * u[x] - row[x] * u[y]) / determinant;
    return true;
}

static bool fits(int64_t value)
{
    return llabs(value) <= INT32_MAX;
}

static void measure(struct conv_stencil_products *products, int width, int height)
{
    products->magnitude = abs(products->sample);
    for (int k = 0; k < products->count; k++) {
        double down = 0, across = 0;
        for (int j = 0; j < height; j++)
            down += fabs((double)products->column[k][j]);
        for (int i = 0; i < width; i++)
            across += fabs((double)products->row[k][i]);
        products->magnitude += down * across;
    }
}

// Also checks that the products add up to the matrix.
static bool fill(struct conv_stencil_products *products, const struct basis *basis,
                 const struct conv_stencil *stencil)
{
    int width = stencil->width;
    for (int k = 0; k < basis->count; k++)
        for (int i = 0; i < width; i++) {
            if (llabs(basis->row[k][i]) > 8 * (int64_t)MOST_COEF) // solve() multiplies
                return false;
            products->row[k][i] = (int32_t)basis->row[k][i];
        }
    for (int j = 0; j < stencil->height; j++) {
        const int32_t *row = &stencil->icoef[j * width];
        int64_t multiples[2];
        if (!solve(multiples, basis, row))
            return false;
        for (int i = 0; i < width; i++) {
            int64_t first, second;
            if (__builtin_mul_overflow(multiples[0], basis->row[0][i], &first) ||
                __builtin_mul_overflow(multiples[1], basis->row[1][i], &second) ||
                first + second != row[i])
                return false;
        }
        for (int k = 0; k < basis->count; k++) {
            if (!fits(multiples[k]))
                return false;
            products->column[k][j] = (int32_t)multiples[k];
        }
    }
    products->count = basis->count;
    return true;
}

static bool find_two(struct conv_stencil_products *products, const struct conv_stencil *stencil)
{
    struct basis basis = {.width = stencil->width};
    for (int j = 0; j < stencil->height; j++) {
        int64_t row[SIDE] = {0};
        for (int i = 0; i < stencil->width; i++) {
            row[i] = stencil->icoef[j * stencil->width + i];
            if (llabs(row[i]) > MOST_COEF)
                return false;
        }
        if (!insert(&basis, row))
            return false;
    }
    return basis.count > 0 && reduce(&basis) && fill(products, &basis, stencil);
}

bool conv_stencil_find_products(const struct conv_stencil *stencil,
                                struct conv_stencil_products *products)
{
    *products = (struct conv_stencil_products){0};
    if (!stencil->exact)
        return false;
    if (conv_stencil_sample_factors(stencil, &products->sample, products->column[0],
                                    products->row[0])) {
        products->count = 1;
    } else {
        products->sample = 0;
        if (!find_two(products, stencil))
            return false;
    }
    measure(products, stencil->width, stencil->height);
    return true;
}

// --- one product and a multiple of the sample
// ------------------------------------------------------

// In a product, the corners of any rectangle of coefficients are in proportion, so three corners
// determine the fourth, which is the centre here.
bool conv_stencil_sample_factors(const struct conv_stencil *stencil, int32_t *sample,
                                 int32_t *column, int32_t *row)
{
    int width = stencil->width, x = width / 2, y = stencil->height / 2, corner = 0;
    int taps = width * stencil->height;
    const int32_t *coef = stencil->icoef;
    if (!stencil->exact)
        return false;
    while (corner < taps && (coef[corner] == 0 || corner % width == x || corner / width == y))
        corner++;
    if (corner == taps)
        return false;
    int64_t beside = (int64_t)coef[y * width + corner % width] * coef[corner / width * width + x];
    int64_t product = beside / coef[corner], rest = coef[y * width + x] - product;
    if (beside % coef[corner] != 0 || llabs(product) > INT32_MAX || llabs(rest) > INT32_MAX ||
        rest == 0)
        return false;
    int32_t factored[CONV_FILTER_MAX_TAPS];
    memcpy(factored, coef, (size_t)taps * sizeof *coef);
    factored[y * width + x] = (int32_t)product;
    if (!conv_filter_factor(factored, width, stencil->height, column, row))
        return false;
    *sample = (int32_t)rest;
    return true;
}
