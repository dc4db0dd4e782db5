# SPDX-License-Identifier: MIT
"""Wrong arguments and damaged files raise the documented exceptions, and later calls work."""

import io

import numpy as np
import pytest

import conv

IMAGE = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
FLOATS = np.zeros((2, 3, 9, 8), np.float32)
WEIGHTS = np.zeros((4, 3, 3, 3), np.float32)
EMBOSS = [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
FILE = conv.encode_png(IMAGE)
DAMAGED = {
    "empty": b"",
    "other": b"GIF89a" + bytes(100),
    "short": FILE[: len(FILE) // 2],
    "flipped": FILE[:60] + bytes([FILE[60] ^ 255]) + FILE[61:],
    "zeros": FILE[:33] + bytes(len(FILE) - 33),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files(kind):
    with pytest.raises(conv.PngError) as error:
        conv.decode_png([FILE, DAMAGED[kind], FILE])
    assert error.value.index == 1 and error.value.reason and error.value.code == "format"
    assert str(error.value) == f"item 1: {error.value.reason}"
    assert isinstance(error.value, ValueError)
    assert np.array_equal(conv.decode_png(FILE), IMAGE)


def test_errors_are_returned():
    files = [FILE, *DAMAGED.values(), FILE]
    results = conv.decode_png(files, errors="return")
    assert np.array_equal(results[0], IMAGE) and np.array_equal(results[-1], IMAGE)
    for i, result in enumerate(results[1:-1], 1):
        assert isinstance(result, conv.PngError) and result.index == i
    batch, errors = conv.decode_png(files, errors="return", batch=True)
    assert batch.shape == (len(files), *IMAGE.shape)
    assert errors[0] is None and errors[-1] is None
    assert [error.index for error in errors[1:-1]] == list(range(1, len(files) - 1))
    assert np.array_equal(batch[0], IMAGE) and np.array_equal(batch[-1], IMAGE)
    assert not batch[1:-1].any()
    assert isinstance(conv.decode_png(b"", errors="return"), conv.PngError)


def test_files_of_another_format(tmp_path):
    """1.0.0 said that conv reads PNG only, and to use another program."""
    jpeg = conv.encode_jpeg(IMAGE)
    for data, call, error in ((jpeg, conv.decode_png, conv.PngError), (jpeg, conv.probe_png, conv.PngError),
                              (FILE, conv.decode_jpeg, conv.JpegError), (b"GIF89a..", conv.decode_image, conv.ImageError)):
        for form in (lambda data: data, lambda data: [FILE, data]):
            if call is conv.decode_png or form(data) is data:
                with pytest.raises(error, match="a (JPEG, not a PNG|PNG, not a JPEG|GIF; conv reads)"):
                    call(form(data))
    mixed = conv.decode_image([FILE, jpeg[:-9], FILE[:50], jpeg, b"what"], errors="return")
    assert [type(result) for result in mixed] == [np.ndarray, conv.JpegError, conv.PngError, np.ndarray, conv.ImageError]
    assert issubclass(conv.JpegError, conv.ImageError) and issubclass(conv.PngError, conv.ImageError)
    assert [mixed[i].index for i in (1, 2, 4)] == [1, 2, 4] and mixed[1].code == "format"
    with pytest.raises(FileNotFoundError):
        conv.decode_image([FILE, tmp_path / "no.jpg"], errors="return")


@pytest.mark.parametrize("layout, shape", (("HWC", (2, 0, 0, 1)), ("CHW", (2, 1, 0, 0)), ("HW", (2, 0, 0))))
def test_a_batch_in_which_all_files_fail(layout, shape):
    """No file says how large the array is. 1.0.0 raised, and the reasons were lost."""
    batch, errors = conv.decode_png([b"", b"junk"], errors="return", batch=True, layout=layout)
    assert batch.shape == shape and batch.dtype == np.uint8
    assert [error.index for error in errors] == [0, 1] and all(error.reason for error in errors)
    out = np.full((2, 5, 4), 9, np.uint8)
    same, errors = conv.decode_png([b"", b"junk"], errors="return", batch=True, layout="HW", out=out)
    assert same is out and not out.any() and len(errors) == 2
    for files, said in (([b"", b"junk"], "item 0"), ([conv.encode_png(image) for image in (out[0], out[0, 1:])], "item 1.* not those of the batch")):
        with pytest.raises(conv.PngError, match=said):
            conv.decode_png(files, batch=True, layout=layout)


def test_max_pixels():
    conv.configure(max_pixels=47)
    try:
        for options in ({}, {"batch": True}, {"out": [np.empty_like(IMAGE)]}):
            with pytest.raises(conv.PngError) as error:
                conv.decode_png([FILE], **options)
            assert error.value.code == "limit"
        conv.configure(max_pixels=48)
        assert np.array_equal(conv.decode_png(FILE), IMAGE)
    finally:
        conv.configure(max_pixels=0)


# What the library refuses by itself, tests/unit/test_api_*.c show.
WRONG = [
    (OSError, lambda: conv.decode_png("photo.png")),
    (TypeError, lambda: conv.encode_jpeg(IMAGE.astype(np.uint16))),
    (TypeError, lambda: conv.encode_jpeg(IMAGE, quality=None)),
    (ValueError, lambda: conv.encode_jpeg(IMAGE, sampling="4:1:1")),
    (conv.JpegError, lambda: conv.encode_jpeg(np.zeros((2, 2, 4), np.uint8))),
    (TypeError, lambda: conv.decode_png(io.BytesIO(FILE))),
    (TypeError, lambda: conv.decode_png([FILE, 3])),
    (TypeError, lambda: conv.decode_png(FILE, unknown=1)),
    (TypeError, lambda: conv.decode_png(FILE, "cpu")),
    (ValueError, lambda: conv.decode_png(FILE, device="gpu")),
    (ValueError, lambda: conv.decode_png(FILE, device="cuda:x")),
    (ValueError, lambda: conv.decode_png(FILE, device="cuda:99999999999999999999")),
    (ValueError, lambda: conv.decode_png(FILE, device=-1)),
    (ValueError, lambda: conv.decode_png(FILE, device=True)),
    (ValueError, lambda: conv.decode_png(FILE, layout="NHCW")),
    (TypeError, lambda: conv.decode_png(FILE, layout=None)),
    (ValueError, lambda: conv.decode_png(FILE, channels=5)),
    (ValueError, lambda: conv.decode_png(FILE, channels=0)),
    (ValueError, lambda: conv.decode_png(FILE, channels="3")),
    (ValueError, lambda: conv.decode_png(FILE, dtype="float32")),
    (ValueError, lambda: conv.decode_png(FILE, errors="ignore")),
    (ValueError, lambda: conv.decode_png(FILE, framework="tensorflow")),
    (ValueError, lambda: conv.decode_png(FILE, framework="numpy", out=IMAGE)),
    (ValueError, lambda: conv.decode_png(FILE, batch=True)),
    (ValueError, lambda: conv.decode_png([], batch=True)),
    (TypeError, lambda: conv.decode_png(FILE, stream="fast")),
    (ValueError, lambda: conv.decode_png(FILE, stream=-1)),
    (ValueError, lambda: conv.decode_png(FILE, stream=2**70)),
    (TypeError, lambda: conv.probe_png([FILE])),
    (conv.PngError, lambda: conv.probe_png(b"")),
    (TypeError, lambda: conv.encode_png(None)),
    (TypeError, lambda: conv.encode_png([IMAGE, "x"])),
    (TypeError, lambda: conv.encode_png(IMAGE.astype(np.float32))),
    (TypeError, lambda: conv.encode_png(IMAGE.astype(np.int16))),
    (TypeError, lambda: conv.encode_png(IMAGE > 4)),
    (TypeError, lambda: conv.encode_png(IMAGE.astype(">u2"))),
    (TypeError, lambda: conv.encode_png(np.array([object()]))),
    (ValueError, lambda: conv.encode_png(np.uint8(3))),
    (ValueError, lambda: conv.encode_png(IMAGE[0, :, 0])),
    (ValueError, lambda: conv.encode_png(IMAGE[None, None, None])),
    (ValueError, lambda: conv.encode_png(IMAGE[:0])),
    (ValueError, lambda: conv.encode_png(IMAGE[:, :0])),
    (ValueError, lambda: conv.encode_png(IMAGE[..., :0])),
    (ValueError, lambda: conv.encode_png(IMAGE.transpose(2, 0, 1))),
    (ValueError, lambda: conv.encode_png(IMAGE, layout="CHW")),
    (ValueError, lambda: conv.encode_png([IMAGE[None]] * 2 + [np.stack([IMAGE] * 2)])),
    (ValueError, lambda: conv.filter(IMAGE, "no-such-filter")),
    (OSError, lambda: conv.filter(IMAGE, "/no/such/file.mat")),
    (ValueError, lambda: conv.filter(IMAGE, "blur", dtype="uint16")),
    (ValueError, lambda: conv.filter(IMAGE, [1, 2, 3])),
    (ValueError, lambda: conv.filter(IMAGE, [])),
    (TypeError, lambda: conv.filter(IMAGE, [["a"]])),
    (TypeError, lambda: conv.filter(IMAGE, [["1"]])),
    (ValueError, lambda: conv.filter(IMAGE, ["gaussian5", ""])),
    (TypeError, lambda: conv.filter(IMAGE, ["gaussian5", 3])),
    (TypeError, lambda: conv.filter(IMAGE, np.eye(3) * 1j)),  # 1.0.0: without the imaginary part
    (TypeError, lambda: conv.filter(IMAGE, np.eye(3, dtype=object))),
    (TypeError, lambda: conv.filter(IMAGE, np.zeros((3, 3), "M8[s]"))),
    (TypeError, lambda: conv.Filter(np.eye(3, dtype="c8"))),
    (ValueError, lambda: conv.filter(IMAGE, conv.Filter("blur"), border="wrap")),
    (TypeError, lambda: conv.filter(IMAGE.astype(np.float64), "blur")),
    (ValueError, lambda: conv.filter(IMAGE, "blur", out=np.empty((6, 8), np.uint8))),
    (ValueError, lambda: conv.filter(IMAGE, "blur", out=np.empty(IMAGE.shape, np.uint16))),
    (ValueError, lambda: conv.filter([IMAGE], "blur", out=IMAGE)),
    (BufferError, lambda: conv.filter(IMAGE, "blur", out=np.empty_like(IMAGE)[::-1])),
    (BufferError, lambda: conv.filter(IMAGE, "blur", out=memoryview(IMAGE.tobytes()).cast("B", IMAGE.shape))),
    (TypeError, lambda: conv.filter(IMAGE, EMBOSS, divisor=[])),
    (TypeError, lambda: conv.encode_png(IMAGE, level="best")),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS[:, :2])),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS[0])),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS.astype(np.float64) + 1e300)),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, np.zeros(7))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, stride=0)),
    (ValueError, lambda: conv.layer(FLOATS[0, 0], WEIGHTS)),
    (TypeError, lambda: conv.layer(FLOATS.astype(np.float64), WEIGHTS)),
    (TypeError, lambda: conv.layer(FLOATS, WEIGHTS.astype("S3"))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, out=np.empty((2, 4, 5, 5), np.float32))),
    (TypeError, lambda: conv.Layer(WEIGHTS)(FLOATS.astype(np.uint8))),
    (TypeError, lambda: conv.Filter()),
    (TypeError, lambda: conv.Array()),
    (ValueError, lambda: conv.configure(threads=-1)),
    (TypeError, lambda: conv.configure(threads=1.5)),
    (ValueError, lambda: conv.configure(max_pixels=-1)),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, stride=(2, 2, 2))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, stride=(2, 0))),
    (TypeError, lambda: conv.layer(FLOATS, WEIGHTS, dilation="2")),
    (TypeError, lambda: conv.layer(FLOATS, WEIGHTS, dilation=(1.5, 2))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, groups=2)),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, groups=0)),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, padding=(1, 2, 3, 4))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS, padding=(1, -1))),
    (TypeError, lambda: conv.layer(FLOATS, WEIGHTS, padding=((1, 2, 3), 1))),
    (ValueError, lambda: conv.layer(FLOATS, WEIGHTS[:, :, 0])),
    (TypeError, lambda: conv.Filter(None)),
    (TypeError, lambda: conv.Filter.__new__(conv.Filter).__setstate__((None,) * 10)),
    (ValueError, lambda: conv.Layer.__new__(conv.Layer).__setstate__(())),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments(number):
    expected, call = WRONG[number]
    before = IMAGE.copy()
    with pytest.raises(expected) as error:
        call()
    assert str(error.value)
    assert np.array_equal(IMAGE, before)


