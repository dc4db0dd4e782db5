# SPDX-License-Identifier: MIT
"""`conv layer` on tensors, against the definition in NumPy; damaged files; streams; interrupted runs."""
import itertools
import json
import os
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import layer_definition as definition
import program
from layer_files import channels_of, layer, only, rng_of, same_bits, save, tensor, weights, write_image
from program import until

FLOATS = ("<f4", ">f4", "<f2", ">f2", "<f8", ">f8")
INTEGERS = ("|u1", "<u2", ">u2")


# --- what it computes ---------------------------------------------------------------------------------------------------


def test_the_definition_agrees_with_float64():
    rng = rng_of(3)
    x, w = rng.standard_normal((3, 4, 9, 8)), rng.standard_normal((5, 4, 3, 2))
    bias = rng.standard_normal(5)
    x, w, bias = (a.astype(np.float32) for a in (x, w, bias))
    assert np.allclose(definition.layer(x, w, bias), definition.layer64(x, w, bias), rtol=0, atol=1e-5)


def test_random_layers_have_the_bits_of_the_definition(box):
    rng = rng_of(int(os.environ.get("CONV_SEED", "4")))
    for number in range(60):
        maps, channels, n = rng.integers(1, 7), rng.integers(1, 5), rng.integers(1, 6)
        kh, kw = rng.integers(1, 6, 2)
        stride, dilation = ((int(a), int(b) if number % 3 else int(a)) for a, b in rng.integers(1, 4, (2, 2)))
        groups, reach = int(rng.choice((1, 2, 3))), ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1)
        height, width = reach[0] + rng.integers(0, 20), reach[1] + rng.integers(0, 40)
        padding = rng.choice(["valid", "same", "same_upper", "same_lower", "0", "3", "1x2", "0:1", "2:0x1:3"])
        border = rng.choice(["constant:-1.5", "constant", *definition.BORDERS])
        w = save("w.npy", rng.standard_normal((maps * groups, channels, kh, kw)).astype(np.float32))
        x, bias = tensor(n, channels * groups, height, width, seed=number), rng.standard_normal(maps * groups).astype(np.float32)
        sides = definition.sides_of(padding, (kh, kw), (height, width), stride, dilation)
        if border == "reflect101" and (height <= max(sides) or width <= max(sides)):
            border = "replicate"
        activation = rng.choice(("none", "relu", "abs"))
        output = rng.choice(("f32", "f16"))
        save("b.npy", bias)
        layer("w.npy", "x.npy", "y.npy", f"--stride={stride[0]}x{stride[1]}", f"--padding={padding}", f"--border={border}",
              f"--dilation={dilation[0]}x{dilation[1]}", f"--groups={groups}",
              "--bias=b.npy", f"--jobs={rng.integers(1, 9)}", f"--activation={activation}", f"--output-type={output}")
        name, _, value = border.partition(":")
        expected = definition.layer(x, w, bias, stride, sides, name, float(value or 0), dilation, groups)
        expected = {"none": expected, "relu": np.maximum(expected, 0), "abs": np.abs(expected)}[activation]
        expected = expected.astype(np.float16 if output == "f16" else np.float32)
        assert same_bits(np.load("y.npy"), expected), (number, w.shape, x.shape, stride, padding, border, activation)
    only("w.npy", "x.npy", "b.npy", "y.npy")


def test_a_single_image_stays_single(box):
    w, x = weights(), tensor(3, 11, 13)
    layer("w.npy", "x.npy", "y.npy")
    assert same_bits(np.load("y.npy"), definition.layer(x[None], w)[0])


