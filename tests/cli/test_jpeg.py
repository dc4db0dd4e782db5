# SPDX-License-Identifier: MIT
"""JPEG in and out: pixels against OpenCV, names and options, metadata between the formats, refusals, devices."""
import os
import struct
import subprocess
import zlib

import numpy as np
import pytest

import images
import jpeg
import png_writer as png
import program
from faulty import FAULTY
from folders import tree
from program import RUNNER, run, until
from test_watch import watch

pytestmark = pytest.mark.skipif(not program.HAS_JPEG, reason="built without libjpeg-turbo")


def photo(width=61, height=37, channels=3, seed=1):
    planes = images.texture(np.random.default_rng(seed), channels, height, width, 255)
    return planes[0] if channels == 1 else planes.transpose(1, 2, 0)


def write(name, data):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as file:
        file.write(data)
    return data


def read(name):
    with open(name, "rb") as file:
        return file.read()


def write_png(name, pixels, chunks=b"", depth=8):
    types = {1: png.GRAY, 2: png.GRAY_ALPHA, 3: png.RGB, 4: png.RGBA}
    planes = pixels.reshape(pixels.shape[0], pixels.shape[1], -1)
    data = png.encode(planes.shape[1], planes.shape[0], planes.reshape(planes.shape[0], -1).tolist(), types[planes.shape[2]], depth)
    return write(name, data[:33] + chunks + data[33:])


def pixels_of(name):
    """The samples of a PNG that the program wrote, (height, width[, channels])."""
    planes = images.read(name)
    return planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)


def chunks(name):
    return dict(images.chunks(read(name)))


# --- pixels --------------------------------------------------------------------------------------

@pytest.mark.parametrize("channels", (1, 3))
@pytest.mark.parametrize("options", ({}, {"progressive": 1}, {"rst_interval": 2}, {"optimize": 1, "quality": 40}), ids=str)
def test_decoded_pixels_are_opencvs(box, channels, options):
    data = write("a.jpg", jpeg.make(photo(channels=channels), **options))
    run("identity", "a.jpg", "a.png")
    assert (pixels_of("a.png") == jpeg.decode(data)).all()
    # These samples are what is filtered.
    write_png("same.png", jpeg.decode(data))
    run("emboss,blur", "--border=wrap", "same.png", "want.png")
    run("emboss,blur", "--border=wrap", "a.jpg", "got.png")
    assert (pixels_of("got.png") == pixels_of("want.png")).all()


def test_verify_and_layers_read_jpeg(box):
    data = write("in/a.jpg", jpeg.make(photo()))
    assert "differ" not in run("verify", "sharpen", "in/a.jpg").err
    np.save("w.npy", np.ones((1, 3, 1, 1), np.float32))
    run("layer", "w.npy", "in", "out", "--range=255")
    assert (np.load("out/a.npy")[0] == jpeg.decode(data).astype(np.float32).sum(2)).all()
    run("identity", "--output-type=f32", "in", "floats")
    assert (np.load("floats/a.npy") == jpeg.decode(data).transpose(2, 0, 1)).all()


def psnr(a, b):
    return 10 * np.log10(255 ** 2 / np.mean((a.astype(float) - b) ** 2))


def test_quality_and_chroma(box):
    pixels = photo(200, 150)
    write_png("a.png", pixels)
    sizes, shares = [], []
    for quality in (20, 60, 89, 90, 100):
        run("identity", "a.png", "a.jpg", "--quality", str(quality))
        data = read("a.jpg")
        sizes.append(len(data))
        shares.append(psnr(jpeg.decode(data), pixels))
        sampling = dict(jpeg.segments(data))[0xC0][7]
        assert sampling == (0x11 if quality >= 90 else 0x22), quality
    assert sizes == sorted(sizes) and shares == sorted(shares) and shares[-1] > 45
    run("identity", "a.png", "b.jpg")
    run("identity", "a.png", "c.jpg", "-Q90")
    assert read("b.jpg") == read("c.jpg")
    run("identity", "a.png", "bad.jpg", "-Q0", code=2)


