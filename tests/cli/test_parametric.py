# SPDX-License-Identifier: MIT
"""Parametric filters: their integers against the ideals in float64 by bounds that hold for any image, and the pixels of
photographs, noise and worst cases against SciPy (NumPy where there is none)."""
import glob
import json
import os
import subprocess

import numpy as np
import pytest

import definition
import images
import parametric_definition as parametric
import png_writer as png
import program
from program import run

try:
    from scipy import ndimage
except ImportError:
    ndimage = None

SIDE = 31
COARSE = ((3.3, 0.8), (3.3, 2.7), (5, 2.7), (5, 10), (4, 0.8))  # sigma and amount of unsharp masks as above a sigma of 5
SWEEP = {
    "gaussian": [f"gaussian:{s:.3g}" for s in [0.2, *np.arange(0.25, 5.01, 0.15), 5]],
    "gaussian-fast": [f"gaussian-fast:{s:.3g}" for s in [0.2, *np.arange(0.3, 5.01, 0.4), 5]],
    "blur": [f"blur:{r:.3g}" for r in [0.1, 0.5, 1, 1.37, 2, 2.5, 3.3, 7, 9.95, 15]],
    "unsharp": [f"unsharp:{s},{a}" for s in (0.2, 0.7, 1.6, 2, 3.3, 5) for a in (0.01, 0.5, 0.8, 2.7, 10) if (s, a) not in COARSE],
    "sharpen": [f"sharpen:{a}" for a in (0.01, 0.123, 0.4, 1, 3.14159, 100)],
    "motion": [f"motion:{n},{a}" for n in (1, 2, 7.5, 9, 31) for a in (0, 30, 45, 90, -17.3, 200)],
    "emboss": [f"emboss:{a},{d}" for a in (0, 20, 45, 135, -90, 359.9) for d in (0.01, 0.7, 1, 100)],
    "log": [f"log:{s:.3g}" for s in [0.5, 0.6, 0.8, *np.arange(1, 3.75, 0.35), 3.75]],
    "dog": [f"dog:{a},{b}" for a, b in ((1, 1.6), (1.6, 1), (0.2, 5), (0.5, 0.8), (2, 3.2), (3.1, 5), (4.9, 5))],
}


def show(filters, limit=16):
    """The records of `conv show --json`, for as many filters as wanted."""
    records = []
    for at in range(0, len(filters), limit):
        records += run("show", "--json", ",".join(filters[at:at + limit])).records()
    return [r for r in records if r["type"] == "filter"]


def deviation(record, ideal):
    """How far a result can be from the ideal one before rounding, in 8-bit levels, for any image of 0 and 255."""
    error = parametric.pad(np.array(record["kernel"]) / record["divisor"], SIDE) - parametric.pad(ideal, SIDE)
    return 255 * max(error[error > 0].sum(), -error[error < 0].sum())


@pytest.mark.parametrize("family", SWEEP)
def test_no_image_can_be_off_by_1(family):
    """The strongest possible statement: the error of the worst image, derived from the coefficients alone."""
    for text, record in zip(SWEEP[family], show(SWEEP[family])):
        assert record["name"] == text
        kernel, ideal = np.array(record["kernel"]), parametric.ideal(text)
        assert kernel.sum() == round(ideal.sum()) * record["divisor"], text  # flat areas stay as they are
        assert family in ("motion", "emboss") or (kernel == kernel.T).all(), text  # rows and columns are treated alike
        assert record["exact"] and kernel.shape[0] % 2 == kernel.shape[1] % 2 == 1
        assert (255 * np.abs(kernel).sum() + record["divisor"]) < 2 ** 31, text  # 32 bits hold every sum
        off = deviation(record, ideal)
        assert abs(off - record["deviation"]) < 1e-6, text
        # With rounding within 1 of the rounded ideal, or of gaussian-fast what the manual says.
        assert off <= {"gaussian-fast": 12, "gaussian": 0.75, "unsharp": 0.75}.get(family, 0.4999), (text, off)


