# SPDX-License-Identifier: MIT
"""decode_png, encode_png and probe_png on the CPU, also of the samples."""

import mmap

import numpy as np
import pytest
import tiff
from conftest import ROOT, every_shape

import conv

SAMPLES = sorted((ROOT / "samples").glob("*.png"))


def chw(image):
    return np.ascontiguousarray(np.moveaxis(image, -1, -3))


def test_pnm():
    want = np.arange(18, dtype=np.uint16).reshape(2, 3, 3)
    got = conv.decode_image(b"P6 3 2 65535\n" + want.astype(">u2").tobytes())
    assert got.dtype == np.uint16 and np.array_equal(got, want)
    with pytest.raises(conv.ImageError, match="truncated"):
        conv.decode_image(b"P5 3 2 255\n12345")


@every_shape
def test_what_is_encoded_is_decoded(noise, shape, dtype):
    image = noise(shape, dtype)
    file = conv.encode_png(image)
    decoded = conv.decode_png(file)
    assert decoded.dtype == dtype and decoded.shape == shape
    assert np.array_equal(decoded, image)
    planes = chw(image) if image.ndim == 3 else image[None]
    assert conv.encode_png(planes, layout="CHW") == file
    assert np.array_equal(conv.decode_png(file, layout="CHW"), planes)


def test_layout_hw(noise):
    images = noise((3, 9, 14))
    files = conv.encode_png(images, layout="HW")
    assert len(files) == 3
    assert np.array_equal(conv.decode_png(files, layout="HW", batch=True), images)
    assert np.array_equal(conv.decode_png(files[1], layout="HW"), images[1])


def test_probe_says_what_decode_gives():
    for sample in SAMPLES:
        file = sample.read_bytes()
        info, image = conv.probe_png(file), conv.decode_png(file)
        assert (info.height, info.width) == image.shape[:2], sample
        assert info.channels == (image.shape[2] if image.ndim == 3 else 1)
        assert info.dtype == image.dtype.name
        assert info.has_alpha == (info.channels in (2, 4))
        assert info.interlaced == ("interlaced" in sample.name)


def test_channels_and_types_are_converted(noise):
    gray, deep = noise((6, 7)), noise((6, 7, 3), np.uint16)
    file = conv.encode_png(gray)
    assert np.array_equal(conv.decode_png(file, channels=3), np.repeat(gray[..., None], 3, 2))
    assert conv.decode_image(tiff.make(np.float32([[[0.5]]])), channels=2).tolist() == [[[0.5, 1]]]  # was undefined
    rgba = conv.decode_png(file, channels=4)
    assert np.array_equal(rgba[..., 0], gray) and (rgba[..., 3] == 255).all()
    assert np.array_equal(conv.decode_png(file, dtype="uint16"), gray.astype(np.uint16) * 257)
    file = conv.encode_png(deep)
    assert np.array_equal(conv.decode_png(file, dtype=np.uint8), np.floor(deep / 257 + 0.5).astype(np.uint8))
    with pytest.raises(conv.PngError) as error:
        conv.decode_png(file, channels=1)
    assert error.value.code == "unsupported"


def test_batches_and_lists(noise):
    images = noise((5, 20, 30, 3))
    files = conv.encode_png(images)
    assert files == conv.encode_png(list(images)) == [conv.encode_png(image) for image in images]
    assert all(type(file) is bytes for file in files)
    batch = conv.decode_png(files, batch=True)
    assert batch.shape == images.shape and np.array_equal(batch, images)
    planes = conv.decode_png(tuple(files), batch=True, layout="CHW")
    assert planes.shape == (5, 3, 20, 30) and np.array_equal(planes, chw(images))
    for decoded, image in zip(conv.decode_png(iter(files)), images):
        assert np.array_equal(decoded, image)
    assert conv.decode_png([]) == [] and conv.encode_png([]) == []


def test_a_batch_of_gray_images_has_channels(noise):
    images = noise((2, 8, 9))
    files = [conv.encode_png(image) for image in images]
    assert conv.decode_png(files, batch=True).shape == (2, 8, 9, 1)
    assert conv.decode_png(files, batch=True, layout="CHW").shape == (2, 1, 8, 9)


def test_a_batch_has_one_shape(noise):
    files = [conv.encode_png(noise((8, 9, 3))), conv.encode_png(noise((9, 8, 3)))]
    with pytest.raises(conv.PngError) as error:
        conv.decode_png(files, batch=True)
    assert error.value.index == 1 and error.value.code == "usage"
    assert "9" in error.value.reason


def test_files_of_every_kind_of_object(tmp_path, noise):
    image = noise((30, 40, 3))
    file = conv.encode_png(image)
    path = tmp_path / "a.png"
    path.write_bytes(file)
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        same = [file, bytearray(file), memoryview(file), np.frombuffer(file, np.uint8), mapped, path, str(path)]
        for decoded in conv.decode_png(same):
            assert np.array_equal(decoded, image)
        del same
    assert np.array_equal(conv.decode_png(path), image)
    (view,) = conv.encode_png([image], views=True)
    assert type(view) is memoryview and bytes(view) == file
    assert np.array_equal(conv.decode_png(view), image)


def test_results_live_as_long_as_needed(noise):
    images = noise((40, 64, 64, 3))
    files = conv.encode_png(images, views=True)
    decoded = conv.decode_png(files)
    part = decoded[7][3:]
    del decoded[7]
    again = conv.decode_png(files)  # reuses memory, but none that is still referenced
    assert np.array_equal(part, images[7][3:])
    assert all(np.array_equal(a, b) for a, b in zip(again, images))
    assert not np.shares_memory(part, again[7])


def test_results_can_be_written_to(noise):
    decoded = conv.decode_png(conv.encode_png(noise((3, 4))))
    decoded += 1
    assert decoded.flags.writeable and decoded.flags.c_contiguous and decoded.flags.aligned


def test_out(noise):
    images = noise((3, 12, 13, 3))
    files = conv.encode_png(images)
    batch = np.zeros_like(images)
    assert conv.decode_png(files, batch=True, out=batch) is batch
    assert np.array_equal(batch, images)
    wide = np.zeros((3, 12, 20, 3), np.uint8)
    outs = [wide[i, :, 5:18] for i in range(3)]
    results = conv.decode_png(files, out=outs)
    assert all(a is b for a, b in zip(results, outs))
    assert np.array_equal(wide[:, :, 5:18], images)
    assert not wide[:, :, :5].any() and not wide[:, :, 18:].any()


def test_out_that_does_not_fit(noise):
    file = conv.encode_png(noise((12, 13, 3)))
    for bad in (np.zeros((12, 13, 4), np.uint8), np.zeros((13, 12, 3), np.uint8),
                np.zeros((12, 13, 3), np.uint16)):
        with pytest.raises(conv.PngError, match="shape"):
            conv.decode_png(file, out=bad)
    constant = np.zeros((12, 13, 3), np.uint8)
    constant.flags.writeable = False
    with pytest.raises(BufferError):
        conv.decode_png(file, out=constant)
    with pytest.raises(BufferError):
        conv.decode_png(file, out=np.zeros((12, 13, 3), np.uint8)[:, ::-1])
    with pytest.raises(ValueError):
        conv.decode_png([file], out=np.zeros((12, 13, 3), np.uint8))