def encoding_of(name):
    """Tables, marker of the frame, and the components' sampling and tables, but not the image's size."""
    return [(code, data[5:] if code in (0xC0, 0xC2) else data) for code, data in jpeg.segments(read(name)) if code in (0xC0, 0xC2, 0xDB)]


def huffman_of(name):
    return [data for code, data in jpeg.segments(read(name)) if code == 0xC4]


def test_quality_is_kept(box):
    for i, options in enumerate(({"quality": 98}, {"quality": 75}, {"quality": 60, "progressive": 1}, {"luma_quality": 85, "chroma_quality": 40})):
        write(f"in/{i}.jpg", jpeg.make(photo(90, 70), jpeg.exif_segment(jpeg.exif(6)), **options))
    write("in/gray.jpg", jpeg.make(photo(90, 70, 1), quality=55))
    write_png("in/a.png", photo(90, 70))
    run("blur", "in/a.png", "in/full.jpg", "-Q93")  # 4:4:4
    names = [name for name in os.listdir("in") if name.endswith(".jpg")]
    for more in ((), ("-Q", "keep"), ("--strip",), ("--strip=all",)):
        run("blur", "in", "out", *more)
        for name in names:
            assert encoding_of(f"out/{name}") == encoding_of(f"in/{name}"), (name, more)
    run("blur", "in", "out80", "-Q80")
    run("identity", "in/0.jpg", "0.png")
    run("blur", "0.png", "80.jpg", "-Q80")
    run("blur", "in/a.png", "90.jpg")
    run("blur", "in/a.png", "same90.jpg", "-Q90")
    assert encoding_of("out80/0.jpg") == encoding_of("80.jpg") and read("90.jpg") == read("same90.jpg")
    assert encoding_of("out80/2.jpg")[-1][0] == 0xC2  # still progressive
    run("blur", "in/0.jpg", "--gray", "gray.jpg")
    assert encoding_of("gray.jpg")[0] == encoding_of("in/0.jpg")[0]


def test_progressive_and_optimized(box):
    write("a.jpg", jpeg.make(photo(190, 170), quality=80))
    for name, more in (("plain", ()), ("optimized", ("--optimize",)), ("progressive", ("--progressive",))):
        run("blur", "a.jpg", f"{name}.jpg", *more)
    pixels = [jpeg.decode(read(f"{name}.jpg")) for name in ("plain", "optimized", "progressive")]
    assert (pixels[0] == pixels[1]).all() and (pixels[0] == pixels[2]).all()
    sizes = [len(read(f"{name}.jpg")) for name in ("plain", "optimized", "progressive")]
    assert sizes[1] < sizes[0] and sizes[2] < sizes[0]
    assert encoding_of("progressive.jpg")[-1][0] == 0xC2 and encoding_of("optimized.jpg")[-1][0] == 0xC0
    assert huffman_of("plain.jpg") == huffman_of("a.jpg") != huffman_of("optimized.jpg")


