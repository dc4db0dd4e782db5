/* SPDX-License-Identifier: MIT */
/**
 * @file
 * How functions of libconv fail. Included by conv.h. New codes are appended.
 */
#ifndef CONV_STATUS_H
#define CONV_STATUS_H

/** CONV_OK, or why a function failed. */
enum conv_status {
    CONV_OK = 0,              /**< done */
    CONV_ERR_USAGE = 1,       /**< an argument or a setting makes no sense */
    CONV_ERR_IO = 2,          /**< the system refused to read or write */
    CONV_ERR_FORMAT = 3,      /**< the bytes are not a valid PNG (or filter, or tensor file) */
    CONV_ERR_UNSUPPORTED = 4, /**< valid, but not possible with this function or setting */
    CONV_ERR_LIMIT = 5,       /**< beyond a limit for pixels or memory */
    CONV_ERR_MEMORY = 6,      /**< the system or the device has no memory left */
    CONV_ERR_DEVICE = 7,      /**< the GPU or its driver failed */
    CONV_ERR_CANCELLED = 8    /**< stopped by the caller */
};

#endif
