// SPDX-License-Identifier: MIT
// The structs of the DLPack protocol, versions 1.x and before: https://dmlc.github.io/dlpack.
#ifndef CONV_PYTHON_DLPACK_H
#define CONV_PYTHON_DLPACK_H

#include <cstdint>

namespace convpy
{

enum : int32_t { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_cuda_managed = 13 };
enum : uint8_t { dl_int = 0, dl_uint = 1, dl_float = 2, dl_bool = 6 };
constexpr uint64_t dl_flag_read_only = 1, dl_flag_is_copied = 2;

struct DlDevice {
    int32_t type;
    int32_t id;
};

struct DlType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct DlTensor {
    void *data;
    DlDevice device;
    int32_t ndim;
    DlType dtype;
    int64_t *shape;
    int64_t *strides; // in elements; null: row-major without gaps
    uint64_t byte_offset;
};

// In a capsule called "dltensor"; "used_dltensor" once a consumer has taken it.
struct DlManaged {
    DlTensor tensor;
    void *context;
    void (*deleter)(DlManaged *self);
};

// In a capsule called "dltensor_versioned".
struct DlManagedVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(DlManagedVersioned *self);
    uint64_t flags;
    DlTensor tensor;
};

} // namespace convpy

#endif
