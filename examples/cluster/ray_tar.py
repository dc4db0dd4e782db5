#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filters tar shards with Ray Data, as WebDataset has them:    ray_tar.py IN OUT

One tar file is one task: its PNG members are filtered in batches, other members (labels) are copied, order and names
stay. A shard gets its name when it is complete, so a task that Ray runs again replaces nothing that was finished.
"""
import glob
import io
import os
import sys
import tarfile

import ray

import conv

SOURCE, TARGET = map(os.path.abspath, sys.argv[1:3])
BATCH = 64  # members in memory


def write_batch(out, members):
    """Members in order; images are filtered together."""
    images = [data for info, data in members if info.name.lower().endswith(".png")]
    filtered = iter(conv.decode_png(images, errors="return") if images else [])
    failed = 0
    for info, data in members:
        if info.name.lower().endswith(".png"):
            image = next(filtered)
            if isinstance(image, conv.PngError):
                print(f"{info.name}: {image.reason}", file=sys.stderr)
                failed += 1
                continue
            data = conv.encode_png(conv.filter(image, "emboss"))
            info.size = len(data)
        out.addfile(info, io.BytesIO(data))
    return failed


def filter_shard(row):
    conv.configure(threads=1)  # Ray starts one worker per core
    name = os.path.basename(row["item"])
    path, done, failed = os.path.join(TARGET, name), 0, 0
    if os.path.exists(path):
        return {"done": 0, "failed": 0, "skipped": 1}
    part = f"{path}.{os.getpid()}.part"
    with tarfile.open(row["item"], "r|*") as source, tarfile.open(part, "w") as out:
        members = []
        for info in source:
            if info.isfile():
                members.append((info, source.extractfile(info).read()))
                done += info.name.lower().endswith(".png")
            if len(members) == BATCH:
                failed += write_batch(out, members)
                members = []
        failed += write_batch(out, members)
    os.rename(part, path)
    return {"done": done - failed, "failed": failed, "skipped": 0}


def main():
    os.makedirs(TARGET, exist_ok=True)
    shards = sorted(glob.glob(os.path.join(SOURCE, "*.tar")))
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    rows = list(ray.data.from_items(shards, override_num_blocks=max(1, len(shards))).map(filter_shard).iter_rows())
    print("{} done, {} failed, {} shards skipped".format(*(sum(row[key] for row in rows) for key in ("done", "failed", "skipped"))))
    sys.exit(any(row["failed"] for row in rows))


if __name__ == "__main__":
    main()