def test_tensors_of_one_axis(box):
    w, x = save("w.npy", rng_of(7).standard_normal((4, 3, 5)).astype(np.float32)), tensor(6, 6, 40)
    for options, stride, padding, dilation in (((), 1, "valid", 1), (("--stride=2", "--padding=2:1"), 2, "0x2:1", 1),
                                               (("--padding=same_lower", "--stride=3", "--dilation=2"), 3, "same_lower", 2)):
        layer("w.npy", "x.npy", "y.npy", "--groups=2", *options)
        sides = definition.sides_of(padding, (1, 5), (1, 40), stride, dilation)
        expected = definition.layer(x[:, :, None], w[:, :, None], None, stride, sides, dilation=dilation, groups=2)
        assert same_bits(np.load("y.npy"), expected[:, :, 0]), options
    save("x.npy", x[0])
    layer("w.npy", "x.npy", "y.npy", "--groups=2")
    assert np.load("y.npy").shape == (4, 36)


def test_no_images_at_all(box):
    weights()
    tensor(0, 3, 11, 13)
    layer("w.npy", "x.npy", "y.npy")
    assert np.load("y.npy").shape == (0, 5, 9, 10)


@pytest.mark.parametrize("kind", FLOATS + INTEGERS)
def test_types_and_byte_orders(box, kind):
    w, rng = weights(), rng_of(5)
    shape = (3, 3, 7, 9)
    x = rng.standard_normal(shape) * 10 if "f" in kind else rng.integers(0, 256 if kind == "|u1" else 65536, shape)
    x = save("x.npy", x.astype(kind))
    layer("w.npy", "x.npy", "y.npy")
    assert same_bits(np.load("y.npy"), definition.layer(x.astype(np.float32), w))
    if kind in INTEGERS:
        top = np.float32(255 if kind == "|u1" else 65535)
        layer("w.npy", "x.npy", "y.npy", "--range=1")
        assert same_bits(np.load("y.npy"), definition.layer(x.astype(np.float32) / top, w))
        layer("w.npy", "x.npy", "y.npy", "--range=255")
        assert same_bits(np.load("y.npy"), definition.layer(x.astype(np.float32) / (top / np.float32(255)), w))
    else:
        assert "--range scales integers" in layer("w.npy", "x.npy", "y.npy", "--range=1", code=2).err


def test_weights_of_every_type(box):
    w, x = weights(), tensor(2, 3, 7, 9)
    for kind in FLOATS + INTEGERS:
        stored = save("v.npy", (w if "f" in kind else np.abs(w * 50)).astype(kind))
        layer("v.npy", "x.npy", "y.npy")
        assert same_bits(np.load("y.npy"), definition.layer(x, stored.astype(np.float32))), kind


# --- weights ------------------------------------------------------------------------------------------------------------