def test_images_of_16_bits_are_rounded(box):
    pixels = (np.arange(64 * 64).reshape(64, 64) * 16).astype(np.uint16)
    write_png("a.png", pixels, depth=16)
    write_png("b.png", (pixels.astype(int) + 128) // 257)
    run("identity", "a.png", "a.jpg", "-Q100")
    run("identity", "b.png", "b.jpg", "-Q100")
    assert (jpeg.decode(read("a.jpg")) == jpeg.decode(read("b.jpg"))).all()


def test_alpha(box):
    pixels = photo(30, 20, 4)
    pixels[:, :, 3] = 255
    pixels[-1, -1, 3] = 254
    write_png("a.png", pixels)
    err = run("identity", "a.png", "a.jpg", code=1).err
    assert "JPEG cannot hold its transparent pixels; --to png keeps them" in err and not os.path.exists("a.jpg")
    pixels[:, :, 3] = 255
    write_png("b.png", pixels)
    run("identity", "b.png", "b.jpg", "-Q100")
    assert psnr(jpeg.decode(read("b.jpg")), pixels[:, :, :3]) > 35


def test_more_pixels_than_a_jpeg_holds(box):
    write_png("a.png", np.zeros((1, 65501), int))
    assert "JPEG holds at most 65500 per side" in run("identity", "a.png", "a.jpg", code=1).err


# --- names ---------------------------------------------------------------------------------------

def kind(name):
    return {b"\x89PNG": "png", b"\xff\xd8\xff\xe0": "jpg"}[read(name)[:4]]


@pytest.fixture
def mixed(box):
    """A folder with both formats."""
    for name in ("a.jpg", "b.JPG", "c.jpeg", "below/d.jfif"):
        write(f"in/{name}", jpeg.make(photo()))
    write_png("in/e.png", photo())
    write("in/f.txt", b"no image")
    return box


def test_a_folder_keeps_formats(mixed):
    assert "5 done" in program.closing(run("emboss", "-r", "in", "out").err)
    assert tree("out") == ["a.jpg", "b.JPG", "below/d.jfif", "c.jpeg", "e.png"]
    assert [kind(f"out/{name}") for name in tree("out")] == ["jpg", "jpg", "jpg", "jpg", "png"]
    assert "5 skipped" in run("emboss", "-r", "--skip-existing", "in", "out").err
    assert "1 done" in program.closing(run("emboss", "--include=*.png", "in", "only").err)


@pytest.mark.parametrize("to,names", (("png", ["a.png", "b.png", "below/d.png", "c.png", "e.png"]),
                                      ("jpg", ["a.jpg", "b.JPG", "below/d.jfif", "c.jpeg", "e.jpg"])))
def test_to(mixed, to, names):
    planned = run("emboss", "-r", "--dry-run", "--json", "--to", to, "in", "out").records()
    assert sorted(row["output"] for row in planned if row["type"] == "file") == [f"out/{name}" for name in names]
    run("emboss", "-r", f"--to={to}", "in", "out")
    assert tree("out") == names and {kind(f"out/{name}") for name in names} == {to}
    assert "5 skipped" in run("emboss", "-r", "--skip-existing", f"--to={to}", "in", "out").err


@pytest.mark.parametrize("options,output", ((("--to=png",), "a.png"), (("--output-type=f32",), "a.npy")))
def test_collisions_are_reported(box, options, output):
    """The second of two images with one output replaced the first one's."""
    write("in/a.jpg", jpeg.make(photo()))
    write_png("in/a.png", photo())
    result = run("identity", *options, "in", "out", code=1)
    assert f"another image has the same output, {output}" in result.err and "1 done, 1 failed" in program.closing(result.err)
    assert os.listdir("out") == [output]
    np.save("w.npy", np.ones((1, 3, 1, 1), np.float32))
    assert "another image has the same output, a.npy" in run("layer", "w.npy", "in", "maps", code=1).err


def test_an_image_that_arrives_again_keeps_its_output(box):
    """--watch: its output is not that of another image."""
    os.mkdir("in")
    with watch(box / "in", box / "out", "--to=png") as watched:
        for seed in (1, 2):
            write("new.jpg", jpeg.make(photo(seed=seed)))
            os.rename("new.jpg", "in/a.jpg")
            watched.has("a.png")
            run("emboss", "in/a.jpg", "want.png")
            until(lambda: read("out/a.png") == read("want.png"), watched.process)
        write("in/a.jpeg", read("in/a.jpg"))
        write("in/b.jpg", read("in/a.jpg"))
        watched.has("b.png")
        assert "in/a.jpeg: another image has the same output, a.png" in watched.end(code=1)


def test_output_names_and_streams(box):
    data = write("a.jpg", jpeg.make(photo()))
    write_png("b.png", photo())
    run("identity", "a.jpg", "plain")
    run("identity", "b.png", "plain2")
    assert (kind("plain"), kind("plain2")) == ("jpg", "png")
    assert run("identity", "-", "-", stdin=data).out_bytes[:2] == jpeg.SOI
    assert run("identity", "--to=png", "-", "-", stdin=data).out_bytes[:4] == b"\x89PNG"
    run("identity", "-", "named/", stdin=data)
    assert os.listdir("named") == ["stdin.jpg"], "as what it holds"
    run("identity", "--to=jpg", "b.png", "plain3")
    assert kind("plain3") == "jpg"


def test_in_place(mixed):
    before = {name: read(f"in/{name}") for name in tree("in")}
    run("emboss", "-r", "--in-place", "in")
    assert [name for name in before if read(f"in/{name}") == before[name]] == ["f.txt"]
    assert [kind(f"in/{name}") for name in before if name != "f.txt"] == ["jpg", "jpg", "jpg", "jpg", "png"]


@pytest.mark.parametrize("typed,words", (
    (("--to=gif", "a.png", "b.png"), ("--to takes png, jpg, ", "or pam, not 'gif'",)),
    (("--to=jpg", "a.png", "b.png"), ("outputs are to be JPEG", "use b.jpg")),
    (("--to=jpg", "--in-place", "a.png"), ("--in-place and --to",)),
    (("--to=jpg", "-z3", "a.png", "b.jpg"), ("--to jpg and --compress", "--quality")),
    (("-z3", "a.png", "b.jpg"), ("the output b.jpg and --compress",)),
    (("--encoder=libpng", "a.png", "b.jpg"), ("the output b.jpg and --encoder",)),
    (("-Q80", "a.png", "b.png"), ("the output b.png and --quality", "--compress")),
    (("--progressive", "a.png", "b.png"), ("the output b.png and --progressive",)),
    (("--to=png", "--optimize", "a.png", "b.png"), ("--to png and --optimize", "--compress")),
    (("-Q101", "a.png", "b.jpg"), ("--quality takes keep (the input's) or a number from 1 to 100, such as 90, not 101",)),
    (("-Qbest", "a.png", "b.jpg"), ("--quality takes keep (the input's) or a number from 1 to 100, such as 90, not best",)),
    (("--encode-on=gpu", "--progressive", "a.png", "b.jpg"), ("--encode-on gpu and --progressive", "the CPU encodes")),
    (("--output-type=u16", "a.png", "b.jpg"), ("--output-type u16", "8 bits")),
    (("a.png", "b.gif"), ("conv writes PNG, JPEG", "and PNM only", "use b.png"))))
def test_contradictions_are_refused(box, typed, words):
    write_png("a.png", photo())
    err = run("identity", *typed, code=2).err
    assert all(word in err for word in words), err
    assert os.listdir(box) == ["a.png"]


def test_resume_knows_quality_and_format(mixed):
    command = ("emboss", "in", "out", "--resume", "journal")
    assert "4 done" in program.closing(run(*command).err)
    assert "4 skipped" in run(*command).err
    assert "4 skipped" in run(*command, "--quality=keep").err
    assert "4 done" in program.closing(run(*command, "--quality=50").err)
    assert "4 done" in program.closing(run(*command, "--progressive").err)
    assert "4 done" in program.closing(run(*command, "--to=png").err)


def test_a_page_shows_jpegs(mixed):
    run("emboss", "in", "out", "--html", "page.html")
    with open("page.html", encoding="utf-8") as file:
        assert '"before":"iVBOR' in file.read()


# --- metadata ------------------------------------------------------------------------------------

XMP = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>\xc3\xa9</x:xmpmeta>"
XMP_SEGMENT = jpeg.segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP)
ICC = jpeg.profile(size=150000)
THUMBNAIL = jpeg.make(photo(16, 16))


