// SPDX-License-Identifier: MIT
// Products that the kernels look up, computed by the compiler.
#ifndef CONV_PNG_CUDA_CRC_TABLES_CUH
#define CONV_PNG_CUDA_CRC_TABLES_CUH

#include "png/cuda/crc.cuh"

constexpr uint32_t constant_times_x(uint32_t a)
{
    return a >> 1 ^ (a & 1 ? CRC_POLYNOMIAL : 0);
}

// entry[k][b]: byte k of a word, of value b, times x^1024.
struct crc_line_table {
    uint32_t entry[4][256];
};

// entry[k][d]: x^(d * 16^k).
struct crc_power_table {
    uint32_t entry[8][16];
};

// entry[l]: x^(32 * (32 - l)), for the words after word l of a line of 32, and 32 bits more.
struct crc_lane_table {
    uint32_t entry[32];
};

constexpr struct crc_line_table make_crc_line_table()
{
    struct crc_line_table table = {};
    uint32_t power[32] = {}; // bit i of a word times x^1024: bit 31 is 1, bit 30 x, ...
    uint32_t value = CRC_ONE;
    for (int i = 0; i < 1024; i++)
        value = constant_times_x(value);
    for (int i = 31; i >= 0; i--) {
        power[i] = value;
        value = constant_times_x(value);
    }
    for (int k = 0; k < 4; k++)
        for (int b = 1; b < 256; b++) {
            int low = 0;
            while (!(b >> low & 1))
                low++;
            table.entry[k][b] = table.entry[k][b & (b - 1)] ^ power[8 * k + low];
        }
    return table;
}

constexpr uint32_t constant_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 31; i >= 0; i--) {
        product ^= a >> i & 1 ? b : 0;
        b = constant_times_x(b);
    }
    return product;
}

constexpr struct crc_power_table make_crc_power_table()
{
    struct crc_power_table table = {};
    uint32_t step = CRC_ONE >> 1;
    for (int k = 0; k < 8; k++) {
        table.entry[k][0] = CRC_ONE;
        for (int d = 1; d < 16; d++)
            table.entry[k][d] = constant_multiply(table.entry[k][d - 1], step);
        step = constant_multiply(table.entry[k][15], step);
    }
    return table;
}

constexpr struct crc_lane_table make_crc_lane_table()
{
    struct crc_lane_table table = {};
    uint32_t value = CRC_ONE;
    for (int l = 31; l >= 0; l--) {
        for (int i = 0; i < 32; i++)
            value = constant_times_x(value);
        table.entry[l] = value;
    }
    return table;
}

static __device__ const struct crc_line_table crc_line_table = make_crc_line_table();
static __device__ const struct crc_power_table crc_power_table = make_crc_power_table();
static __device__ const struct crc_lane_table crc_lane_table = make_crc_lane_table();

// x^n mod P by the n's digits; `digits` of 4 bits.
__device__ inline uint32_t crc_power_by_table(uint32_t n, int digits)
{
    uint32_t power = crc_power_table.entry[0][n & 15];
    for (int k = 1; k < digits; k++)
        power = crc_multiply(power, crc_power_table.entry[k][n >> 4 * k & 15]);
    return power;
}

#endif
