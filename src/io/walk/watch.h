// SPDX-License-Identifier: MIT
// Watches folders (inotify, Linux) and hands out images as they arrive, in whichever way: files
// that are closed after writing, renamed, exchanged or linked into place, in folders that arrive.
// The walk hands out the images that exist at the beginning. While an image is processed no other
// version of it is handed out, so that the last version is the last that is written.
//
// Nothing is missed: a folder is watched before it is listed, and if the system drops events
// because too many are waiting, the folders are listed again for files that changed since. An image
// may be handed out twice then. Memory: some hundred bytes per folder and per image that waits.
#ifndef CONV_WALK_WATCH_H
#define CONV_WALK_WATCH_H

#include "io/walk/folder_source.h"

struct conv_watch;

// Keeps *rules and `stop`, which ends waiting once it is non-zero. CONV_ERR_LIMIT, CONV_ERR_IO or
// CONV_ERR_MEMORY.
enum conv_status conv_watch_open(struct conv_watch **watch, const struct conv_folder_rules *rules,
                                 const atomic_int *stop, struct conv_err *err);
void conv_watch_close(struct conv_watch *watch); // NULL is fine

// The functions below: one thread at a time.

// Begins to watch a folder, and with rules->recursive those below it. `target` as of
// conv_folder_source_begin. Keeps `path`. CONV_ERR_LIMIT, CONV_ERR_IO or CONV_ERR_MEMORY.
enum conv_status conv_watch_add(struct conv_watch *watch, const char *path, size_t target,
                                struct conv_err *err);

// For an image that the walk found in a watched folder. False if it is still being written: it is
// handed out when it is complete.
bool conv_watch_take_found(struct conv_watch *watch, struct conv_item *item);

// Waits for the next image. CONV_SOURCE_BAD: a new folder cannot be watched, or a folder of the
// operands is gone. CONV_SOURCE_END: stopped, or all folders of the operands are gone.
enum conv_source_step conv_watch_next(struct conv_watch *watch, struct conv_item *item,
                                      struct conv_err *err);

// True if conv_watch_next would wait now.
bool conv_watch_may_wait(struct conv_watch *watch);

#endif
