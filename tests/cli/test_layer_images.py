# SPDX-License-Identifier: MIT
"""`conv layer` on images, against the definition in NumPy."""
import os
import pathlib
import subprocess

import numpy as np
import pytest

import layer_definition as definition
import program
from layer_files import channels_of, layer, only, same_bits, save, tensor, weights, write_image


@pytest.mark.parametrize("kind", ("gray8", "gray16", "graya8", "rgb8", "rgb16", "rgba8", "rgba16", "palette8", "gray2"))
def test_images_of_every_kind(box, kind):
    image = write_image("a.png", kind)
    channels = len(image.planes) - image.alpha
    w = weights(4, channels, 3, 3)
    layer("w.npy", "a.png", "a.npy", "--padding=same")
    assert same_bits(np.load("a.npy"), definition.layer(channels_of(image), w, sides=(1, 1, 1, 1))[0])
    layer("w.npy", "a.png", "a.npy", "--range=255")
    assert same_bits(np.load("a.npy"), definition.layer(channels_of(image, top=255), w)[0])
    v = save("v.npy", w[:, :1])
    layer("v.npy", "a.png", "a.npy", "--gray")
    assert same_bits(np.load("a.npy"), definition.layer(channels_of(image, gray=True), v)[0])
    with open("a.npy", "rb") as file:
        assert layer("v.npy", "a.png", "-", "--gray").out_bytes == file.read()
    if channels == 3:
        err = layer("v.npy", "a.png", "b.npy", code=1).err
        assert "(3, 20, 30)" in err and "(4, 1, 3, 3)" in err and "--gray" in err
        assert not os.path.exists("b.npy")


@pytest.mark.parametrize("jobs", ("1", "5"))
def test_a_folder_into_a_folder(box, jobs):
    w = weights(4, 3, 3, 3)
    made = {f"p{i}": write_image(f"in/p{i}.png", ("rgb8", "rgb16", "rgba8")[i % 3], 20 + i, 30 - i, i) for i in range(9)}
    made["deep/q"] = write_image("in/deep/q.png", "rgb8")
    write_image("in/gray.png", "gray8")
    (box / "in/bad.png").write_bytes(b"no image")
    result = layer("w.npy", "in", "out", "-r", "-j", jobs, code=1)
    assert "in/bad.png: " in result.err and "in/gray.png: " in result.err and "10 done, 2 failed" in program.closing(result.err)
    for name, image in made.items():
        assert same_bits(np.load(f"out/{name}.npy"), definition.layer(channels_of(image), w)[0]), name
    assert sorted(os.listdir("out")) == sorted([f"p{i}.npy" for i in range(9)] + ["deep"])
    assert "0 done, 2 failed, 10 skipped" in program.closing(layer("w.npy", "in", "out", "-r", "--skip-existing", code=1).err)
    planned = layer("w.npy", "in", "new", "--dry-run").out
    assert "p0.npy" in planned and not os.path.exists("new")


@pytest.mark.parametrize("jobs", ("1", "4"))
def test_a_folder_into_one_file(box, jobs):
    w = weights(4, 3, 3, 3)
    made = {f"in/p{i}.png": write_image(f"in/p{i}.png", "rgb8", seed=i) for i in range(13)}
    (box / "in/bad.png").write_bytes(b"no image")
    write_image("in/other.png", "gray8")
    records = layer("w.npy", "in", "all.npy", "--json", "-j", jobs, code=1).records()
    done = {r["input"]: r["output"] for r in records if r["type"] == "file" and r["status"] == "done"}
    assert sorted(done) == sorted(made) and records[-1]["failed"] == 2
    values = np.load("all.npy")
    assert values.shape == (13, 4, 18, 28)
    for name, place in done.items():
        index = int(place.removeprefix("all.npy[").removesuffix("]"))
        assert same_bits(values[index], definition.layer(channels_of(made[name]), w)[0]), name
    places = [int(done[name].removeprefix("all.npy[").removesuffix("]")) for name in sorted(made)]
    assert places == list(range(13))  # by name, whatever the order of the file system
    only("w.npy", "in", "all.npy")
    # The threads run in another order; the file is the same.
    layer("w.npy", "in", "again.npy", "-j3", code=1)
    with open("all.npy", "rb") as a, open("again.npy", "rb") as b:
        assert a.read() == b.read()


