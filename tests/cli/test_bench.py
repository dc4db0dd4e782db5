# SPDX-License-Identifier: MIT
"""`conv bench`: arguments, and what else is called -b; test_bench_NAME.py is about the command NAME."""
import re

import numpy as np
import pytest

import images
from program import hides_instruction_sets, run

needs_hiding = pytest.mark.skipif(not hides_instruction_sets(), reason="built without CONV_TESTS: no CONV_DISABLE")


@pytest.mark.parametrize("typed,named", (
    (("bench",), "kernels"), (("bench", "layers", "folder"), "layers"), (("bench", "layers", "--shape", "1x1x9"), "--shape"),
    (("bench", "layers", "--shape", "1x1x9x9", "--kernel", "3"), "--maps"), (("bench", "layers", "--maps", "3"), "--shape"),
    (("bench", "layers", "--shape", "1x1x9x9", "--maps", "2", "--kernel", "3x"), "--kernel"),
    (("bench", "layers", "--shape", "1x1x9x9", "--maps", "2", "--kernel", "10"), "9x9"),
    (("bench", "layers", "--shape", "1x1x0x9", "--maps", "2", "--kernel", "1"), "--shape"),
    (("bench", "layers", "--shape", "9999999x999999x99999x99999", "--maps", "2", "--kernel", "1"), "samples"),
    (("bench", "layers", "--shape", "lenet-1", "--maps", "3"), "--maps"), (("bench", "layers", "--shape", "lenet-1", "--html", "p"), "--html"),
    (("bench", "layers", "--variant", "cpu_portable"), "cpu_portable"), (("bench", "kernel"), "kernels"), (("bench", "kernels", "folder"), "kernels"),
    (("bench", "kernels", "--images"), "--images"), (("bench", "kernels", "--images=0"), "--images"),
    (("bench", "kernels", "-b", "3"), "--images"), (("bench", "codec", "x", "--images=3"), "--device cuda"),
    (("bench", "kernels", "--image-size", "axb"), "axb"), (("bench", "kernels", "--size", "axb"), "axb"), (("bench", "kernels", "--json", "--csv"), "--csv"), (("bench", "layers", "--svg"), "--shape"),
    (("bench", "kernels", "--variant", "cpu_nothing"), "cpu_nothing"), (("bench", "kernels", "--depth=9"), "depth"),
    (("bench", "streams"), "folder"), (("bench", "streams", "x", "--stage", "cpu"), "stage"),
    (("bench", "streams", "x", "--json", "--csv"), "--csv"), (("bench", "streams", "x", "--trace", "y"), "--trace"), (("bench", "codec"), "folder"), (("emboss", "--csv", "a", "b"), "conv bench")))
def test_bench_usage(box, typed, named):
    result = run(*typed, code=2)
    assert named in result.err and result.out == ""


def test_batch_is_still_a_flag_elsewhere(box):
    (box / "in").mkdir()
    (box / "in" / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(1), 9, 7).data)
    run("emboss", "--batch", "in", "out")
    run("--border=wrap", "emboss", "-b", "in", "out2")
    assert (box / "out" / "a.png").exists() and (box / "out2" / "a.png").exists()


@needs_hiding
@pytest.mark.parametrize("hidden,name", (("avx512,vnni,vbmi", "AVX-512"), ("avx2", "AVX2"), ("sse41", "SSE4.1")))
def test_conv_disable_hides_instruction_sets(box, monkeypatch, hidden, name):
    def features():
        return re.search(r"(?m)^cpu .*", run("devices").out).group()

    monkeypatch.delenv("CONV_DISABLE", raising=False)
    if name not in features():
        pytest.skip(f"no {name} here")
    monkeypatch.setenv("CONV_DISABLE", hidden)
    assert name not in features()