def resource(number, data):
    return b"8BIM" + struct.pack(">HHI", number, 0, len(data)) + data + bytes(len(data) % 2)


def test_jpeg_to_jpeg(box):
    """Profile parts in a wrong order are sorted; everything that shows the old image is dropped."""
    parts = jpeg.icc_segments(ICC)
    iptc = resource(0x0404, b"\x1c\2\x78\0\7caption")
    source = jpeg.make(photo(), jpeg.exif_segment(jpeg.exif(6, THUMBNAIL)), parts[2], XMP_SEGMENT, parts[0], parts[1],
                       jpeg.segment(0xE2, b"MPF\0" + bytes(20)), jpeg.segment(0xEB, b"unknown"),
                       jpeg.segment(0xED, b"Photoshop 3.0\0" + resource(0x040C, THUMBNAIL) + iptc),
                       jpeg.segment(0xFE, b"one"), jpeg.segment(0xFE, b"two"))
    source = source[:13] + b"\1\0\x48\0\x60" + source[18:]  # dots per inch
    write("a.jpg", source)
    run("emboss", "a.jpg", "b.jpg")
    data = read("b.jpg")
    assert jpeg.segments(data)[0] == (0xE0, b"JFIF\0\1\1\1\0\x48\0\x60\0\0")
    assert jpeg.metadata(data) == [(0xE1, b"Exif\0\0" + jpeg.exif(6)), (0xE1, XMP_SEGMENT[4:]), (0xED, b"Photoshop 3.0\0" + iptc),
                                   *((part[1], part[4:]) for part in parts), (0xFE, b"one"), (0xFE, b"two")]
    assert THUMBNAIL not in data
    run("emboss", "--strip", "a.jpg", "c.jpg")
    assert jpeg.metadata(read("c.jpg")) == [(0xE1, b"Exif\0\0" + jpeg.exif(6)), *((part[1], part[4:]) for part in parts)]
    run("emboss", "--strip=all", "a.jpg", "d.jpg")
    assert jpeg.metadata(read("d.jpg")) == []


