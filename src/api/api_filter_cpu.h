// SPDX-License-Identifier: MIT
// Filters of the CPU's row of api_device.h; see there.
#ifndef CONV_API_API_FILTER_CPU_H
#define CONV_API_API_FILTER_CPU_H

#include "api/api_device.h"

enum conv_status conv_api_filter_cpu_open(struct conv_api_filter **filter,
                                          const struct conv_api_host *host,
                                          const struct conv_backend_config *config,
                                          struct conv_err *err);
void conv_api_filter_cpu_close(struct conv_api_filter *filter);
const char *conv_api_filter_cpu_kernel(const struct conv_api_filter *filter, int index, int depth);
enum conv_status conv_api_filter_cpu_run(struct conv_api_filter *filter, const conv_image *results,
                                         const conv_image *sources, int count, void *stream,
                                         struct conv_err *err);

#endif
