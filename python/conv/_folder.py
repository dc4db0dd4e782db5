# SPDX-License-Identifier: MIT
"""Filters folders and archives as the program does."""

import os

from . import _core


def _shard(shard, by):
    """(part, parts, whether by names alone) as the library takes them."""
    if by not in ("bytes", "name"):
        raise ValueError(f"shard_by must be 'bytes' or 'name', not {by!r}")
    part, parts = shard if shard is not None else (0, 0)
    if shard is not None and not 0 <= part < parts:
        raise ValueError(f"shard must be (i, n) with i from 0 to n - 1, not {shard!r}")
    return int(part), int(parts), by == "name"


def filter_folder(inputs, output, filter, *, progress=None, device="auto", border=None, alpha=None, kernel=None, divisor=None,
                  bias=None, side=0, flip=False, recursive=False, skip_existing=False, update=False, strip=False, level=None,
                  quality=None, to=None, progressive=False, optimize=False, gray=False, luma=False, linear=False,
                  auto_orient=False, archives=True, shard=None, shard_by="bytes"):
    """Filters the PNG, JPEG, TIFF, WebP and PNM files of folders and archives, as the program `conv` does.

    inputs:        a folder, file or archive, or a list of them
    output:        a folder, which is made where it is missing, or an archive ("out.tar")
    filter:        a chain of filters: "gaussian5,sharpen", or a list
    progress:      called with a conv.Progress several times a second, in the calling thread; an exception that
                   it raises stops the run
    device:        "auto" (CUDA if it can be used, else the CPU), "cpu", "cuda", "cuda:1", or the number of a CUDA device
    border, alpha, kernel, divisor, bias, side, flip: as for conv.filter
    recursive:     folders below the inputs, too
    skip_existing: outputs that exist are kept; by default they are replaced
    update:        outputs that are not older than their inputs are kept
    strip:         True: of metadata only colour space and orientation are kept; "all": nothing
    level:         of compression, 0 to 12
    quality:       of JPEG outputs and lossy WebP, 1 to 100; None: as their inputs, or 90
    to:            the format of outputs; None: as the inputs
    progressive:   JPEG outputs in several scans; without it, those of progressive inputs
    optimize:      JPEG outputs with Huffman codes made for each image
    gray:          colours become their luminance before the first filter
    luma:          only luminance is filtered, as for conv.filter; from JPEG to JPEG chroma passes as it is coded
    linear:        filters work in linear light, with 16 bits inside: sRGB's curve, or a PNG's gamma
    auto_orient:   images are turned as the orientation in their Exif says, before the first filter
    archives:      False: archives are files like any other
    shard:         (i, n): only part i of n, counted from 0: of several archives whole ones, else images
    shard_by:      "bytes", or "name": parts by names alone, without listing all inputs first

    Returns a conv.Progress with the totals; images that failed are in its `failures` and raise nothing.
    KeyboardInterrupt stops the run; files that are there then are whole.
    """
    for path in inputs if isinstance(inputs, (list, tuple)) else (inputs,):
        os.stat(path)  # FileNotFoundError for what the caller has named
    if strip not in (False, True, "all"):
        raise ValueError(f"strip: True, False or 'all', not {strip!r}")
    # By name, which the extension module picks its options by.
    options = dict(locals(), strip=2 if strip == "all" else int(bool(strip)), shard=_shard(shard, shard_by))
    return _core.filter_folder(inputs, output, filter, progress, device, options)