def test_the_order_of_a_list_is_kept(box):
    w = weights(4, 3, 3, 3)
    made = {name: write_image(name, "rgb8", seed=i) for i, name in enumerate(("b.png", "d.png", "a.png", "in/z.png", "in/c.png"))}
    layer("w.npy", "d.png", "b.png", "in", "a.png", "y.npy", "-j3")
    for value, name in zip(np.load("y.npy"), ("d.png", "b.png", "in/c.png", "in/z.png", "a.png"), strict=True):
        assert same_bits(value, definition.layer(channels_of(made[name]), w)[0]), name
    with open("list", "w", encoding="utf-8") as file:
        file.write("in/z.png\nb.png\nin/c.png\n")
    layer("w.npy", "--files-from=list", "y.npy")
    for value, name in zip(np.load("y.npy"), ("in/z.png", "b.png", "in/c.png"), strict=True):
        assert same_bits(value, definition.layer(channels_of(made[name]), w)[0]), name


def test_messages_never_get_into_a_tensor(box):
    """With 2>&1 they did; for images it was refused."""
    weights(4, 3, 3, 3)
    write_image("in/a.png", "rgb8")
    tensor(1, 3, 8, 8)
    for source in ("in", "in/a.png", "x.npy"):
        done = subprocess.run([*program.RUNNER, program.BINARY, "layer", "w.npy", source, "-"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=program.TIMEOUT)
        assert done.returncode == 2 and b"messages would get into the tensor" in done.stdout, source


def test_one_file_takes_one_shape(box):
    weights(4, 3, 3, 3)
    for i in range(4):
        write_image(f"in/p{i}.png", "rgb8", 30 + (i == 2), seed=i)
    err = layer("w.npy", "in", "all.npy", "-j1", code=1).err
    assert "in/p2.png: " in err and "one shape" in err and np.load("all.npy").shape == (3, 4, 18, 28)


def test_large_images_under_a_small_limit(box):
    """Images that are larger than a worker's share wait for each other, also where results have an order."""
    w = weights(4, 1, 3, 3)
    made = {f"p{i:02}": write_image(f"in/p{i:02}.png", "gray8", 160, 100 + 100 * (i % 3 == 0), i) for i in range(12)}
    layer("w.npy", "in", "out", "--mem-limit=2M", "-j8")
    for name, image in made.items():
        assert same_bits(np.load(f"out/{name}.npy"), definition.layer(channels_of(image), w)[0]), name
    for i in range(12):
        write_image(f"in/p{i:02}.png", "gray8", 160, 200, i)
    for _ in range(3):
        layer("w.npy", "in", "all.npy", "--mem-limit=2M", "-j8")
        assert np.load("all.npy").shape == (12, 4, 198, 158)
    err = layer("w.npy", "in", "all.npy", "--mem-limit=500K", code=1).err
    assert "--mem-limit" in err


@pytest.mark.parametrize("output", ("out", "all.npy"))
def test_fail_fast(box, output):
    """What was begun before the failure is written; in one file without gaps, in order."""
    w = weights(4, 3, 3, 3)
    made = {f"in/p{i:02}.png": write_image(f"in/p{i:02}.png", "rgb8", seed=i) for i in range(60)}
    (box / "in/p20.png").write_bytes(b"no image")
    records = layer("w.npy", "in", output, "--fail-fast", "--json", "-j1", code=1).records()
    done = {r["input"]: r["output"] for r in records if r["type"] == "file" and r["status"] == "done"}
    assert records[-1]["failed"] == 1 and 16 <= len(done) < 59, len(done)
    values = np.load(output) if output == "all.npy" else [np.load(done[name]) for name in sorted(done)]
    assert len(values) == len(done)
    for place, name in enumerate(sorted(done)):
        assert same_bits(values[place], definition.layer(channels_of(made[name]), w)[0]), name
        assert output == "out" or done[name] == f"all.npy[{place}]"


@pytest.mark.parametrize("output, plan", (("out", ["replaces the output", "new"]), ("all.npy", ["new", "new"])))
def test_a_dry_run(box, output, plan):
    """As with filters: an output that cannot be replaced, or an input that is gone, fails in the plan already."""
    weights(4, 3, 3, 3)
    write_image("in/a.png", "rgb8")
    write_image("in/b.png", "rgb8")
    layer("w.npy", "in/a.png", "out/a.npy")
    records = layer("w.npy", "in", output, "--dry-run", "--json").records()
    assert sorted(r["reason"] for r in records if r["type"] == "file") == sorted(plan)
    os.makedirs("out/b.npy")
    assert "b.png" in layer("w.npy", "in", "out", "--dry-run", code=1).err


def test_no_input_is_overwritten(box):
    weights(2, 1, 3, 3)
    tensor(1, 1, 9, 9)
    save("b.npy", np.zeros(2, np.float32))
    for name, what in (("w.npy", "weights"), ("x.npy", "input"), ("b.npy", "bias")):
        before = pathlib.Path(name).read_bytes()
        assert f"the output would overwrite the {what}" in layer("w.npy", "x.npy", name, "--bias=b.npy", code=2).err
        assert pathlib.Path(name).read_bytes() == before
