// SPDX-License-Identifier: MIT
#include "engine/cuda_device.h"

#include <stdio.h>

#include "kernels/common/cuda_code.h"

enum conv_status conv_cuda_device_report(struct conv_err *err, cudaError_t code, const char *doing)
{
    (void)cudaGetLastError();
    enum conv_status status = code == cudaErrorMemoryAllocation ? CONV_ERR_MEMORY : CONV_ERR_DEVICE;
    return conv_err_set(err, status, "CUDA failed to %s: %s", doing, cudaGetErrorString(code));
}

// Reports why a machine has no usable device, so that its user sees what to install.
static enum conv_status report_no_device(struct conv_err *err, cudaError_t code)
{
    (void)cudaGetLastError();
    int driver = 0;
    if (!conv_cuda_device_has_driver())
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA driver on this machine");
    (void)cudaDriverGetVersion(&driver);
    if (code == cudaErrorInsufficientDriver)
        return conv_err_set(err, CONV_ERR_DEVICE,
                            "the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d or "
                            "newer",
                            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                            CUDART_VERSION % 1000 / 10);
    return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device: %s", cudaGetErrorString(code));
}

enum conv_status conv_cuda_device_use(int device, struct conv_err *err)
{
    cudaError_t code = cudaSetDevice(device);
    return code ? conv_cuda_device_report(err, code, "select the device") : CONV_OK;
}

enum conv_status conv_cuda_device_count(int *count, struct conv_err *err)
{
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count == 0)
        code = cudaErrorNoDevice;
    if (code) {
        *count = 0;
        return report_no_device(err, code);
    }
    return CONV_OK;
}

enum conv_status conv_cuda_device_check(int device, struct conv_err *err)
{
    int count;
    enum conv_status status = conv_cuda_device_count(&count, err);
    if (!status && (device < 0 || device >= count))
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device %d: the devices are 0 to %d",
                            device, count - 1);
    return status;
}

enum conv_status conv_cuda_device_capability(int device, int *capability, struct conv_err *err)
{
    int major = 0, minor = 0;
    cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!code)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = conv_cuda_code_capability(major * 10 + minor);
    return code ? conv_cuda_device_report(err, code, "read the compute capability") : CONV_OK;
}

static enum conv_status read_info(struct conv_device_info *info, int device, struct conv_err *err)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code)
        return conv_cuda_device_report(err, code, "read the device's properties");
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, properties.name);
    int capability = properties.major * 10 + properties.minor;
    info->capability = (unsigned)capability;
    info->offers = (unsigned)conv_cuda_code_capability(capability);
    info->multiprocessors = properties.multiProcessorCount;
    info->memory = properties.totalGlobalMem;
    info->free = 0;
    return CONV_OK;
}

enum conv_status conv_cuda_device_read_memory(struct conv_device_info *info, int device,
                                              struct conv_err *err)
{
    cudaError_t code = cudaSetDevice(device);
    if (!code)
        code = cudaMemGetInfo(&info->free, &info->memory);
    return code ? conv_cuda_device_report(err, code, "read the device's memory") : CONV_OK;
}

enum conv_status conv_cuda_device_list(struct conv_device_info *info, int room, int *count,
                                       struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_count(count, err);
    for (int i = 0; !status && i < *count && i < room; i++)
        status = read_info(&info[i], i, err);
    return status;
}
