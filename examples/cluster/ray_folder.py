#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filters a folder of PNG files with Ray Data:    ray_folder.py IN OUT

Each worker filters batches of files with the Python package. An output gets its name when it is complete, and images
whose output exists are skipped, so a batch that Ray runs again after it has lost a worker does only what was left.
"""
import os
import sys

import ray

import conv

SOURCE, TARGET = map(os.path.abspath, sys.argv[1:3])


def filter_batch(batch):
    conv.configure(threads=1)  # Ray starts one worker per core
    names, files, failed = [], [], 0
    for name in batch["item"]:
        if not os.path.exists(os.path.join(TARGET, name)):
            with open(os.path.join(SOURCE, name), "rb") as file:
                names.append(name)
                files.append(file.read())
    for name, image in zip(names, conv.decode_png(files, errors="return") if files else []):
        if isinstance(image, conv.PngError):
            print(f"{name}: {image.reason}", file=sys.stderr)
            failed += 1
            continue
        path = os.path.join(TARGET, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}.part"
        with open(part, "wb") as file:
            file.write(conv.encode_png(conv.filter(image, "emboss")))
        os.rename(part, path)
    return {"done": [len(names) - failed], "skipped": [len(batch["item"]) - len(names)], "failed": [failed]}


def main():
    names = sorted(os.path.relpath(os.path.join(root, name), SOURCE)
                   for root, _, files in os.walk(SOURCE) for name in files if name.lower().endswith(".png"))
    if not names:
        sys.exit(f"no PNG files in {SOURCE}; conv.filter_folder filters JPEG")
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    results = ray.data.from_items(names, override_num_blocks=max(1, len(names) // 16)).map_batches(filter_batch, batch_size=16)
    totals = [sum(column) for column in zip(*((row["done"], row["skipped"], row["failed"]) for row in results.iter_rows()))]
    print("{} done, {} skipped, {} failed".format(*totals))
    sys.exit(totals[2] > 0)


if __name__ == "__main__":
    main()
