#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A folder of PNG files as a torch Dataset, whose workers decode on the CPU.

    python3 examples/python/dataset.py FOLDER [--size 224] [--workers 4]
"""

import argparse
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import conv


class PngFolder(Dataset):
    """Images as uint8 tensors (3, size, size), cut out of the middle; around smaller ones is black."""

    def __init__(self, folder, size):
        self.paths = sorted(Path(folder).rglob("*.png"))
        self.size = size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        file = self.paths[index].read_bytes()
        image = conv.decode_png(file, channels=3, dtype="uint8", layout="CHW", framework="torch")
        top, left = ((self.size - length) // 2 for length in image.shape[1:])  # negative padding cuts
        below, right = self.size - image.shape[1] - top, self.size - image.shape[2] - left
        return torch.nn.functional.pad(image, (left, right, top, below)).contiguous()


def one_thread(_):
    """The workers share the cores: each call stays in one thread."""
    torch.set_num_threads(1)
    conv.configure(threads=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    dataset = PngFolder(options.folder, options.size)
    loader = DataLoader(dataset, batch_size=64, num_workers=options.workers, worker_init_fn=one_thread)
    start, images, mean = time.perf_counter(), 0, torch.zeros(3)
    for batch in loader:
        images += len(batch)
        mean += batch.float().mean((2, 3)).sum(0)
    print(f"{images} images in {time.perf_counter() - start:.2f} s, mean {(mean / max(images, 1)).tolist()}")


if __name__ == "__main__":
    main()
