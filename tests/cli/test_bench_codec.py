# SPDX-License-Identifier: MIT
"""`conv bench codec`: completeness and consistency of its output. Speeds are not checked here."""
import json
import os
import re

from program import run


def test_codec_json(four_images):
    lines = [json.loads(line) for line in run("bench", "codec", "--json", four_images).out.splitlines()]
    assert {line["type"] for line in lines} == {"bench-codec"} and re.search(r"libpng.*\d", run("bench", "codec", four_images).out)
    assert {line["direction"] for line in lines} == {"decode", "encode"}
    assert all(2 <= line["rounds"] <= 5 and line["mb_s_min"] <= line["mb_s"] <= line["mb_s_max"] for line in lines if "error" not in line)


def test_codec_of_one_level_has_libpngs(four_images):
    lines = [json.loads(line) for line in run("bench", "codec", "-z4", "--json", four_images).out.splitlines()]
    assert {(line["name"], line["level"]) for line in lines if line["direction"] == "encode"} == {("fast", 4), ("libpng", 4), ("libpng", 1)}


def test_codec_on_threads(four_images):
    """Six seconds of measuring: figures in the release build, the table in sanitizer builds."""
    if os.environ.get("CONV_SANITIZED"):
        text = run("bench", "codec", "-j2", "--filter=blur5", four_images).out
        assert "2 threads" in text and "after blur5" in text and "decode + encode" in text
        return
    for _ in range(3):  # other processes may take the time of one of the three measurements
        lines = [json.loads(line) for line in run("bench", "codec", "-j2", "--json", four_images).out.splitlines()]
        assert {line["type"] for line in lines} == {"bench-codec-jobs"}
        assert [line["work"] for line in lines] == ["decode", "encode", "decode + encode"]
        assert all(line["jobs"] == 2 and line["images_s"] > 0 for line in lines)
        assert all(line["mb_s_core"] >= 0.4 * line["mb_s"] for line in lines)  # of two threads, by the clock
        decode, encode, both = (line["mb_s"] for line in lines)
        share = both / (1 / (1 / decode + 1 / encode))
        if 0.4 < share < 2.5:
            break
    assert 0.4 < share < 2.5, "both take as long as one after the other"