# --- orientation ---------------------------------------------------------------------------------

def upright(pixels, orientation):
    turned = (pixels, pixels[:, ::-1], pixels[::-1, ::-1], pixels[::-1], pixels.swapaxes(0, 1), np.rot90(pixels, -1),
              pixels[::-1, ::-1].swapaxes(0, 1), np.rot90(pixels))
    return turned[orientation - 1]


def camera(orientation):
    """Exif with sizes, resolutions and a subject's place."""
    entries = ((0x100, 4, 1, 61), (0x101, 4, 1, 37), (0x112, 3, 1, orientation), (0x11A, 5, 1, 146), (0x11B, 5, 1, 154), (0x8769, 4, 1, 92))
    inner = ((0x9207, 3, 1, 5), (0x9214, 3, 2, 0x20003), (0xA002, 4, 1, 61), (0xA003, 4, 1, 37))
    ifd = [struct.pack("<H", len(part)) + b"".join(struct.pack("<HHII", *entry) for entry in part) + bytes(4) for part in (entries, inner)]
    data = b"II*\0" + struct.pack("<I", 8) + ifd[0] + bytes(6) + ifd[1]
    return data + struct.pack("<4I", 72, 1, 96, 1)


def tags(tiff):
    found, todo = {}, [struct.unpack("<I", tiff[4:8])[0]]
    while todo:
        at = todo.pop()
        for i in range(struct.unpack("<H", tiff[at:at + 2])[0]):
            tag, kind, _, value = struct.unpack("<HHII", tiff[at + 2 + 12 * i:at + 14 + 12 * i])
            found[tag] = struct.unpack("<2I", tiff[value:value + 8]) if kind == 5 else value
            todo += [value] if tag == 0x8769 else []
    return found


