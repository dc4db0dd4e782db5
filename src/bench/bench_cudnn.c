// SPDX-License-Identifier: MIT
#include "bench/bench_cudnn.h"

#include <dlfcn.h>
#include <stdbool.h>

#define TEXT_OF(number) #number
#define NAME_OF(major) "libcudnn.so." TEXT_OF(major)

enum conv_status conv_bench_cudnn_open(struct conv_bench_cudnn *cudnn, struct conv_err *err)
{
    cudnn->library = dlopen(NAME_OF(CUDNN_MAJOR), RTLD_NOW);
    if (!cudnn->library)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s", dlerror());
    bool all = true;
#define LOOK_UP(name)                                                                              \
    *(void **)&cudnn->name = dlsym(cudnn->library, "cudnn" #name);                                 \
    all = all && cudnn->name;
    CONV_BENCH_CUDNN_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return all ? CONV_OK
               : conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s lacks a function",
                              NAME_OF(CUDNN_MAJOR));
}

void conv_bench_cudnn_close(struct conv_bench_cudnn *cudnn)
{
    if (cudnn->library)
        (void)dlclose(cudnn->library);
    cudnn->library = NULL;
}

enum conv_status conv_bench_cudnn_report(const struct conv_bench_cudnn *cudnn, cudnnStatus_t code,
                                         struct conv_err *err)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN: %s", cudnn->GetErrorString(code));
}
