// SPDX-License-Identifier: MIT
// cuDNN's functions, looked up at run time: only its header is needed to build.
#ifndef CONV_BENCH_BENCH_CUDNN_H
#define CONV_BENCH_BENCH_CUDNN_H

#include <cudnn.h>
#include <cudnn_backend.h>

#include "base/err.h"

// The functions that are called, by their names without "cudnn".
#define CONV_BENCH_CUDNN_FUNCTIONS(X)                                                              \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(CreateTensorDescriptor)                                                                      \
    X(DestroyTensorDescriptor)                                                                     \
    X(SetTensor4dDescriptor)                                                                       \
    X(CreateFilterDescriptor)                                                                      \
    X(DestroyFilterDescriptor)                                                                     \
    X(SetFilter4dDescriptor)                                                                       \
    X(CreateConvolutionDescriptor)                                                                 \
    X(DestroyConvolutionDescriptor)                                                                \
    X(SetConvolution2dDescriptor)                                                                  \
    X(FindConvolutionForwardAlgorithm)                                                             \
    X(ConvolutionForward)                                                                          \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

struct conv_bench_cudnn { // starts as {0}
    void *library;
#define CONV_BENCH_CUDNN_POINTER(name) __typeof__(cudnn##name) *name;
    CONV_BENCH_CUDNN_FUNCTIONS(CONV_BENCH_CUDNN_POINTER)
#undef CONV_BENCH_CUDNN_POINTER
};

// CONV_ERR_UNSUPPORTED if the library is not installed or lacks a function.
enum conv_status conv_bench_cudnn_open(struct conv_bench_cudnn *cudnn, struct conv_err *err);
void conv_bench_cudnn_close(struct conv_bench_cudnn *cudnn); // never opened is fine

// CONV_OK, or CONV_ERR_UNSUPPORTED with cuDNN's reason.
enum conv_status conv_bench_cudnn_report(const struct conv_bench_cudnn *cudnn, cudnnStatus_t code,
                                         struct conv_err *err);

#endif