@pytest.mark.parametrize("family", ("gaussian", "gaussian-fast", "blur"))
def test_a_separable_ideal_has_separable_integers(family):
    for text, record in zip(SWEEP[family], show(SWEEP[family])):
        column, row = np.array(record["separable"]["column"]), np.array(record["separable"]["row"])
        assert (np.outer(column, row) == record["kernel"]).all(), text
        assert (column == column[::-1]).all() and (row == row[::-1]).all(), text
        assert np.abs(row).max() <= (127 if family == "gaussian-fast" else 254) or text < "gaussian:0.9", text
        if family == "gaussian-fast":  # limits of tensor cores: factors of a byte, row sums of 16 bits, sums of 24
            assert np.abs(row).sum() <= 257 and record["divisor"] in (4 ** n for n in range(4, 9)), text


def test_what_is_exact_is_exact():
    for text, matrix in (("blur:2", np.ones((5, 5)) / 25), ("motion:9,0", np.ones((1, 9)) / 9), ("motion:9,90", np.ones((9, 1)) / 9)):
        record, = show([text])
        assert (np.array(record["kernel"]) / record["divisor"] == matrix).all() and record["deviation"] < 1e-9, text
    for text, builtin in (("emboss:135,1", "emboss"), ("sharpen:1", "sharpen"), ("blur:1", "blur"), ("blur:2", "blur5")):
        record, other = show([text, builtin])
        assert record["kernel"] == other["kernel"] and record["divisor"] == other["divisor"], text


LARGE = (5.1, 6, 7.3, 9, 12, 16, 20, 33, 60, 111.1, 250)


