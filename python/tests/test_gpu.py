# SPDX-License-Identifier: MIT
"""CUDA devices: the same results as on the CPU, and arrays of torch (also in test_arrays.py) and cupy in both directions."""

import numpy as np
import pytest
from conftest import every_shape
from test_jpeg import photo, turned  # noqa: F401 (a fixture)

import conv

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return module


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def test_devices():
    assert conv.devices()[0].device == "cpu"
    device = conv.devices()[1]
    assert device.device == "cuda:0" and device.memory > 2**30 and device.name


@every_shape
def test_decode(noise, shape, dtype):
    image = noise(shape, dtype)
    (decoded,) = conv.decode_png([conv.encode_png(image)], device="cuda")
    assert type(decoded) is conv.Array and decoded.device == "cuda:0"
    assert decoded.shape == shape and decoded.dtype == dtype and len(decoded) == shape[0]
    assert decoded.nbytes == image.nbytes and decoded.strides == image.strides
    assert np.array_equal(decoded.numpy(), image)
    assert np.array_equal(decoded[0].numpy(), image[0])


@every_shape
def test_filters(noise, shape, dtype):
    image = noise(shape, dtype)
    decoded = conv.decode_png(conv.encode_png(image), device="cuda")
    wanted = conv.filter(image, "emboss")
    result = conv.filter(decoded, "emboss")
    assert type(result) is conv.Array and result.shape == shape
    assert np.array_equal(result.numpy(), wanted)
    assert np.array_equal(conv.filter(image, "emboss", device="cuda"), wanted)
    floats = conv.filter(decoded, "emboss", dtype="float32")
    assert np.array_equal(floats.numpy(), conv.filter(image, "emboss", dtype="float32"))


@every_shape
def test_encode(noise, shape, dtype):
    image = noise(shape, dtype)
    on_device = conv.filter(conv.decode_png(conv.encode_png(image), device="cuda"), "identity")
    for options in ({}, {"views": True}):
        assert np.array_equal(conv.decode_png(conv.encode_png(on_device, **options)), image)
    assert np.array_equal(conv.decode_png(conv.encode_png(image, device="cuda")), image)


def test_batches(noise):
    images = noise((9, 40, 52, 3))
    files = conv.encode_png(images) + [b"damaged"]
    batch, errors = conv.decode_png(files, device="cuda", batch=True, errors="return")
    assert batch.shape == (10, 40, 52, 3) and errors[9].index == 9
    assert np.array_equal(batch.numpy()[:9], images) and not batch.numpy()[9].any()
    with pytest.raises(conv.PngError):
        conv.decode_png(files, device="cuda")
    planes = conv.decode_png(files[:9], device="cuda", batch=True, layout="CHW")
    result = conv.filter(planes, "emboss", layout="CHW")
    assert np.array_equal(np.moveaxis(result.numpy(), 1, -1), conv.filter(images, "emboss"))
    assert np.array_equal(
        conv.decode_png(conv.encode_png(result, layout="CHW"), batch=True), conv.filter(images, "emboss")
    )
    mixed = [batch[0], conv.decode_png(files[1], device="cuda"), planes[0]]
    outs = [array.numpy() for array in conv.filter(mixed[:2], "blur")]
    assert np.array_equal(outs[1], conv.filter(images[1], "blur"))


KINDS_OF_JPEG = ({}, {"quality": 60}, {"sampling": "4:2:2"}, {"quality": 100, "sampling": "4:2:0"}, {"optimize": True}, {"progressive": True})


@pytest.fixture
def jpegs(photo):
    large = np.tile(photo, (5, 4, 1))  # few small files are decoded by the CPU
    files = [conv.encode_jpeg(np.roll(large, i, 1)[:-3, :-1], **options) for i, options in enumerate(KINDS_OF_JPEG)]
    return (files + [turned(files[3], i) for i in range(2, 9)]) * 10


@pytest.mark.parametrize("options", ({}, {"channels": "gray"}, {"channels": 4}, {"dtype": np.uint16}, {"layout": "CHW"},
                                     {"auto_orient": True}, {"auto_orient": True, "channels": "gray"}))
def test_decode_jpeg(photo, jpegs, options):
    jpegs[-1] = conv.encode_jpeg(photo[..., 0])
    for decode in conv.decode_jpeg, conv.decode_image:
        arrays = decode(jpegs, device="cuda", **options)
        for i, (array, wanted) in enumerate(zip(arrays, conv.decode_jpeg(jpegs, **options), strict=True)):
            assert np.array_equal(array.numpy(), wanted), i


