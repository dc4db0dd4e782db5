# SPDX-License-Identifier: MIT
from typing import NamedTuple


class Progress(NamedTuple):
    """The progress of conv.filter_folder, and its totals."""

    done: int  # images that were filtered and saved
    failed: int  # images that were not
    skipped: int  # images whose results existed
    found: int  # images found so far; all of them once `listed`
    listed: bool
    failures: list[tuple[str, str]]  # (path, reason) of each image that failed