def test_the_camera_is_a_camera():
    assert tags(camera(6)) == {0x100: 61, 0x101: 37, 0x112: 6, 0x11A: (72, 1), 0x11B: (96, 1), 0x8769: 92, 0x9207: 5, 0x9214: 0x20003,
                               0xA002: 61, 0xA003: 37}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(box, orientation):
    exif, xmp = jpeg.exif_segment(camera(orientation)), (b"<x:xmpmeta xmlns:x='adobe:ns:meta/' xmlns:tiff='http://ns.adobe.com/tiff/1.0/'>"
                                                          b"<x:a tiff:Orientation='6' tiff:Make='M'/></x:xmpmeta>")
    data = jpeg.make(photo(), exif, jpeg.segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp))
    write("a.jpg", data[:13] + struct.pack(">BHH", 1, 72, 96) + data[18:])
    want = upright(jpeg.decode(read("a.jpg")), orientation)
    run("identity", "--auto-orient", "a.jpg", "a.png")
    assert (pixels_of("a.png") == want).all()
    # Filters see the image upright, regions too; the rest is as for an image that is stored so.
    write_png("want.png", np.ascontiguousarray(want))
    for options in (("emboss",), ("emboss", "--gray"), ("emboss", "--roi=20x9+5+3", "--mix=40%"), ("emboss", "--output-type=u16"),
                    ("emboss", "--device=cpu", "--mem-limit=64M")):
        run(*options, "want.png", "want_out.png")
        run(*options, "--auto-orient", "a.jpg", "got.png")
        assert (images.read("got.png") == images.read("want_out.png")).all(), options
    # Nothing turns the output again.
    run("identity", "--auto-orient", "a.jpg", "b.jpg")
    found = dict((code, part) for code, part in jpeg.metadata(read("b.jpg")) if part.startswith(b"Exif"))
    turned, sides = tags(found[0xE1][6:]), orientation >= 5
    assert turned[0x112] == 1 and turned[0x9207] == 5
    assert (turned[0x100], turned[0x101]) == (turned[0xA002], turned[0xA003]) == ((37, 61) if sides else (61, 37))
    assert (turned[0x11A][0], turned[0x11B][0]) == ((96, 72) if sides else (72, 96))
    assert (0x9214 in turned) == (orientation == 1) == (b"tiff:Orientation" in read("b.jpg")) and b"tiff:Make" in read("b.jpg")
    assert read("b.jpg")[13:18] == struct.pack(">BHH", 1, *((96, 72) if sides else (72, 96)))
    first = read("b.jpg")
    run("identity", "--auto-orient", "--in-place", "b.jpg")
    assert jpeg.decode(read("b.jpg")).shape == jpeg.decode(first).shape == want.shape
    # Without the option the tag stays, and with --strip as well.
    for strip in ((), ("--strip",)):
        run("identity", *strip, "a.jpg", "c.jpg")
        found = [part for code, part in jpeg.metadata(read("c.jpg")) if part.startswith(b"Exif")]
        assert tags(found[0][6:])[0x112] == orientation and jpeg.decode(read("c.jpg")).shape == (37, 61, 3)
    run("identity", "--auto-orient", "--strip=all", "a.jpg", "d.jpg")
    assert jpeg.metadata(read("d.jpg")) == [] and jpeg.decode(read("d.jpg")).shape == want.shape


@pytest.mark.parametrize("orientation", range(1, 9))
def test_png_is_turned_upright(box, orientation):
    for channels, depth in ((1, 8), (3, 16), (4, 8)):
        pixels = photo(61, 37, channels).astype(int) * (257 if depth == 16 else 1)
        gamma, density = png.chunk(b"gAMA", struct.pack(">I", 45455)), png.chunk(b"pHYs", struct.pack(">IIB", 3000, 4000, 1))
        write_png("a.png", pixels, gamma + density + png.chunk(b"eXIf", jpeg.exif(orientation)), depth)
        run("identity", "--auto-orient", "a.png", "b.png")
        assert (pixels_of("b.png") == upright(pixels, orientation)).all()
        found = chunks("b.png")
        assert found[b"eXIf"] == jpeg.exif(1) and found[b"gAMA"] == gamma[8:12]
        assert found[b"pHYs"] == struct.pack(">IIB", *((4000, 3000) if orientation >= 5 else (3000, 4000)), 1)
        raw = b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n%8d\n%s\n" % (len(jpeg.exif()) + 6, (b"Exif\0\0" + jpeg.exif(orientation)).hex().encode()))
        write_png("c.png", pixels, png.chunk(b"zTXt", raw), depth)
        run("identity", "--auto-orient", "c.png", "d.png")
        assert (pixels_of("d.png") == upright(pixels, orientation)).all() and chunks("d.png")[b"eXIf"] == jpeg.exif(1)


