# SPDX-License-Identifier: MIT
"""conv list banks and conv show of a filter bank."""
import numpy as np
import pytest

from program import run


def test_list_banks():
    text = run("list", "banks").out
    assert "gabor:SCALESxANGLES" in text and "(for example gabor:4x8)" in text
    rows = run("list", "banks", "--json").records()
    assert [row["name"] for row in rows] == [line.split()[0].split(":")[0] for line in text.splitlines()]


@pytest.mark.parametrize("name", ["gabor:2x3", "laws:9", "mr8", "log:1.5"])
def test_show_bank(name):
    text = run("show", name).out
    assert f"\n{name}: a bank of " in "\n" + text  # after the filter of the same name
    rows = run("show", name, "--json").records()
    maps = [row for row in rows if row["type"] == "map"]
    filters = [row for row in rows if row["type"] == "bank_filter"]
    assert maps[-1]["first"] + maps[-1]["count"] == len(filters)
    for row in filters:
        kernel = np.array(row["kernel"])
        assert kernel.shape == (row["height"], row["width"])
        if row["terms"]:
            total = sum(np.outer(term["column"], term["row"]) for term in row["terms"])
            assert np.allclose(total, kernel, rtol=0, atol=1e-12)


def test_wrong_banks():
    result = run("show", "gabor:4", code=2)
    assert "for example gabor:4x8" in result.err
