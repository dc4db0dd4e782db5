#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A DataLoader that hands over compressed files, PNG and JPEG, which are decoded in batches on the GPU.

The workers only read files, of a folder or of a WebDataset shard; the pixels never cross the bus uncompressed.

    python3 examples/python/decode_on_gpu.py FOLDER|SHARD.tar [--size 224] [--workers 4]
"""

import argparse
import tarfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import conv


IMAGES = (".jpg", ".jpeg", ".png")


class Files(Dataset):
    """The bytes of the images in a folder, or of the members of a tar archive without compression."""

    def __init__(self, path):
        if Path(path).is_dir():
            self.parts = [(found, 0, -1) for found in sorted(Path(path).rglob("*")) if found.suffix.lower() in IMAGES]
        else:
            with tarfile.open(path, "r:") as shard:
                self.parts = [(path, member.offset_data, member.size) for member in shard
                              if member.isfile() and member.name.lower().endswith(IMAGES)]

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, index):
        path, offset, size = self.parts[index]
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)


def decode(files, size, device="cuda"):
    """Files to a float batch (N, 3, size, size) on the device; damaged files are omitted."""
    images = conv.decode_image(
        files, device=device, channels="rgb", dtype="uint8", layout="CHW", framework="torch", errors="return"
    )
    batch = [
        torch.nn.functional.interpolate(image[None].float(), (size, size), mode="bilinear", antialias=True)
        for image in images
        if not isinstance(image, conv.ImageError)
    ]
    return torch.cat(batch) / 255 if batch else torch.empty(0, 3, size, size, device=device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    # collate_fn=list: a batch is a list of files. It is decoded here, in the process that has the GPU.
    loader = DataLoader(Files(options.path), batch_size=256, num_workers=options.workers, collate_fn=list)
    start, images = time.perf_counter(), 0
    for files in loader:
        batch = decode(files, options.size, options.device)
        images += len(batch)
    if options.device != "cpu":
        torch.cuda.synchronize()
    print(f"{images} images in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
