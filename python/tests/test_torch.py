# SPDX-License-Identifier: MIT
"""conv.torch: the operator, its gradients and transforms, and networks that use it."""

import numpy as np
import pytest

import conv

torch = pytest.importorskip("torch")
import conv.torch  # noqa: E402

FORMS = ({}, {"stride": 2, "padding": 1}, {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}, {"groups": 2, "padding": 1},
         {"groups": 4, "padding": "same"}, {"padding": "same", "dilation": 2}, {"padding": "valid"})


@pytest.fixture
def tensors(rng):
    def make(groups=1, kernel=(3, 4), size=(2, 4, 13, 18)):
        shapes = size, (8, 4 // groups, *kernel), (8,)
        return [torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]

    return make


@pytest.mark.parametrize("how", FORMS, ids=str)
def test_it_is_conv_layer(tensors, how):
    x, w, b = tensors(how.get("groups", 1))
    y, wanted = conv.torch.conv2d(x, w, b, **how), torch.nn.functional.conv2d(x, w, b, **how)
    assert y.shape == wanted.shape and torch.allclose(y, wanted, atol=1e-4)
    assert torch.equal(y, conv.layer(x, w, b, **how))
    assert torch.equal(conv.torch.conv2d(x, w, b, **how, precision="fast"), conv.layer(x, w, b, **how, precision="fast"))
    assert torch.equal(conv.torch.conv2d(x[1], w, b, **how), y[1])
    for view in (x.to(memory_format=torch.channels_last), torch.cat((x, x), 3)[..., 18:], x.flip(3).flip(3), -(-x)):
        assert torch.equal(conv.torch.conv2d(view, w, b, **how), y)
    assert torch.equal(conv.torch.conv2d(x[:1].expand(3, -1, -1, -1), w, b, **how)[2], y[0])
    assert conv.torch.conv2d(x[:0], w, b, **how).shape == (0, *y.shape[1:])


def test_conv_layer_of_tensors_on_one_device(tensors, monkeypatch):
    """What conv.layer does where images and weights are on one GPU."""
    x, w, b = tensors(2)
    calls = [{"stride": [1, np.int64(2)], "dilation": (2, 1), "padding": [(1, 0), 2], "activation": "relu"}, {"border": "wrap", "padding": 2},
             {"dtype": np.float16, "padding": "same_lower", "stride": np.array([2, 2])}, {"out": torch.empty(2, 8, 11, 15)}]
    wanted = [conv.layer(x, w, b, groups=2, **how).clone() for how in calls]
    bytes = (x * 50).to(torch.uint8)
    wanted.append(conv.layer(bytes, w, b, groups=2, input_divisor=255))
    monkeypatch.setattr(conv._layer, "_is_on_device", lambda *_: True)
    for how, result in zip(calls, wanted):
        assert torch.equal(conv.layer(x, w, b, groups=2, **how), result)
    assert torch.equal(conv.layer(bytes, w, b, groups=2, input_divisor=255), wanted[-1])
    for wrong, error in (({"out": torch.empty(1)}, ValueError), ({"border": "tile5"}, ValueError), ({"dtype": "int8"}, ValueError)):
        with pytest.raises(error):
            conv.layer(x, w, b, groups=2, **wrong)
    with pytest.raises(BufferError, match="requires grad"):
        conv.layer(x, w.requires_grad_(), groups=2)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_tensors_of_16_bits(tensors, dtype):
    """Sums are of float32, whatever the tensors are, and rounded once."""
    x, w, b = tensors()
    x, half = x.to(dtype), w.to(dtype)
    wanted = conv.torch.conv2d(x.float(), w, b)
    assert torch.equal(conv.torch.conv2d(x, w, b), wanted.to(dtype))
    assert torch.equal(conv.torch.conv2d(x, w, b, precision=str(dtype)[6:].replace("bfloat", "bf").replace("float", "fp")), wanted.to(dtype))
    assert torch.equal(conv.torch.conv2d(x, half, b), conv.torch.conv2d(x.float(), half.float(), b).to(dtype))
    assert torch.equal(conv.layer(x, w, b), wanted.to(dtype)) and torch.equal(conv.layer(x, w, b, dtype="float32"), wanted)
    assert torch.equal(conv.layer(x.float(), w, b, dtype=dtype), wanted.to(dtype))
    assert torch.equal(conv.layer(x, w, b, padding=(1, 2), border="wrap"), conv.layer(x.float(), w, b, padding=(1, 2), border="wrap").to(dtype))
    out = torch.empty_like(wanted, dtype=dtype)
    assert conv.layer(x, w, b, out=out) is out and torch.equal(out, wanted.to(dtype))


def test_numpy_has_no_bfloat16(tensors):
    x, w, _ = (tensor.numpy() for tensor in tensors())
    half = x.astype(np.float16)
    assert np.array_equal(conv.layer(half, w), conv.layer(half.astype(np.float32), w).astype(np.float16))
    with pytest.raises(TypeError, match="bfloat16"):
        conv.layer(x, w, dtype="bfloat16")


def test_weights_that_change_are_noticed(tensors):
    x, w, _ = tensors()
    before = conv.torch.conv2d(x, w)
    w.data *= 2
    assert torch.equal(conv.torch.conv2d(x, w), 2 * before)
    w.numpy()[:] = 0  # of which torch knows nothing
    assert not conv.torch.conv2d(x, w).any()


@pytest.mark.parametrize("how", FORMS, ids=str)
def test_gradients_are_those_of_torch(tensors, how):
    given = tensors(how.get("groups", 1))
    results = []
    for function in (conv.torch.conv2d, torch.nn.functional.conv2d):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        (function(*leaves, **how) ** 2).sum().backward()
        results.append([leaf.grad for leaf in leaves])
    for ours, theirs in zip(*results):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3) and theirs.abs().max() > 1