def test_jpeg_batches(torch, jpegs):
    wanted = torch.from_numpy(conv.decode_jpeg(jpegs, batch=True))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = torch.zeros_like(wanted, device="cuda")
        assert conv.decode_jpeg(jpegs, device="cuda", batch=True, out=out, stream=stream) is out
        late = out.clone()
    stream.synchronize()
    assert torch.equal(late.cpu(), wanted)
    damaged = jpegs[:7] + [jpegs[7][:-100], jpegs[8][:300] + b"\xff\xd9", b"no JPEG"] + jpegs[10:]
    some, errors = conv.decode_jpeg(damaged, device="cuda", framework="torch", batch=True, errors="return")
    assert [(error.index, error.reason) for error in errors if error] == \
        [(error.index, error.reason) for error in conv.decode_jpeg(damaged, batch=True, errors="return")[1] if error]
    assert [i for i, error in enumerate(errors) if error] == [7, 8, 9] and not some[7:10].any()
    assert torch.equal(some[10:].cpu(), wanted[10:]) and torch.equal(some[:7].cpu(), wanted[:7])


@pytest.mark.parametrize("options", KINDS_OF_JPEG)
def test_encode_jpeg(photo, torch, options):
    on_device = torch.from_numpy(photo).cuda()
    wanted = conv.encode_jpeg(photo, **options)
    assert conv.encode_jpeg([on_device] * 30, **options) == [wanted] * 30
    assert conv.encode_jpeg(on_device.permute(2, 0, 1), layout="CHW", **options) == wanted
    assert conv.encode_jpeg(photo, device="cuda", **options) == wanted
    assert conv.encode_jpeg(on_device[..., 0], **options) == conv.encode_jpeg(photo[..., 0], **options)


def test_layers(rng):
    x = rng.standard_normal((2, 16, 30, 33), dtype=np.float32)
    w = rng.standard_normal((8, 16, 3, 3), dtype=np.float32)
    wanted = conv.layer(x, w, padding="same", activation="relu")
    assert np.array_equal(conv.layer(x, w, padding="same", activation="relu", device="cuda"), wanted)


def test_torch_views_arrays_without_a_copy(torch, noise):
    image = noise((64, 80, 3))
    array = conv.decode_png(conv.encode_png(image), device="cuda")
    address = array.__cuda_array_interface__["data"][0]
    for tensor in (torch.from_dlpack(array), torch.as_tensor(array, device="cuda")):
        assert tensor.data_ptr() == address and np.array_equal(tensor.cpu().numpy(), image)
    del array
    again = conv.decode_png(conv.encode_png(image), device="cuda")  # not in the same memory
    assert again.__cuda_array_interface__["data"][0] != address
    del tensor


def test_torch_streams(torch, noise):
    """On a separate stream, after much other work, results are right, and no call waits."""
    image = torch.from_numpy(noise((2048, 2048, 3))).cuda()
    wanted = conv.filter(image, "gaussian5")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    busy = torch.randn(8192, 8192, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(10):
            busy = busy @ busy * 1e-4
        late = image.clone()
        result = conv.filter(late, "gaussian5")
        waited = stream.query()
        same = torch.equal(result, wanted)
    assert same and not waited
    array = conv.decode_png(conv.encode_png(image), device="cuda")
    queued = conv.filter(array, "gaussian5", stream=stream)
    assert torch.equal(torch.from_dlpack(queued), wanted)  # ordered by DLPack
    assert np.array_equal(queued.numpy(), wanted.cpu().numpy())


@pytest.mark.parametrize("layout", ("planar", "channels last", "gaps"))
@pytest.mark.parametrize("precision, dtype, error", (("fast", "float32", 2**-14), ("tf32", "float32", 2**-9), ("fp16", "float16", 2**-9),
                                                     ("fp16", "float32", 2**-9), ("bf16", "bfloat16", 3 * 2**-8)))
def test_torch_layers_of_less_precision(torch, rng, precision, dtype, error, layout):
    import conv.torch

    x, w, b = (torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).cuda() for shape in ((4, 32, 30, 36), (48, 16, 3, 3), (48,)))
    x = x.to(getattr(torch, dtype))
    x = {"planar": x, "channels last": x.to(memory_format=torch.channels_last), "gaps": x[..., 4:]}[layout]
    how = {"stride": 2, "padding": 1, "groups": 2}
    reference = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), **how)
    scale = torch.nn.functional.conv2d(x.double().abs(), w.double().abs(), b.double().abs(), **how)
    y = conv.torch.conv2d(x, w, b, **how, precision=precision)
    rounding = {"float32": 0, "float16": 2**-11, "bfloat16": 2**-8}[dtype] * reference.abs()
    assert y.dtype == x.dtype and ((y.double() - reference).abs() <= 1.1 * error * scale + rounding).all()
    assert layout != "channels last" or y.is_contiguous(memory_format=torch.channels_last)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = conv.torch.conv2d(x, w, b, **how, precision=precision)
    graph.replay()
    assert torch.equal(again, y)


