# SPDX-License-Identifier: MIT
"""The convolution tests of ONNX and of torch, by name; skipped where those packages are not installed."""

import numpy as np
import pytest

import conv


def onnx_cases():
    try:
        from onnx.backend.test.case.node import collect_testcases
        from onnx.backend.test.loader import load_model_tests
    except ImportError:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no onnx"))]
    with np.errstate(all="ignore"):
        cases = [case for case in collect_testcases("Conv") if case.model.graph.node[0].op_type == "Conv"]
    cases += [case for case in load_model_tests(kind="pytorch-converted") if case.name.startswith("test_Conv")]
    return [pytest.param(case, id=case.name) for case in cases if "Transpose" not in case.name]


def load_case(case):
    """(model, inputs, result)"""
    import onnx

    if case.model is not None:
        (inputs, outputs) = case.data_sets[0]
        return case.model, inputs, outputs[0]
    tensors = []
    for name in ("input_0", "output_0"):
        with open(f"{case.model_dir}/test_data_set_0/{name}.pb", "rb") as file:
            tensors.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return onnx.load(f"{case.model_dir}/model.onnx"), tensors[:1], tensors[1]


@pytest.mark.parametrize("case", onnx_cases())
def test_onnx(case):
    import onnx

    model, inputs, wanted = load_case(case)
    (node,) = model.graph.node
    kept = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    kept.update(zip((value.name for value in model.graph.input if value.name not in kept), inputs))
    x, w, *bias = (kept[name] for name in node.input)
    if x.ndim > 4 or x.dtype != np.float32:
        pytest.skip(f"{x.ndim - 2} axes of {x.dtype}")
    how = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    axes, automatic, pads = x.ndim - 2, how.get("auto_pad", b"NOTSET").decode().lower(), how.get("pads")
    padding = [pads[i::axes] for i in range(axes)] if pads else "valid" if automatic == "notset" else automatic
    y = conv.layer(x, w, *bias, stride=how.get("strides", 1), padding=padding, dilation=how.get("dilations", 1),
                   groups=how.get("group", 1))
    assert y.shape == wanted.shape and np.allclose(y, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ("nn.functional.conv1d", "nn.functional.conv2d"))
def test_torch(name):
    torch = pytest.importorskip("torch")
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    (operator,) = (operator for operator in methods.op_db if operator.name == name)
    samples = list(operator.sample_inputs("cpu", torch.float32))
    assert len(samples) >= 10
    with torch.no_grad():
        for sample in samples:
            names = ("bias", "stride", "padding", "dilation", "groups")
            how = {**dict(zip(names[1:], sample.args[2:])), **sample.kwargs}
            w, bias = sample.args[0], sample.args[1] if len(sample.args) > 1 else how.pop("bias", None)
            y = conv.layer(sample.input, w, bias, **how)
            wanted = operator(sample.input, *sample.args, **sample.kwargs)
            assert y.shape == wanted.shape and torch.allclose(y, wanted, rtol=1e-4, atol=1e-4), sample