def test_the_operator_is_registered_as_torch_expects(tensors):
    x, w, b = tensors(2)
    settings = ([2, 1], [1, 0], [1, 2], 2, "exact")
    for inputs in ((x, w, b), (x, w, None), (x.requires_grad_(), w.requires_grad_(), b.requires_grad_())):
        torch.library.opcheck(torch.ops.conv.conv2d.default, (*inputs, *settings))


def test_compile_export_and_vmap(tensors):
    x, w, b = tensors()
    module = conv.torch.ExactConv2d(4, 8, (3, 4), padding="same")
    module.weight.data, module.bias.data = w, b
    y = module(x)
    assert torch.equal(torch.compile(module, fullgraph=True, backend="aot_eager")(x), y)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch},)).module()
    assert torch.equal(exported(torch.cat((x, x))), torch.cat((y, y)))
    with torch.no_grad():
        assert torch.equal(torch.vmap(module)(torch.stack((x, 2 * x)))[0], y)
        filters = torch.stack((w, -w))
        assert torch.equal(torch.vmap(lambda one: conv.torch.conv2d(x, one))(filters)[1], conv.torch.conv2d(x, -w))


TRANSFORMS = (lambda f, x, w, b: torch.func.jvp(f, (x, w, b), (x + 1, w + 1, b)), lambda f, x, w, b: torch.func.jacrev(f)(x[..., :5, :6], w, b),
              lambda f, x, w, b: torch.func.jacfwd(f, 1)(x[..., :5, :6], w, b), lambda f, x, w, b: torch.vmap(f, (None, 0))(x, torch.stack((w, -w))),
              lambda f, x, w, b: torch.vmap(torch.func.grad(lambda *a: f(*a).square().sum(), 1), (0, None, None))(torch.stack((x, -x)), w, b),
              lambda f, x, w, b: torch.func.grad(lambda w: torch.vmap(f, (0, None, 0))(torch.stack((x, -x)), w, torch.stack((b, b))).square().sum())(w),
              lambda f, x, w, b: torch.func.hessian(lambda x: f(x, w, b).square().sum())(x[..., :4, :5]))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_functions(tensors, transform):
    """Derivatives that are carried forward were zeros; those of each sample raised."""
    given = tensors()
    ours, theirs = (transform(f, *given) for f in (conv.torch.conv2d, torch.nn.functional.conv2d))
    for one, other in zip(*((result if type(result) is tuple else (result,)) for result in (ours, theirs))):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


