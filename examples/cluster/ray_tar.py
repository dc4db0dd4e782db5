#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filters tar shards with Ray Data, as WebDataset has them:    ray_tar.py IN OUT

One tar file is one task: its PNG and JPEG members are filtered, other members (labels) are copied, order and names stay.
A shard gets its name when it is complete, so a task that Ray runs again replaces nothing that was finished.
"""
import glob
import os
import sys

import ray

import conv

SOURCE, TARGET = map(os.path.abspath, sys.argv[1:3])


def filter_shard(row):
    conv.configure(threads=1)  # Ray starts one worker per core
    path = os.path.join(TARGET, os.path.basename(row["item"]))
    if os.path.exists(path):
        return {"done": 0, "failed": 0, "skipped": 1}
    part = f"{path}.{os.getpid()}.part.tar"
    totals = conv.filter_folder(row["item"], part, "emboss", device="cpu")
    for name, reason in totals.failures:
        print(f"{name}: {reason}", file=sys.stderr)
    os.rename(part, path)
    return {"done": totals.done, "failed": totals.failed, "skipped": 0}


def main():
    os.makedirs(TARGET, exist_ok=True)
    shards = sorted(glob.glob(os.path.join(SOURCE, "*.tar")))
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    rows = list(ray.data.from_items(shards, override_num_blocks=max(1, len(shards))).map(filter_shard).iter_rows()) if shards else []
    done, failed, skipped = (sum(row[key] for row in rows) for key in ("done", "failed", "skipped"))
    print(f"{done} done, {failed} failed, {skipped} shards skipped")
    if done + failed + skipped == 0:
        sys.exit(f"no PNG or JPEG in the tar files of {SOURCE}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