@pytest.mark.parametrize("unit,x,y", ((0, 3, 2), (1, 72, 96), (1, 65535, 1), (2, 28, 118), (2, 65535, 1)))
def test_resolution_is_kept_exactly(box, unit, x, y):
    data = jpeg.make(photo())
    write("a.jpg", data[:13] + struct.pack(">BHH", unit, x, y) + data[18:])
    run("identity", "a.jpg", "b.jpg")
    assert read("b.jpg")[13:18] == struct.pack(">BHH", unit, x, y)


def test_jpeg_to_png_and_back(box):
    tiff = jpeg.exif(8)
    source = jpeg.make(photo(), jpeg.exif_segment(tiff), *jpeg.icc_segments(ICC), XMP_SEGMENT, jpeg.segment(0xFE, b"plain"),
                       jpeg.segment(0xFE, "größer".encode()), jpeg.segment(0xFE, b"latin \xe9"))
    source = source[:13] + b"\1\1\x2c\1\x2c" + source[18:]
    write("a.jpg", source)
    run("emboss", "a.jpg", "b.png")
    found = chunks("b.png")
    assert zlib.decompress(found[b"iCCP"].split(b"\0", 1)[1][1:]) == ICC
    assert found[b"eXIf"] == tiff and found[b"pHYs"] == struct.pack(">IIB", 11811, 11811, 1)
    data = read("b.png")
    for text in (b"iTXtXML:com.adobe.xmp\0\0\0\0\0" + XMP, b"tEXtComment\0plain", b"iTXtComment\0\0\0\0\0gr\xc3\xb6\xc3\x9fer",
                 b"tEXtComment\0latin \xe9"):
        assert text in data
    run("identity", "b.png", "c.jpg")
    assert jpeg.segments(read("c.jpg"))[0] == (0xE0, b"JFIF\0\1\1\1\1\x2c\1\x2c\0\0")
    assert sorted(jpeg.metadata(read("c.jpg"))) == sorted(jpeg.metadata(source))
    run("identity", "--strip", "a.jpg", "s.png")
    assert set(chunks("s.png")) == {b"IHDR", b"iCCP", b"eXIf", b"IDAT", b"IEND"}
    run("identity", "--strip=all", "a.jpg", "d.png")
    assert set(chunks("d.png")) == {b"IHDR", b"IDAT", b"IEND"}


def test_profiles_that_do_not_fit_are_dropped(box):
    gray = jpeg.icc_segments(jpeg.profile(b"GRAY"))
    parts = jpeg.icc_segments(ICC)
    for name, segments in (("channels", gray), ("missing", parts[:2]), ("repeated", parts[:2] + parts[:1])):
        write(f"{name}.jpg", jpeg.make(photo(), *segments))
        run("identity", f"{name}.jpg", "out.png")
        assert b"iCCP" not in chunks("out.png"), name
        run("identity", f"{name}.jpg", "out.jpg")
        assert jpeg.metadata(read("out.jpg")) == [], name
    # 64 MB of zeros in 64 kB, and data that are no zlib stream.
    for profile in (zlib.compress(bytes(64 << 20)), b"damaged"):
        write_png("a.png", photo(), png.chunk(b"iCCP", b"x\0\0" + profile))
        run("identity", "a.png", "a.jpg")
        assert jpeg.metadata(read("a.jpg")) == []


@pytest.mark.every
@pytest.mark.parametrize("tiff", (b"", b"II*\0", b"MM\0*" + b"\xff" * 40, jpeg.exif()[:20], b"II*\0\x08\0\0\0\xff\xff" + bytes(90),
                                  b"garbage" * 9000, b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 0x8769, 4, 1, 8) + bytes(4)), ids=len)
def test_damaged_exif_is_dropped(box, tiff):
    """It was carried over, and readers failed. The last one points to itself."""
    write("a.jpg", jpeg.make(photo(), jpeg.exif_segment(tiff)))
    run("identity", "a.jpg", "b.jpg")
    assert jpeg.metadata(read("b.jpg")) == []
    run("identity", "a.jpg", "b.png")
    assert b"eXIf" not in chunks("b.png")