def test_gradients_of_mixed_types(tensors):
    """As under autocast, where images come from a layer of 16 bits and the weights are of 32."""
    x, w, b = (tensor.requires_grad_() for tensor in tensors())
    conv.torch.conv2d(x.bfloat16(), w, b).float().square().sum().backward()
    halves = [tensor.detach().bfloat16().requires_grad_() for tensor in (x, w, b)]
    conv.torch.conv2d(*halves).float().square().sum().backward()
    for one, other in zip((x, w, b), halves):
        assert one.grad.dtype == torch.float32 and (one.grad - other.grad).abs().max() < 2**-6 * one.grad.abs().max()
    assert conv.torch.conv2d(x.to("meta"), w.to("meta")).shape == (2, 8, 11, 15)


def test_wrong_tensors_are_refused(tensors):
    x, w, b = tensors()
    for wrong, error in (((x.double(), w), TypeError), ((x, w[:, :3]), ValueError), ((x, w, b[:3]), ValueError), ((x[0, 0], w), ValueError),
                         ((x, w, b, 2, "same"), ValueError), ((x, w, b, 1, 0, 0), ValueError), ((x[..., :2], w), ValueError)):
        with pytest.raises(error):
            conv.torch.conv2d(*wrong)


def test_replace(rng):
    modes = ("zeros", "reflect", "replicate", "circular")
    net = torch.nn.Sequential(*(torch.nn.Conv2d(6, 6, 3, padding=1, groups=3, padding_mode=mode) for mode in modes))
    lazy = conv.torch.replace(torch.nn.Sequential(torch.nn.LazyConv2d(2, 3)))
    x = torch.from_numpy(rng.standard_normal((2, 6, 9, 9), dtype=np.float32))
    wanted, names = net(x), list(net.state_dict())
    assert conv.torch.replace(net) is net and all(type(module) is conv.torch.ExactConv2d for module in net)
    assert lazy(x).shape == (2, 2, 7, 7) and type(lazy[0]) is conv.torch.ExactConv2d
    assert torch.allclose(net(x), wanted, atol=1e-5) and list(net.state_dict()) == names


def resnet(device="cpu"):
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(1)
    model = conv.torch.replace(models.resnet18(weights=None)).eval().to(device)
    model.fc = torch.nn.Identity()  # a product of matrices by torch, whose bits depend on the batch
    return model


def test_a_network_gives_the_same_bits_for_every_batch(rng):
    model, x = resnet(), torch.from_numpy(rng.standard_normal((64, 3, 64, 64), dtype=np.float32))
    with torch.no_grad():
        y = model(x)
        assert y.std() > 0.01 and torch.equal(model(x[:7]), y[:7]) and torch.equal(model(x[5:6]), y[5:6])
        conv.configure(threads=1)
        try:
            assert torch.equal(model(x[:3]), y[:3])
        finally:
            conv.configure(threads=0)


@pytest.mark.gpu
def test_a_network_on_a_gpu(rng):
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    x = torch.from_numpy(rng.standard_normal((9, 3, 64, 64), dtype=np.float32))
    first = resnet().conv1
    with torch.no_grad():
        assert torch.equal(first.cuda()(x.cuda()).cpu(), first.cpu()(x))
        model, on_device = resnet("cuda"), x.cuda()
        y = model(on_device)
        assert torch.equal(model(on_device[:1]), y[:1]) and torch.equal(model(on_device[2:9]), y[2:9])


@pytest.mark.gpu
def test_a_graph_reads_the_weights_of_the_moment(tensors):
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    x, w, b = (tensor.cuda() for tensor in tensors())
    wanted = conv.torch.conv2d(x, w, b, padding=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = conv.torch.conv2d(x, w, b, padding=1)
    graph.replay()
    assert torch.equal(y, wanted)
    w *= 2
    b *= 2
    graph.replay()
    assert torch.equal(y, 2 * wanted)
