// SPDX-License-Identifier: MIT
// NVTX needs dlopen, which a static program does not have: its ranges do nothing here.
#if CONV_HAVE_CUDA
#error "for the program without CUDA"
#endif
void conv_ranges_push(const char *name);
void conv_ranges_pop(void);

void conv_ranges_push(const char *name)
{
    (void)name;
}

void conv_ranges_pop(void)
{
}