def test_what_can_be_read_of_damaged_exif_is_kept(box):
    """A count beyond the end, a repeated tag, a value that is outside, an orientation in another type."""
    entries = ((0x112, 4, 1, 6), (0x112, 3, 1, 8), (0x10F, 2, 99, 5000), (0x110, 2, 3, 0x414141))
    tiff = b"II*\0\x08\0\0\0\xff\0" + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    write("a.jpg", jpeg.make(photo(), jpeg.exif_segment(tiff)))
    run("identity", "a.jpg", "b.jpg")
    want = b"II*\0\x08\0\0\0" + struct.pack("<H HHII HHII I", 2, 0x110, 2, 4, 0x414141, 0x112, 3, 1, 6, 0)
    assert jpeg.metadata(read("b.jpg")) == [(0xE1, b"Exif\0\0" + want)]


# --- hostile files (tests/unit/test_jpeg.c has more) ---------------------------------------------

def test_refused(box):
    good = jpeg.make(photo())
    frame = good.index(b"\xff\xc0")
    bad = {
        "cut.jpg": (good[:len(good) * 2 // 3], "truncated: ends too early"),
        "huger.jpg": (good[:frame + 5] + b"\xff\0\xff\0" + good[frame + 9:], "are more than the limit"),
        "text.jpg": (b"this is a text, not an image\n", program.NO_IMAGE),
        "gif.jpg": (b"GIF89a" + bytes(40), "PNM only (vips copy INPUT OUTPUT.png"),
    }
    for name, (data, _) in bad.items():
        write(f"in/{name}", data)
    write("in/good.jpg", good)
    err = run("identity", "in", "out", code=1).err
    for name, (_, cause) in bad.items():
        assert any(line.startswith(f"conv: in/{name}: ") and cause in line for line in err.splitlines()), f"{name}: {err}"
    assert os.listdir("out") == ["good.jpg"]


def test_jpegmem_changes_nothing(box):
    """libjpeg takes a limit of memory from the environment, and progressive images failed."""
    write("a.jpg", jpeg.make(np.tile(photo(100, 100), (4, 4, 1)), progressive=1))
    run("emboss", "a.jpg", "want.jpg")
    for limit in ("1", "1k", "0M"):
        run("emboss", "a.jpg", "got.jpg", env={**os.environ, "JPEGMEM": limit})
        assert read("got.jpg") == read("want.jpg")


# --- devices -------------------------------------------------------------------------------------

@pytest.mark.skipif(not FAULTY, reason="no faulty program")
@pytest.mark.parametrize("alpha", ((), ("--alpha=premultiply",)), ids=str)
def test_a_device_without_coders_for_jpeg(box, alpha):
    """The CPU decodes and encodes JPEG while the device may decode and encode the PNG files of the same folder."""
    write("in/a.jpg", jpeg.make(photo(20, 9)))
    write_png("in/b.png", photo(20, 9))
    write_png("in/deep.png", photo(20, 9).astype(int) * 257, depth=16)
    for to in ((), ("--to=jpg",)):
        run("emboss", *alpha, *to, "in", "want")
        command = [*RUNNER, FAULTY, "emboss", "-v", "--device=cuda", *alpha, *to, "in", "got"]
        assert b"cuda" in subprocess.run(command, check=True, timeout=program.TIMEOUT, stderr=subprocess.PIPE).stderr
    assert tree("got") == tree("want") == ["a.jpg", "b.jpg", "b.png", "deep.jpg", "deep.png"]
    for name in tree("want"):
        if kind(f"want/{name}") == "jpg":
            assert read(f"got/{name}") == read(f"want/{name}"), name
        else:
            assert (images.read(f"got/{name}") == images.read(f"want/{name}")).all(), name


def test_memory_stays_within_a_limit(box):
    """Progressive images hold all coefficients: 2 bytes per sample."""
    write("in/a.jpg", jpeg.make(np.tile(photo(100, 100), (10, 10, 1)), progressive=1))
    result = run("identity", "--mem-limit=1M", "in", "out", code=1)
    assert "--mem-limit" in result.err
