# SPDX-License-Identifier: MIT
"""A program, of python/tests/test_arguments.py: calls with tensors that require grad. Its argument is `torch` or `fake_torch`."""
import sys

__import__(sys.argv[1])
import numpy as np, conv, torch
rng = np.random.default_rng(1)
arrays = {"x": rng.random((2, 3, 9, 8), dtype="f4"), "w": rng.random((4, 3, 3, 3), dtype="f4"), "b": rng.random(4, dtype="f4"),
          "m": rng.random((3, 3), dtype="f4")}
def tensors(*with_grad):
    return [torch.from_numpy(a.copy()).requires_grad_() if n in with_grad else torch.from_numpy(a.copy()) for n, a in arrays.items()]
def calls(x, w, b, m):
    return {"layer": lambda: conv.layer(x, w, b), "Layer": lambda: conv.Layer(w, b)(x), "filter": lambda: conv.filter(x, m, layout="CHW"),
            "Filter": lambda: conv.Filter(m)(x, layout="CHW"), "list": lambda: conv.filter([x, x], m, layout="CHW")[1],
            "out": lambda: conv.filter(x.detach(), m.detach(), layout="CHW", out=x), "png": lambda: conv.encode_png(x, layout="CHW")}
uses = {"layer": "xwb", "Layer": "xwb", "filter": "xm", "Filter": "xm", "list": "xm", "out": "x", "png": "x"}
plain = {name: call for name, call in calls(*tensors()).items() if name not in ("out", "png")}
wanted = {name: call().numpy() for name, call in plain.items()}
count = 0
for grad in "xwbm":
    for name, call in calls(*tensors(grad)).items():
        if grad not in uses[name]:
            continue
        try:
            call()
        except BufferError as error:
            assert "requires grad" in str(error) and "no_grad" in str(error), error
            count += 1
        else:
            raise AssertionError((grad, name))
for no_grad in (torch.no_grad, torch.inference_mode):
    with no_grad():
        for grad in "xwbm":
            some = calls(*tensors(grad))
            for name in wanted:
                result = some[name]()
                assert np.array_equal(result.numpy(), wanted[name]) and not result.requires_grad
            assert some["out"]() is not None
        with torch.enable_grad():
            try:
                conv.layer(*tensors("w")[:3])
            except BufferError:
                count += 1
x, w, b, m = tensors("x", "w", "b", "m")
assert np.array_equal(conv.layer(x.detach(), w.detach(), b.detach()).numpy(), wanted["layer"])
print("refused", count)