def test_cupy(cupy, noise):
    image = noise((64, 80, 3))
    array = cupy.asarray(image)
    result = conv.filter(array, "emboss")
    assert type(result) is cupy.ndarray
    assert np.array_equal(cupy.asnumpy(result), conv.filter(image, "emboss"))
    assert np.array_equal(cupy.asnumpy(conv.filter(array[::-1], "emboss")), conv.filter(image[::-1], "emboss"))
    decoded = conv.decode_png(conv.encode_png(array), device="cuda")
    view = cupy.asarray(decoded)
    assert view.data.ptr == decoded.__cuda_array_interface__["data"][0]
    assert np.array_equal(cupy.asnumpy(view), image)
    with cupy.cuda.Stream(non_blocking=True):
        queued = conv.filter(cupy.asarray(image), "emboss")
        assert np.array_equal(cupy.asnumpy(queued), conv.filter(image, "emboss"))


def test_contexts_of_destroyed_streams_are_dropped(cupy, noise):
    image = cupy.asarray(noise((2048, 2048, 3)))  # interleaved: each context has 24 MiB of scratch memory
    wanted = conv.filter(image, "blur")
    cupy.cuda.Device().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    before = cupy.cuda.runtime.memGetInfo()[0]
    streams = []
    own = conv.Filter("blur")
    for _ in range(200):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            result = conv.filter(image, own)
            stream.synchronize()
            streams.append(stream)  # handles are not used again
        if len(streams) > 100:
            streams.pop(0)
    assert (result == wanted).all()
    streams.clear()
    del result, own  # no stream is left of those that it was prepared for
    cupy.get_default_memory_pool().free_all_blocks()
    assert before - cupy.cuda.runtime.memGetInfo()[0] < 90 * (32 << 20) + (1 << 30)


def test_errors(noise):
    array = conv.decode_png(conv.encode_png(noise((6, 7, 3))), device="cuda")
    for expected, call in (
        (TypeError, lambda: np.asarray(array)),
        (BufferError, lambda: memoryview(array)),
        (IndexError, lambda: array[6]),
        (ValueError, lambda: conv.filter(array, "blur", device="cpu")),
        (ValueError, lambda: conv.filter(array, "blur", out=noise((6, 7, 3)))),
        (ValueError, lambda: conv.filter([array, noise((6, 7, 3))], "blur")),
        (ValueError, lambda: conv.filter(array, "blur", out=array)),
        (ValueError, lambda: array.__dlpack__(stream=0)),
        (BufferError, lambda: array.__dlpack__(dl_device=(2, 9))),
        (BufferError, lambda: array.__dlpack__(copy=True)),
        (conv.DeviceError, lambda: conv.decode_png(b"", device="cuda:99")),
        (ValueError, lambda: conv.decode_png(conv.encode_png(array), device="cuda", framework="numpy")),
    ):
        with pytest.raises(expected):
            call()
    assert np.array_equal(np.from_dlpack(array, device="cpu"), array.numpy()) \
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else True


def test_nothing_leaks(torch, noise):
    images = noise((16, 512, 512, 3))
    files = conv.encode_png(images)

    def rounds(count):
        for _ in range(count):
            tensor = torch.from_dlpack(conv.filter(conv.decode_png(files, device="cuda", batch=True), "emboss"))
            conv.encode_png(tensor)
            conv.Filter([[2]])(tensor)

    rounds(3)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    rounds(40)
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20  # each round takes 50 MiB