def test_messages_say_what_to_pass():
    class Picture:  # as Pillow's
        __array_interface__ = IMAGE.__array_interface__

    with pytest.raises(TypeError, match="asarray"):
        conv.filter(Picture(), "blur")


@pytest.mark.parametrize("text", ("\ud800", "HWC\0", "emboss\0", "x" + "é" * 300))
def test_text_of_every_kind(text, tmp_path):
    """Half of a surrogate pair crashed the process, what follows a null character was ignored, and a message that was
    cut within a character could not be decoded."""
    for call in (lambda: conv.filter(IMAGE, text), lambda: conv.filter(IMAGE, "emboss", layout=text),
                 lambda: conv.filter(IMAGE, "emboss", border=text), lambda: conv.filter(IMAGE, "emboss", device=text),
                 lambda: conv.Filter("emboss", bias=text), lambda: conv.decode_png(FILE, dtype=text),
                 lambda: conv.decode_png(FILE, errors=text), lambda: conv.encode_png(IMAGE, errors=text),
                 lambda: conv.layer(FLOATS, WEIGHTS, padding=text), lambda: conv.bank(text),
                 lambda: conv.filter_folder(tmp_path, tmp_path / "out", text),
                 lambda: conv.filter_folder(tmp_path, tmp_path / "out", "emboss", device=text)):
        with pytest.raises(ValueError) as raised:
            call()
        assert not isinstance(raised.value, UnicodeDecodeError)


def test_integers_of_numpy():
    assert conv.encode_png(IMAGE, level=np.int64(9)) == conv.encode_png(IMAGE, level=9)
    assert conv.decode_png(FILE, channels=np.uint8(4)).shape == (6, 8, 4)
    conv.Layer(WEIGHTS, stride=np.int32(2))