def save_safetensors(name, tensors):
    """The format, written out: no package needed."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for key, (kind, values) in tensors.items():
        if kind == "BF16":
            values = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
        raw = values.astype({"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}[kind]).tobytes()
        header[key] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def test_safetensors(box):
    w, x = weights(), tensor(2, 3, 7, 9)
    bias = rng_of(6).standard_normal(5).astype(np.float32)
    short = (w.view(np.uint32) & 0xffff0000).view(np.float32)
    save_safetensors("m.safetensors", {"conv1.bias": ("F32", bias), "conv1.weight": ("F32", w), "half": ("F16", w),
                                       "brain": ("BF16", w), "count": ("I64", np.arange(3))})
    layer("m.safetensors:conv1.weight", "x.npy", "y.npy", "--bias=m.safetensors:conv1.bias")
    assert same_bits(np.load("y.npy"), definition.layer(x, w, bias))
    for name, values in (("half", w.astype(np.float16).astype(np.float32)), ("brain", short)):
        layer(f"m.safetensors:{name}", "x.npy", "y.npy")
        assert same_bits(np.load("y.npy"), definition.layer(x, values)), name
    for name, words in (("conv1.wieght", "did you mean 'conv1.weight'"), ("count", "I64"), ("", "which tensor")):
        err = layer(f"m.safetensors:{name}" if name else "m.safetensors", "x.npy", "z.npy", code=2).err
        assert words in err and "m.safetensors" in err, err
    only("w.npy", "x.npy", "y.npy", "m.safetensors")


@pytest.mark.parametrize("typed,words", (
    (("w.npy", "x.npy"), ("missing",)),
    (("w.npy", "four.npy", "y.npy"), ("(2, 4, 7, 9)", "(5, 3, 3, 4)", "(images, 3, height, width)")),
    (("w.npy", "flat.npy", "y.npy"), ("(7, 9)", "(5, 3, 3, 4)", "expected")),
    (("w.npy", "small.npy", "y.npy"), ("(2, 3, 2, 9)", "3 x 4")),
    (("flat.npy", "x.npy", "y.npy"), ("(7, 9)", "(maps, channels, height, width)")),
    (("huge.npy", "x.npy", "y.npy"), ("(1, 1, 64, 1)", "63")),
    (("none.npy", "x.npy", "y.npy"), ("none.npy", "No such file")),
    (("w.npy", "x.npy", "y.npy", "--bias=flat.npy"), ("(7, 9)", "(5,)")),
    (("w.npy", "x.npy", "y.npy", "--padding=some"), ("--padding", "some")),
    (("w.npy", "x.npy", "y.npy", "--padding=1x2:"), ("--padding", "1x2:")),
    (("w.npy", "x.npy", "y.npy", "--stride=0"), ("--stride takes N or HEIGHTxWIDTH, from 1 to 1024", "0")),
    (("w.npy", "x.npy", "y.npy", "--dilation=2x"), ("--dilation", "2x")),
    (("w.npy", "x.npy", "y.npy", "--groups=2"), ("2 groups", "(5, 3, 3, 4)")),
    (("w.npy", "x.npy", "y.npy", "--groups=5"), ("(images, 15, height, width)",)),
    (("line.npy", "x.npy", "y.npy"), ("(images, 3, length)",)),
    (("line.npy", "x.npy", "y.npy", "--padding=1x1"), ("--padding 1x1", "one axis")),
    (("w.npy", "x.npy", "y.npy", "--border=constant:x"), ("--border",)),
    (("w.npy", "x.npy", "y.npy", "--activation=rellu"), ("relu",)),
    (("w.npy", "x.npy", "x.npy"), ("overwrite the input",)),
    (("w.npy", "x.npy", "."), ("folder",)),
    (("w.npy", "x.npy", "-", "--json"), ("--json",)),
    (("w.npy", "x.npy", "y.npy", "--variant=cpu_layer_referense"), ("cpu_layer_reference",)),
))
def test_what_does_not_fit_is_refused(box, typed, words):
    weights()
    tensor(2, 3, 7, 9)
    for name, shape in (("four", (2, 4, 7, 9)), ("flat", (7, 9)), ("small", (2, 3, 2, 9)), ("huge", (1, 1, 64, 1)),
                        ("line", (2, 3, 5))):
        save(f"{name}.npy", np.zeros(shape, np.float32))
    before = sorted(os.listdir("."))
    err = layer(*typed, code=2).err
    assert all(word in err for word in words) and err.count("\n") == 1, err
    assert sorted(os.listdir(".")) == before


# --- damaged files ------------------------------------------------------------------------------------------------------


def npy(header, data=b"", version=(1, 0), length=None):
    text = header.encode()
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", size) + text + data


def header(order=False, shape=(2, 3, 7, 9)):
    return f"{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}\n"


BYTES = 2 * 3 * 7 * 9 * 4
HOSTILE = {  # tests/unit/test_npy.c has more headers
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(99), None), "cut header": (npy(header())[:30], "header"),
    "long header": (npy("", version=(2, 0), length=1 << 31), "header"),
    "huge": (npy(header(shape=(1 << 40, 3, 7, 9))), "cut off"),
    "wide": (npy(header(shape=(1, 3, 1 << 40, 0))), "does not fit"), "short": (npy(header(), bytes(BYTES - 1)), "cut off"),
    "long": (npy(header(), bytes(BYTES + 1)), "bytes"),
    "fortran": (npy(header(order=True), bytes(BYTES)), "np.ascontiguousarray"),
}


@pytest.mark.every
@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_tensors_are_refused_before_memory_is_taken(box, name):
    weights()
    data, words = HOSTILE[name]
    with open("x.npy", "wb") as file:
        file.write(data)
    process = program.start("layer", "w.npy", "x.npy", "y.npy", "--json")
    out, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode in (1, 2) and b"x.npy" in err and err.count(b"\n") <= 2, err
    assert words is None or words in err.decode(), err
    only("w.npy", "x.npy")
    process = program.start("layer", "x.npy", "w.npy", "y.npy")  # as weights
    out, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 2 and b"x.npy" in err and err.count(b"\n") == 1, err
    only("w.npy", "x.npy")


# --- streams ------------------------------------------------------------------------------------------------------------


def test_standard_input_and_output(box):
    w, x = weights(), tensor(30, 3, 7, 9)
    with open("x.npy", "rb") as file:
        data = file.read()
    out = layer("w.npy", "-", "-", stdin=data).out_bytes
    with open("y.npy", "wb") as file:
        file.write(out)
    assert same_bits(np.load("y.npy"), definition.layer(x, w))
    for damaged, words in ((data[:-1], "cut off"), (data + b"x", "after its last element"), (data[:50], "header")):
        assert words in layer("w.npy", "-", "z.npy", stdin=damaged, code=1).err
        only("w.npy", "x.npy", "y.npy")


@pytest.mark.parametrize("filters, values", (("w.npy", 8 * 62 * 62), ("laws:9", 9 * 64 * 64)))
def test_memory_does_not_depend_on_the_number_of_images(box, filters, values):
    weights(8, 1, 3, 3)
    peaks = []
    for count in (50, 100 if program.is_sanitized() else 1600):
        save("x.npy", np.zeros((count, 1, 64, 64), np.float32))
        result = program.measure("layer", "--device=cpu", "--mem-limit=1M", "-j2", filters, "x.npy", "y.npy")
        assert os.path.getsize("y.npy") == 128 + count * values * 4
        peaks.append(result.peak)
    assert program.is_sanitized() or peaks[1] < peaks[0] + (8 << 20), peaks  # the output has about 200 MB
    assert "--mem-limit" in layer("--mem-limit=10K", filters, "x.npy", "z.npy", code=1).err
    only("w.npy", "x.npy", "y.npy")


def slow_input(images=2000):
    """A process that writes the beginning of a tensor and then waits."""
    code = (f"import sys, time, numpy as np\nout = sys.stdout.buffer\n"
            f"np.lib.format.write_array_header_1_0(out, dict(descr='<f4', fortran_order=False, shape=({images}, 3, 7, 9)))\n"
            f"out.write(bytes(100 * 3 * 7 * 9 * 4))\nout.flush()\ntime.sleep(3600)\n")
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_a_signal_leaves_nothing(box, number):
    weights()
    writer = slow_input()
    process = subprocess.Popen([*program.RUNNER, program.BINARY, "layer", "--device=cpu", "w.npy", "-", "y.npy"],
                               stdin=writer.stdout, stderr=subprocess.PIPE)
    try:
        until(lambda: any(name.endswith(".tmp") for name in os.listdir(".")), process)
        process.send_signal(number)
        assert process.wait(program.TIMEOUT) == 128 + number
    finally:
        writer.kill()
        writer.wait()
        process.kill()
        process.communicate()
    only("w.npy")


def test_a_full_disk_is_reported_and_leaves_nothing(box):
    weights()
    tensor(200, 3, 40, 40)
    limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.run([sys.executable, "-c", limit, program.BINARY, "layer", "--device=cpu", "w.npy", "x.npy", "y.npy"],
                             stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 1 and "cannot write" in process.stderr and "too large" in process.stderr
    only("w.npy", "x.npy")
    if os.path.exists("/dev/full"):
        assert "No space" in layer("w.npy", "x.npy", "/dev/full", code=1).err


def test_existing_outputs(box):
    w, x = weights(), tensor(2, 3, 7, 9)
    save("y.npy", np.zeros(3))
    layer("w.npy", "x.npy", "y.npy", "--skip-existing")
    assert np.load("y.npy").shape == (3,)
    layer("w.npy", "x.npy", "y.npy", "--update")
    assert np.load("y.npy").shape == (3,)
    assert "would" in layer("w.npy", "x.npy", "y.npy", "--dry-run").out
    assert np.load("y.npy").shape == (3,)
    os.utime("y.npy", (1, 1))
    layer("w.npy", "x.npy", "y.npy", "--update")
    assert same_bits(np.load("y.npy"), definition.layer(x, w))
    layer("w.npy", "x.npy", "new/folder/y.npy", "--no-save")
    only("w.npy", "x.npy", "y.npy")
    layer("w.npy", "x.npy", "new/folder/y.npy")
    assert same_bits(np.load("new/folder/y.npy"), definition.layer(x, w))


def test_json_of_a_tensor(box):
    weights()
    tensor(2, 3, 7, 9)
    begin, file, summary = layer("w.npy", "x.npy", "y.npy", "--json").records()
    assert (begin["filter"], begin["device"]) == ("w.npy", "cpu")
    assert (file["status"], file["input"], file["output"], file["channels"]) == ("done", "x.npy", "y.npy", 3)
    assert file["bytes_out"] == os.path.getsize("y.npy") and summary["exit_code"] == 0
    with open("x.npy", "r+b") as stream:
        stream.truncate(200)
    begin, file, summary = layer("w.npy", "x.npy", "y.npy", "--json", code=1).records()
    assert (file["status"], summary["exit_code"]) == ("failed", 1) and "cut off" in file["error"]


# --- devices ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not program.EMULATED, reason="needs the emulated device")
@pytest.mark.skipif(os.environ.get("CONV_SANITIZED") == "thread",
                    reason="by design, neighbouring threads of cuda_layer_few store equal values at the same place")
def test_the_emulated_device_gives_the_same_bits(box):
    def emulated(*args):
        return subprocess.run([program.EMULATED, "layer", "--device=cuda", *args], stderr=subprocess.PIPE, text=True, check=False)

    w, x = weights(4, 3, 3, 3), tensor(5, 3, 9, 11)
    bias = save("b.npy", rng_of(8).standard_normal(4).astype(np.float32))
    result = emulated("w.npy", "x.npy", "y.npy")
    if "no GPU kernel can do this layer" in result.stderr:
        pytest.skip("the build has no kernel for CUDA layers")
    assert result.returncode == 0, result.stderr
    for stride, (padding, sides), (border, value), kind in itertools.product(
            (1, 2), (("valid", (0,) * 4), ("same", (1,) * 4)), (("constant", 0.5), ("wrap", 0)), ("<f4", "|u1")):
        values = save("x.npy", x if kind == "<f4" else rng_of(9).integers(0, 256, x.shape).astype(np.uint8))
        options = [f"--stride={stride}", f"--padding={padding}", "--bias=b.npy", "--range=1" if kind == "|u1" else "-q",
                   f"--border={border}" + (f":{value}" if value else "")]
        result = emulated("w.npy", "x.npy", "y.npy", *options)
        assert result.returncode == 0, result.stderr
        scaled = values if kind == "<f4" else values.astype(np.float32) / np.float32(255)
        expected = definition.layer(scaled, w, bias, stride, sides, border, value)
        assert same_bits(np.load("y.npy"), expected), options
    image = write_image("in/a.png", "rgb16")
    assert emulated("w.npy", "in", "out").returncode == 0
    assert same_bits(np.load("out/a.npy"), definition.layer(channels_of(image), w)[0])
