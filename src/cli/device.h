// SPDX-License-Identifier: MIT
// From --device and --variant to an open backend.
#pragma once

#include "cli/options.h"
#include "engine/engine.h"
#include "run/pipeline.h"
#include "run/workload.h"

struct conv_device {
    const struct conv_device_ops *ops;
    int count;        // several only of a GPU backend
    int filter_count; // of the chain that they are opened for
    char names[CONV_BACKEND_MOST_DEVICES][16];
    int ordinals[CONV_BACKEND_MOST_DEVICES];
    struct conv_backend *backends[CONV_BACKEND_MOST_DEVICES];    // NULL: still being opened
    struct conv_async_open *openings[CONV_BACKEND_MOST_DEVICES]; // NULL where `backends` is all
    const struct conv_device_ops *fallback_ops; // of `auto` and `all`: the CPU, in case GPUs fail
    struct conv_backend *fallback;
    char name[16 * CONV_BACKEND_MOST_DEVICES]; // "cuda:0", "cuda:0,cuda:1"
    const struct conv_layer_stage *layer; // computed instead of filters; `ops` is then the CPU's
    enum conv_coder decode_on, encode_on; // what --decode-on and --encode-on resolve to
    bool left_threads; // threads of a run still use the backends, which must stay open
    bool is_left;      // memory and streams are freed by the end of the process; also stay open
};

// CONV_DEVICE_GPU: devices requested by name.
enum conv_device_choice { CONV_DEVICE_AUTO, CONV_DEVICE_ALL, CONV_DEVICE_CPU, CONV_DEVICE_GPU };

// The value of --device.
struct conv_device_list {
    enum conv_device_choice choice;
    const struct conv_device_ops *gpu;       // the one selected, or that AUTO and ALL would use
    int ordinals[CONV_BACKEND_MOST_DEVICES]; // of `gpu`; 0 unless one is given
    int count;
    bool is_numbered; // the ordinals were given
};

// If several processes of a job run on one machine, each takes another device, unless the user has
// chosen one by its number: the process's number among them, modulo the devices that it may use
// (CUDA_VISIBLE_DEVICES). Counts the devices, except in the first process.
void conv_device_spread(struct conv_device_list *list);

// Prepares the process for the devices of --device. Called before anything else, while there is one
// thread.
void conv_device_set_up_process(const struct conv_machine_options *machine);

// Parses --device for commands that use one device. CONV_ERR_USAGE for `all`, lists and unknown
// devices.
enum conv_status conv_device_parse_one(const struct conv_machine_options *machine,
                                       struct conv_device_list *list, struct conv_err *err);

// Opens the backends that --device and --variant select. `auto` takes the first GPU, or the CPU if
// there is little `work`; `all` takes every usable GPU. Without a usable GPU both take the CPU and
// print the reason in one line on stderr, unless `auto` finds no driver. CONV_ERR_DEVICE if a
// device selected by name cannot be used.
//
// With `at_once` the devices of `auto` and `all` may still be opening on return if the filters are
// small; the CPU does the work until then. For large filters, and for devices selected by name, the
// call waits. A non-zero *stop (which may be NULL, and must outlive the device) ends decoding on a
// device early.
enum conv_status conv_device_open(struct conv_device *device, const struct conv_options *options,
                                  const struct conv_filter *filters, int filter_count, bool at_once,
                                  enum conv_workload_kind work, atomic_int *stop,
                                  struct conv_err *err);

// Sets the amount of work that counts as large. True if the choice of the device depends on it.
bool conv_device_choice(const struct conv_options *options, struct conv_workload_choice *choice);
void conv_device_close(struct conv_device *device); // {0} is fine

// True if what a run holds on the device may be freed by the end of the process, which is faster.
// False under a profiler or a checker, which writes its results when the device is closed.
bool conv_device_may_be_left(const struct conv_device *device);

// True if a device was not closed, or a thread is still opening one (see conv_async_open_close).
// The process must then end by _exit().
bool conv_device_is_left_open(void);

// Takes over devices that have been opened meanwhile; does not wait.
void conv_device_look(struct conv_device *device);
