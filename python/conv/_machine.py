# SPDX-License-Identifier: MIT
"""The devices of the machine, and settings of the process."""

from typing import NamedTuple

from . import _core


class Device(NamedTuple):
    device: str  # for `device` arguments: "cpu", "cuda:0"
    name: str
    memory: int  # bytes


def devices():
    """The devices of this machine: a list of conv.Device; the CPU is the first."""
    return [Device._make(device) for device in _core.devices()]


def configure(*, threads=None, max_pixels=None, pool_bytes=None):
    """Settings of the process, for calls from now on; None leaves one as it is.

    threads:    CPU threads that share the work of a call; 0 (the default): one for each core. 1 is right
                for workers of a DataLoader
    max_pixels: images with more are refused; 0: 2^28
    pool_bytes: memory kept for reuse, for each call that runs at the same time; 0: no limit
    """
    before = _core.configuration()
    given = (threads, max_pixels, pool_bytes)
    _core.configure(*(old if new is None else new for old, new in zip(before, given)))
