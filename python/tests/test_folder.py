# SPDX-License-Identifier: MIT
"""filter_folder: files, totals, the callback, and ways to stop a run."""

import os
import signal
import threading

import numpy as np
import pytest
from png_writer import chunk
from test_jpeg import EXIF, turned

import conv


@pytest.fixture
def photos(tmp_path, noise):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i:02}.png").write_bytes(conv.encode_png(noise((30 + i, 40, 3))))
    return folder


def run(photos, out, *arguments, **options):
    return conv.filter_folder(photos, out, *arguments, device="cpu", **options)


def test_a_folder(photos, tmp_path):
    out = tmp_path / "out"
    totals = run(photos, out, "gaussian5,sharpen", border="wrap")
    assert totals == (12, 0, 0, 12, True, [])
    for path in photos.iterdir():
        wanted = conv.filter(conv.decode_png(path.read_bytes()), "gaussian5,sharpen", border="wrap")
        assert np.array_equal(conv.decode_png((out / path.name).read_bytes()), wanted)


def test_failures_are_listed(photos, tmp_path):
    (photos / "bad.png").write_bytes(b"no PNG")
    totals = run(str(photos), str(tmp_path / "out"), "emboss")
    assert totals.done == 12 and totals.failed == 1
    ((path, reason),) = totals.failures
    assert path == str(photos / "bad.png") and "PNG" in reason


def test_existing_outputs(photos, tmp_path):
    out = tmp_path / "out"
    run(photos, out, "emboss")
    assert run(photos, out, "emboss", skip_existing=True).skipped == 12
    assert run(photos, out, "emboss", update=True).skipped == 12
    os.utime(photos / "03.png", (2**31 - 9, 2**31 - 9))
    assert run(photos, out, "emboss", update=True).done == 1
    assert run(photos, out, "emboss").done == 12


def test_strip(photos, tmp_path):
    """strip dropped the orientation and the colour space, too."""
    exif = (EXIF % 6)[6:]
    data = (photos / "00.png").read_bytes()
    extra = chunk(b"sRGB", b"\0") + chunk(b"eXIf", exif) + chunk(b"tEXt", b"Title\0a title")
    (photos / "00.png").write_bytes(data[:33] + extra + data[33:])
    for strip, kept in ((False, (True, True)), (True, (True, False)), ("all", (False, False))):
        run(photos / "00.png", tmp_path / f"{strip}.png", "emboss", strip=strip)
        after = (tmp_path / f"{strip}.png").read_bytes()
        assert (exif in after and b"sRGB" in after, b"a title" in after) == kept
    with pytest.raises(ValueError, match="strip"):
        run(photos, tmp_path / "out", "emboss", strip="most")


def test_archives_and_shards(photos, tmp_path):
    archive, out = tmp_path / "a.tar", tmp_path / "out"
    assert run(photos, archive, "identity").done == 12
    assert run(archive, archive.with_name("b.tar"), "emboss").done == 12
    assert run(archive, archive.with_name("b.tar"), "emboss", skip_existing=True).skipped == 1
    parts = [run(archive, out, "identity", shard=(i, 3)).done for i in range(3)]
    assert sum(parts) == 12 and max(parts) < 12
    assert sum(run([archive, tmp_path / "b.tar"], tmp_path / "two", "blur", shard=(i, 2), shard_by="name").done for i in range(2)) == 24
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in photos.iterdir())
    assert run(archive, tmp_path / "not", "blur", archives=False).failed == 1
    for wrong in ({"shard": (3, 3)}, {"shard": (-1, 3)}, {"shard": (0, 3), "shard_by": "size"}):
        with pytest.raises(ValueError):
            run(photos, out, "blur", **wrong)


def test_inputs(photos, tmp_path):
    below = photos / "below"
    below.mkdir()
    (below / "x.png").write_bytes((photos / "00.png").read_bytes())
    files = [photos / "03.png", photos / "04.png"]
    assert run(files, tmp_path / "a", "emboss").done == 2
    assert run(photos, tmp_path / "b", "emboss").done == 12
    assert run(photos, tmp_path / "c", "emboss", recursive=True).done == 13


def test_progress(photos, tmp_path):
    seen = []

    def callback(progress):
        assert threading.current_thread() is threading.main_thread()
        seen.append(progress)

    run(photos, tmp_path / "out", "emboss", progress=callback)
    assert all(isinstance(progress, conv.Progress) for progress in seen)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert all(p.done <= 12 for p in seen)


