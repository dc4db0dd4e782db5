#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A DataLoader that hands over compressed files, which are decoded in batches on the GPU.

The workers only read files; the pixels never cross the bus uncompressed.

    python3 examples/python/decode_on_gpu.py FOLDER [--size 224] [--workers 4]
"""

import argparse
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import conv


class PngBytes(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).rglob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.paths[index].read_bytes()


def decode(files, size, device="cuda"):
    """Files to a float batch (N, 3, size, size) on the device; damaged files are omitted."""
    images = conv.decode_png(
        files, device=device, channels=3, dtype="uint8", layout="CHW", framework="torch", errors="return"
    )
    batch = [
        torch.nn.functional.interpolate(image[None].float(), (size, size), mode="bilinear", antialias=True)
        for image in images
        if not isinstance(image, conv.PngError)
    ]
    return torch.cat(batch) / 255 if batch else torch.empty(0, 3, size, size, device=device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    # collate_fn=list: a batch is a list of files. It is decoded here, in the process that has the GPU.
    loader = DataLoader(
        PngBytes(options.folder), batch_size=256, num_workers=options.workers, collate_fn=list
    )
    start, images = time.perf_counter(), 0
    for files in loader:
        batch = decode(files, options.size, options.device)
        images += len(batch)
    if options.device != "cpu":
        torch.cuda.synchronize()
    print(f"{images} images in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
