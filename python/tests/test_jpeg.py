# SPDX-License-Identifier: MIT
"""decode_jpeg, decode_image and encode_jpeg on the CPU, against OpenCV and torch where they are."""

import numpy as np
import pytest

import conv

EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0%c\0\0\0\0\0\0"


@pytest.fixture
def photo():
    """A smooth image, of which JPEG loses little."""
    y, x = np.mgrid[:60, :90]
    return np.stack([x * 2 + y, 255 - x - y, 40 + y * 3], 2).astype(np.uint8)


def turned(file, orientation):
    exif = EXIF % orientation
    return file[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + file[2:]


@pytest.mark.parametrize("options", ({}, {"quality": 75}, {"sampling": "4:2:0"}, {"progressive": True}, {"optimize": True}))
def test_what_is_encoded_is_decoded(photo, options):
    file = conv.encode_jpeg(photo, **options)
    assert file == conv.encode_jpeg(np.moveaxis(photo, 2, 0), layout="CHW", **options)
    decoded = conv.decode_jpeg(file)
    assert decoded.shape == photo.shape and decoded.dtype == np.uint8
    assert np.abs(decoded.astype(int) - photo).mean() < 3
    assert np.array_equal(conv.decode_image(file, layout="CHW"), np.moveaxis(decoded, 2, 0))
    assert np.array_equal(conv.decode_jpeg(file, channels=4), np.dstack([decoded, np.full((60, 90), 255, np.uint8)]))
    assert np.array_equal(conv.decode_jpeg(file, dtype=np.uint16), decoded.astype(np.uint16) * 257)
    cv2 = pytest.importorskip("cv2")
    assert np.array_equal(decoded, cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)[..., ::-1])


def test_gray_and_orientation(photo):
    file = conv.encode_jpeg(photo)
    gray = conv.decode_jpeg(file, channels="gray")
    luminance = conv.decode_jpeg(file) @ (0.299, 0.587, 0.114)
    assert gray.shape == (60, 90) and np.abs(gray - luminance).max() < 2
    for options in ({}, {"channels": "gray"}):  # 6 is turned by 90 degrees; the others: tests/unit/test_api_jpeg.c
        assert np.array_equal(conv.decode_image(turned(file, 6), auto_orient=True, **options), np.rot90(conv.decode_image(file, **options), -1))
        assert np.array_equal(conv.decode_jpeg(turned(file, 6), **options), conv.decode_jpeg(file, **options))
    assert np.array_equal(conv.decode_png(conv.encode_png(photo), channels="gray"),
                          np.rint(photo.astype(int) @ (299, 587, 114) / 1000))
    small = conv.encode_jpeg(gray)
    assert conv.decode_image(small).shape == (60, 90)
    assert np.array_equal(conv.decode_image(small, channels="rgb"), np.repeat(conv.decode_image(small)[..., None], 3, 2))


def test_batches_out_and_damage(photo):
    files = [conv.encode_jpeg(np.roll(photo, i, 0)) for i in range(4)]
    assert files == conv.encode_jpeg(np.stack([np.roll(photo, i, 0) for i in range(4)]))
    batch = conv.decode_jpeg(files, batch=True)
    assert batch.shape == (4, 60, 90, 3)
    out = np.zeros_like(batch)
    assert conv.decode_jpeg(files, batch=True, out=out) is out and np.array_equal(out, batch)
    files[2] = files[2][:-100]
    some, errors = conv.decode_jpeg(files, batch=True, errors="return")
    assert [error is not None for error in errors] == [False, False, True, False]
    assert type(errors[2]) is conv.JpegError and errors[2].index == 2 and "truncated" in errors[2].reason
    assert np.array_equal(some[3], batch[3]) and not some[2].any()
    (view,) = conv.encode_jpeg([photo], views=True)
    assert type(view) is memoryview and np.array_equal(conv.decode_image(view), batch[0])


def test_tensors(photo):
    torch = pytest.importorskip("torch")
    file = conv.encode_jpeg(torch.from_numpy(photo))
    data = torch.frombuffer(bytearray(file), dtype=torch.uint8)  # as torchvision.io.read_file returns it
    single, first, second = conv.decode_jpeg(data, framework="torch"), *conv.decode_image([data, file], framework="torch")
    assert torch.equal(single, first) and torch.equal(first, second)
    spread = torch.zeros(2 * len(file), dtype=torch.uint8)
    spread[::2] = data
    assert np.array_equal(conv.decode_jpeg(spread[::2]), single.numpy())
    with pytest.raises(TypeError, match="one axis"):
        conv.decode_jpeg(data[None])
