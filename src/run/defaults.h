// SPDX-License-Identifier: MIT
// Settings of a run that depend on the machine and on each other, where the user gives none.
#ifndef CONV_RUN_DEFAULTS_H
#define CONV_RUN_DEFAULTS_H

#include "base/limits.h"
#include "io/source.h"
#include "run/config.h"

// Streams of a device at the beginning of a run and at most, and the staging bytes of a group, for
// devices that decode or do not.
int conv_defaults_streams(bool decodes);
int conv_defaults_most_streams(bool decodes);
size_t conv_defaults_group_bytes(bool decodes);
// The most streams if each runs several groups at once: at most `most`, at least `streams`.
int conv_defaults_most_together(int most, int streams);

// Bytes of a group's planes in device memory, with which a stream begins, and which make a group
// full.
size_t conv_defaults_device_bytes(const struct conv_pipeline_config *config);

// Bytes of staging memory in total: half of the machine's memory, or less under a limit. `async`:
// a device filters.
size_t conv_defaults_mem_limit(const struct conv_limits *limits, bool async);

// To be called once mem_limit, jobs and the devices are set: sets how much memory coders and file
// buffers keep, and the memory of the whole run if a container or a job limits it. `refuse_beyond`
// as in the configuration. Returns true if mapped addresses count, so that arenas of malloc do,
// too.
bool conv_defaults_limit(struct conv_pipeline_config *config, bool refuse_beyond);

// Called after it: sets how much memory members of archives take while they wait, those that
// `source` reads and those that config->sink writes, and subtracts it from the run's.
void conv_defaults_limit_archives(struct conv_pipeline_config *config, struct conv_source *source);

#endif