@pytest.fixture
def many(tmp_path, noise):
    """A run on one thread, which does not end before it can be stopped."""
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "0.png").write_bytes(conv.encode_png(noise((1500, 1500, 3))))
    for i in range(1, 200):
        os.link(folder / "0.png", folder / f"{i}.png")
    conv.configure(threads=1)
    yield folder
    conv.configure(threads=0)


def whole_files(folder):
    return all(conv.decode_png(path.read_bytes()).shape == (1500, 1500, 3) for path in folder.glob("*.png"))


def test_an_exception_of_the_callback_stops_the_run(many, tmp_path):
    class Enough(Exception):
        pass

    def callback(progress):
        raise Enough

    with pytest.raises(Enough):
        run(many, tmp_path / "out", "gaussian5", progress=callback)
    assert len(list((tmp_path / "out").glob("*.png"))) < 200
    assert whole_files(tmp_path / "out")


def test_keyboard_interrupt(many, tmp_path, request):
    out, over = tmp_path / "out", threading.Event()
    # Programs that a script started in the background ignore Ctrl-C, and their children inherit that.
    request.addfinalizer(lambda before=signal.signal(signal.SIGINT, signal.default_int_handler): signal.signal(signal.SIGINT, before))

    def interrupt_after_the_first_image():
        while not over.wait(0.001):
            if any(out.glob("*.png")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt_after_the_first_image)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(many, out, "gaussian5")
    finally:
        over.set()
        thread.join()
    assert len(list(out.glob("*.png"))) < 200 and whole_files(out)
    assert run(many / "1.png", tmp_path / "one", "blur").done == 1


def test_wrong_arguments(photos, tmp_path):
    out = tmp_path / "out"
    for expected, arguments, options in (
        (ValueError, (photos, out, "no-such-filter"), {}), (ValueError, (photos, out, "blur"), {"border": "x"}),
        (ValueError, (photos, out, "blur"), {"level": 99}), (ValueError, (photos, out, "blur"), {"device": "gpu"}),
        (TypeError, (photos, out, 3), {}), (TypeError, (3, out, "blur"), {}), (ValueError, ("a\0b", out, "blur"), {}),
        (FileNotFoundError, ([photos, tmp_path / "missing"], out, "blur"), {}), (OSError, (photos, "/proc/out", "blur"), {}),
    ):
        with pytest.raises(expected, match="missing" if expected is FileNotFoundError else None):
            conv.filter_folder(*arguments, **{"device": "cpu", **options})


def test_outputs_of_another_format(tmp_path, noise):
    image = noise((20, 30, 3))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(conv.encode_png(image))
    assert conv.filter_folder(tmp_path / "in", tmp_path / "out", "identity", to="jpg", quality=100, gray=True).done == 1
    decoded = conv.decode_jpeg(tmp_path / "out" / "a.jpg")
    assert decoded.shape == (20, 30) and np.abs(decoded - image @ (0.299, 0.587, 0.114)).max() < 3
    for wrong in ({"to": "gif"}, {"quality": 101}):
        with pytest.raises(ValueError):
            conv.filter_folder(tmp_path / "in", tmp_path / "out", "identity", **wrong)


def test_options_of_jpeg(tmp_path, noise):
    image = np.repeat(np.repeat(noise((5, 8, 3)), 8, 0), 8, 1)
    plain = conv.encode_jpeg(image, quality=85)
    (tmp_path / "a.jpg").write_bytes(turned(plain, 6))

    def after(**options):
        assert run(tmp_path / "a.jpg", tmp_path / "b.jpg", "identity", strip="all", **options).done == 1
        return (tmp_path / "b.jpg").read_bytes()

    usual, stored = after(), conv.decode_jpeg(plain)
    for options, marker in ({"optimize": True}, b"\xff\xc0"), ({"progressive": True}, b"\xff\xc2"):
        file = after(**options)
        assert marker in file and len(file) < len(usual)
        assert np.array_equal(conv.decode_jpeg(file), conv.decode_jpeg(usual))
    assert conv.decode_jpeg(usual).shape == stored.shape == (40, 64, 3)
    upright = conv.decode_jpeg(after(auto_orient=True, quality=100))
    assert upright.shape == (64, 40, 3) and np.abs(upright - np.rot90(stored, -1).astype(int)).max() < 9