def line_error(record, sigma):
    """The sum of |weight - Gaussian| along an axis, of the pixel between coarse samples where it is largest."""
    step, reach = record["step"], record["reach"]
    down, line = (np.array(record[part][:0:-1] + record[part]) / 65536 for part in ("down", "line"))
    x = np.arange(-reach, reach + 1)
    errors = []
    for k, up in enumerate(np.array(record["up"]) / 1024):
        samples = np.convolve(up, line)  # the first is -radius - 1
        weights = np.zeros((len(samples) - 1) * step + 1)
        weights[::step] = samples
        weights = np.convolve(weights, down)
        first = -(len(line) // 2 + 1) * step - len(down) // 2
        whole = np.zeros(len(x))
        whole[first + reach:first + reach + len(weights)] = weights
        ideal = np.exp(-(x - k) ** 2 / (2 * sigma * sigma))
        ideal /= np.exp(-np.arange(-int(10 * sigma), int(10 * sigma) + 1) ** 2 / (2 * sigma * sigma)).sum()
        errors.append(np.abs(whole - ideal).sum() + 1 - ideal.sum())
    return max(errors)


def test_large_gaussians_state_what_holds():
    """The strongest statement once more, from the integers of all three steps: the Gaussian itself is not cut off."""
    cases = [(s, a) for a in (0, 0.5, 3, 10) for s in LARGE] + [*COARSE]
    texts = [f"unsharp:{s},{a}" if a else f"gaussian:{s}" for s, a in cases]
    for text, (sigma, amount), record in zip(texts, cases, show(texts)):
        assert record["name"] == text and not record["exact"] and abs(record["amount"] - amount) < 1 / 4096
        assert record["down"][0] + 2 * sum(record["down"][1:]) == record["line"][0] + 2 * sum(record["line"][1:]) == 65536
        assert all(sum(up) == 1024 for up in record["up"]) and record["up"][1:] == [up[::-1] for up in record["up"][:0:-1]]
        error = line_error(record, sigma)
        off = 255 * (2 * error + error * error) / 2 + 0.5 / 256 + 0.5 / 16 + 0.5 / 4096
        if amount:
            off = off * record["amount"] + 255 * abs(record["amount"] - amount)
        assert abs(off - record["deviation"]) < 1e-6 and off < (0.7501 if amount < 5 or sigma <= 5 else 1.16), (text, off)


# --- pixels --------------------------------------------------------------------------------------

def gray(planes):
    return png.encode(planes.shape[1], planes.shape[0], planes.tolist(), png.GRAY, 16 if planes.dtype == np.uint16 else 8)


def worst_cases():
    """Checkerboards, steps, stripes and noise of 0 and 255 in one image each, and a photograph."""
    y, x = np.mgrid[0:96, 0:128]
    rng = np.random.default_rng(3)
    cases = {f"check{n}": (x // n + y // n) % 2 * 255 for n in (1, 2, 5)}
    cases.update({f"stripes{n}": x // n % 2 * 255 for n in (1, 3, 7)})
    cases.update(step=(x >= 64) * 255, diagonal=(x + y >= 110) * 255, dot=((x == 64) & (y == 48)) * 255,
                 noise=rng.integers(0, 256, x.shape), coins=rng.integers(0, 2, x.shape) * 255)
    cases = {name: case.astype(np.uint8) for name, case in cases.items()}
    cases["texture"] = images.texture(rng, 1, 96, 128, 255)[0]
    cases["landscape"] = images.read(os.path.join(program.ROOT, "samples", "landscape-rgb.png"))[0]
    photos = sorted(glob.glob(os.path.join(os.environ.get("CONV_PHOTOS", "/nowhere"), "*.png")))
    cases.update({f"photo{n}": images.read(path)[1][:256, :256] for n, path in enumerate(photos[:1])})
    return cases


def correlate(plane, matrix):
    """In float64, with the border replicated."""
    if ndimage:
        return ndimage.correlate(plane.astype(np.float64), matrix, mode="nearest")
    top, left = matrix.shape[0] // 2, matrix.shape[1] // 2
    padded = np.pad(plane.astype(np.float64), ((top, top), (left, left)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, matrix.shape)
    return np.einsum("yxji,ji->yx", windows, matrix, optimize=True)


def scipy_ideal(text, plane):
    """SciPy's own result for the filter, where it has such a filter."""
    name, _, numbers = text.partition(":")
    given, wide = [float(n) for n in numbers.split(",")], plane.astype(np.float64)
    if name in ("gaussian", "gaussian-fast"):
        return ndimage.gaussian_filter(wide, given[0], mode="nearest", truncate=min(15, np.ceil(4 * given[0])) / given[0])
    if name == "blur":
        return ndimage.uniform_filter(wide, int(2 * given[0] + 1), mode="nearest")
    if name == "unsharp":
        return wide + given[1] * (wide - scipy_ideal(f"gaussian:{given[0]}", plane))
    if name == "log":
        return given[0] ** 2 * ndimage.gaussian_laplace(wide, given[0], mode="nearest", truncate=np.ceil(4 * given[0]) / given[0])
    if name == "dog":
        return scipy_ideal(f"gaussian:{given[0]}", plane) - scipy_ideal(f"gaussian:{given[1]}", plane)
    return correlate(plane, parametric.ideal(text))


PIXELS = ("gaussian:0.8", "gaussian:2.5", "gaussian:5", "blur:4", "unsharp:2,0.8", "unsharp:1,3", "sharpen:0.7", "motion:9,30",
          "emboss:20,0.7", "log:1.5", "dog:1,1.6")


def outputs(filters, cases):
    """Filter -> case -> plane."""
    os.makedirs("in", exist_ok=True)
    for name, case in cases.items():
        with open(f"in/{name}.png", "wb") as file:
            file.write(gray(case))
    results = {}
    for number, text in enumerate(filters):
        run(text, "-z0", "in", f"out{number}")  # images.read takes its time for filtered rows
        results[text] = {name: images.read(f"out{number}/{name}.png")[0] for name in cases}
    return results


def test_pixels_are_within_1_of_the_ideal(box):
    cases = worst_cases()
    for text, planes in outputs(PIXELS, cases).items():
        for name, got in planes.items():
            ideals = [correlate(cases[name], parametric.ideal(text))]
            if ndimage:
                ideals.append(scipy_ideal(text, cases[name]))
            for want in ideals:
                off = np.abs(got - np.clip(want, 0, 255)).max()
                assert off <= 1, f"{text} of {name}: {off}"


def test_a_threshold_leaves_samples_that_would_change_little(box):
    """Where |original - blur| is below THRESHOLD the sample stays, exactly; elsewhere it is the result without a threshold.
    Where the deviation leaves open which side of THRESHOLD the difference is on, either is accepted."""
    cases = {name: worst_cases()[name] for name in ("coins", "texture", "step")}
    cases["wide"] = np.random.default_rng(7).integers(20000, 40000, (40, 50)).astype(np.uint16)
    sigma, amount, threshold = 1.5, 0.8, 6
    with_it, without = f"unsharp:{sigma},{amount},{threshold}", f"unsharp:{sigma},{amount}"
    results = outputs([with_it, without, f"{without},0"], cases)
    records = show([with_it, without])
    assert records[0]["kernel"] == records[1]["kernel"] and abs(records[0]["threshold"] - 4.8) < 1e-12
    some = 0
    for name, plane in cases.items():
        unit = 257 if plane.dtype == np.uint16 else 1
        change = np.abs(correlate(plane, parametric.ideal(without)) - plane)
        near = amount * threshold * unit
        small, large = (change < near - 0.5 * unit), (change > near + 0.5 * unit)
        got = results[with_it][name]
        assert np.array_equal(got[small], plane[small]), name
        assert np.array_equal(got[large], results[without][name][large]), name
        assert np.array_equal(results[f"{without},0"][name], results[without][name])
        some += small.sum() > 100 and large.sum() > 100
    assert some >= 3
    run(with_it, "-z0", "--variant", "cpu_reference", "in", "again")
    for name in cases:
        assert np.array_equal(images.read(f"again/{name}.png")[0], results[with_it][name]), name


def along(plane, sigma, border, value):
    """A column of a Gaussian in float64, for any sigma: all sources of a row of pixels are one row of a matrix."""
    n, half = len(plane), int(6.5 * sigma) + 1
    line = np.exp(-np.arange(-half, half + 1) ** 2 / (2 * sigma * sigma))
    if sigma <= 5:
        line, half = parametric.gaussian_line(sigma), len(parametric.gaussian_line(sigma)) // 2
    sources = definition.sources(border, n, half) % (n + 1)  # -1: beyond a constant border
    weights = np.array([np.bincount(sources[i:i + 2 * half + 1], line / line.sum(), n + 1) for i in range(n)])
    return weights[:, :n] @ plane + weights[:, n:] * value


def blurred(plane, sigma, border, value):
    return along(along(plane.astype(np.float64), sigma, border, value).T, sigma, border, value).T


# With passes that each extended the result of the one before, results at a border were off by 41 levels.
@pytest.mark.parametrize("border", definition.BORDERS)
def test_results_are_as_near_to_the_ideal_as_stated(box, border):
    """Every pixel of images of 8 and 16 bits, at their borders, too, and of images much smaller than the kernel."""
    rng = np.random.default_rng(11)
    large = rng.integers(0, 2, (24, 27)).repeat(8, 0).repeat(8, 1) * 255
    large[:, 3:] = np.maximum(large[:, 3:], 150)
    large = large.astype(np.uint8)
    cases = {"large": large[:-3, :-2], "small": large[2:13, 1:18], "dot": large[:1, :1], "row": large[9:10], "column": large[:, 5:6],
             "deep": rng.integers(0, 65536, (70, 45)).astype(np.uint16)}
    outputs([], cases)
    value = 200 if border == "constant" else 0
    for text in (*(f"gaussian:{s}" for s in (0.3, 1.7, 3.2, 5, *LARGE)), "unsharp:8,0.5", "unsharp:60,0.3", "unsharp:250,2"):
        sigma, *amount = (float(number) for number in text.partition(":")[2].split(","))
        run(text, "--border", f"{border}:{value}" if value else border, "-z0", "in", "out")
        record, = show([text])
        for name, case in cases.items():
            got, unit = images.read(f"out/{name}.png")[0], 257 if name == "deep" else 1
            assert got.dtype == case.dtype and got.shape == case.shape
            want = blurred(case, sigma, border, value * unit)
            if amount:
                want = np.clip(case + amount[0] * (case - want), 0, 255 * unit)
            assert np.abs(got - want).max() <= unit * record["deviation"] + 0.501, (text, name)


def test_rows_and_columns_are_treated_alike(box):
    """The transposed image gives the transposed result, bit for bit, and what is flat stays as it is."""
    rng = np.random.default_rng(12)
    plane = rng.integers(0, 256, (67, 130)).astype(np.uint8)
    deep = rng.integers(0, 65536, (50, 83)).astype(np.uint16)
    cases = {"a": plane, "at": plane.T, "b": deep, "bt": deep.T, "flat": np.full((40, 50), 77, np.uint8), "flat16": np.full((40, 50), 54321, np.uint16)}
    for text, results in outputs(("gaussian:2", "gaussian:2.5", "unsharp:2,0.8", "gaussian:6", "gaussian:25", "unsharp:40,0.7,3", "unsharp:9,1"), cases).items():
        assert (results["a"].T == results["at"]).all() and (results["b"].T == results["bt"]).all(), text
        assert (results["flat"] == 77).all() and (results["flat16"] == 54321).all(), text


# --- words ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, said", (
    ("gaussian:abc", "for example gaussian:2.5"), ("gaussian:", "for example gaussian:2.5"), ("gaussian:2,3", "gaussian:SIGMA"),
    ("gaussian:0", "SIGMA is 0.2 to 250 pixels"), ("gaussian:-2", "0.2 to 250"), ("gaussian:nan", "for example"),
    ("gaussian:inf", "for example"), ("gaussian:1e99", "for example"), ("gaussian:250.1", "0.2 to 250"),
    ("unsharp:2,1,256", "THRESHOLD is 0 to 255"), ("unsharp:2,1,5,6", "unsharp:SIGMA[,AMOUNT[,THRESHOLD]]"), ("gausian:2", "did you mean gaussian:SIGMA, for example gaussian:2.5?"), ("unsharp:2,1 2", "unsharp:SIGMA[,AMOUNT"),
    ("unsharp:2,", "filter 2 of"), ("log", "did you mean log:SIGMA, for example log:1.5"), ("unsharp:2,0.8,x", "written unsharp:SIGMA[,AMOUNT[,THRESHOLD]], for example unsharp:2,0.8"),
    ("unsharp:2,0.8,3x", "'3x' is neither a number nor a filter"), ("unsharp:2,0.8,embos", "did you mean 'emboss'"), ("blur:16", "RADIUS is 0.1 to 15 pixels"), ("motion:", "motion:LENGTH[,ANGLE]"),
    ("motion:32,0", "LENGTH is 1 to 31"), ("motion:9,400", "ANGLE is -360 to 360 degrees"), ("emboss:0,0", "DEPTH is 0.01 to 100"),
    ("log:9", "SIGMA is 0.5 to 3.75"), ("dog:2,2", "equal")))
def test_mistakes_get_an_example(box, text, said):
    assert said in run(text, "a.png", "b.png", code=2).err


def test_numbers_follow_a_colon(box):
    for name, example in (("gaussian", "gaussian:2.5"), ("log", "log:1.5")):
        assert f"for example {example}" in run(name, "2", "a.png", "b.png", code=2).err
    (box / "2").mkdir()
    (box / "2" / "a.png").write_bytes(gray(np.zeros((3, 3), np.uint8)))
    run("gaussian", "2", "out")  # a folder of that name


def test_a_number_after_a_comma_continues_a_filter():
    names = [r["name"] for r in show(["unsharp:2,0.8,emboss,dog:1,1.6,blur:2,gaussian"], 1)]
    assert names == ["unsharp:2,0.8", "emboss", "dog:1,1.6", "blur:2", "gaussian"]


def test_a_file_may_have_such_a_name(box):
    (box / "5.mat").write_text("3 1 1 0\n0 1 0\n")
    (box / "gaussian:2.mat").write_text("1 1 1 0\n1\n")
    assert [r["name"] for r in show(["gaussian:2,5.mat,gaussian:2.mat"], 1)] == ["gaussian:2", "5", "gaussian:2"]


def test_options_of_filters(box):
    record, = run("show", "--json", "log:1.5", "--bias", "128").records()[:1]
    assert record["bias"] == 128
    assert "7 x 7" not in run("show", "gaussian:2").out and "--size 3" in run("show", "gaussian:2", "--size", "3", code=2).err
    for option in (("--bias", "3"), ("--divisor", "2")):
        assert f"{option[0]}: not for 'gaussian:9'" in run("show", "gaussian:9", *option, code=2).err
    assert [r["name"] for r in show(16 * ["gaussian:250"])] == 16 * ["gaussian:250"]


def test_list_and_show_name_them():
    listed = run("list").out
    for family in SWEEP:
        assert f"\n{family}:" in listed
    records = [r for r in run("list", "--json").records() if r["type"] == "parametric_filter"]
    assert [r["name"] for r in records] == list(SWEEP)
    for record in records:
        assert show([record["example"]])[0]["name"] == record["example"] and f" {record['numbers']}\n" in listed
    assert " SIGMA 0.2 to 250 pixels, AMOUNT 0.01 to 10 (default 1), THRESHOLD 0 to 255 levels (default 0)\n" in listed
    text = run("show", "gaussian:2.5").out
    assert "before rounding, on any image, at its border as well\n" in text and "separable    yes: column" in text
    assert "reduced to one sample in 32 rows and columns" in run("show", "gaussian:40").out
    assert "conv layer takes the name" in run("show", "log:1.5").out and "a bank of" in run("show", "log:7").out


# --- the kernels that run them -------------------------------------------------------------------

def emulated(*args):
    if not program.EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
    done = subprocess.run([program.EMULATED, *args], capture_output=True, text=True, timeout=program.TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpus_use_separable_kernels():
    """The table's choice for a GPU of compute capability 9.0: tensor cores where bytes hold the factors."""
    chosen = {r["name"]: r["variants"]["cuda"]["8"] for r in map(json.loads, emulated(
        "show", "--json", "gaussian:5,unsharp:2,0.8,unsharp:2,0.8,5,gaussian-fast:5,blur:15,dog:2,4,unsharp:2,3,unsharp:1,1,5").splitlines())}
    assert list(chosen.values()) == 5 * ["cuda_tma_mma_wide"] + 3 * ["cuda_tma_mma_large"], chosen
    deep = [r["variants"]["cuda"]["16"] for r in map(json.loads, emulated("show", "--json", "gaussian:8,blur:15,gaussian:5,unsharp:2,1,9").splitlines())]
    assert deep == ["cuda_decimated"] + 3 * ["cuda_tma_mma_wide16"], deep


def test_large_gaussians_are_the_same_on_a_device(box):
    rng = np.random.default_rng(9)
    os.makedirs("in")
    for number in range(3):
        (box / f"in/{number}.png").write_bytes(gray(rng.integers(0, 256, (20 + number, 33)).astype(np.uint8)))
    with open("in/deep.png", "wb") as file:
        file.write(gray(rng.integers(0, 65536, (9, 20)).astype(np.uint16)))
    run("gaussian:6,emboss,unsharp:30,0.5", "in", "cpu")
    emulated("gaussian:6,emboss,unsharp:30,0.5", "--device", "cuda", "in", "device")
    for name in os.listdir("in"):
        a, b = (images.read(f"{folder}/{name}") for folder in ("cpu", "device"))
        assert a.dtype == b.dtype == (np.uint16 if name == "deep.png" else np.uint8) and (a == b).all(), name
