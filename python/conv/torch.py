# SPDX-License-Identifier: MIT
"""Convolutions of torch whose results do not depend on batch size, device or number of threads: the operator
torch.ops.conv.conv2d, which works in torch.compile(fullgraph=True), torch.export and torch.vmap, and modules that use it.

Gradients are those of torch, by whatever algorithm it chooses: the forward pass is exact in the sense of
`precision="exact"` of conv.layer, the backward pass is not.
"""

import math
import os
import threading
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Conv2d, LazyConv2d, Module, functional

from . import _core

__all__ = ["ExactConv2d", "conv2d", "replace"]

Pair = int | tuple[int, int]
AnyModule = TypeVar("AnyModule", bound=Module)


def _pair(number):
    return (number, number) if isinstance(number, (int, torch.SymInt)) else tuple(number)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    precision: str = "exact",
) -> Tensor:
    """torch.nn.functional.conv2d, with the bits of conv.layer.

    x:         (N, C, H, W) or (C, H, W); float32, float16 or bfloat16, which the result is, too
    weight:    (M, C / groups, kernel height, kernel width), on the device of `x`, as `bias`, (M,) or None
    stride:    as those of torch, as are padding ("same", "valid", a number, or one for each axis), dilation and groups
    precision: as that of conv.layer, where channels-last images have such results; all but "exact" use cuDNN where that is faster: the first call with a shape then
               takes up to seconds, in which it times what there is

    On CUDA the work is queued on the current stream, and a graph can capture it once the shape has been used. Weights
    are packed on the device in each call, so that changes count.
    """
    if x.dim() == 3:
        return conv2d(x[None], weight, bias, stride, padding, dilation, groups, precision)[0]
    dilation = _pair(dilation)
    if isinstance(padding, str):
        if padding not in ("same", "valid") or (padding == "same" and _pair(stride) != (1, 1)):
            raise ValueError(f"padding {padding!r} with stride {stride!r}; torch has 'valid', and 'same' with stride 1")
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, weight.shape[2:])]
        if any(number % 2 for number in total):
            x = functional.pad(x, (0, total[1] % 2, 0, total[0] % 2))
        padding = (total[0] // 2, total[1] // 2)
    return _call(x, weight, bias, _pair(stride), _pair(padding), dilation, groups, precision)


def _call(x, weight, bias, *settings):
    if _is_differentiated():
        return _Differentiated.apply(x, weight, bias, *settings)
    if not _is_plain(x, weight, bias):
        return torch.ops.conv.conv2d(x, weight, bias, *settings)
    needs_grad = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    return (_Function.apply if needs_grad and torch.is_grad_enabled() else _run)(x, weight, bias, *settings)


class ExactConv2d(Conv2d):
    """torch.nn.Conv2d by conv2d: the same parameters, state and padding modes."""

    precision = "exact"

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups, self.precision)


def replace(model: AnyModule, precision: str = "exact") -> AnyModule:
    """Makes each torch.nn.Conv2d of a model an ExactConv2d, in place: parameters, hooks and names stay. Returns the model."""
    for module in model.modules():
        if type(module) is Conv2d:
            module.__class__ = ExactConv2d
        elif type(module) is LazyConv2d:
            module.cls_to_become = ExactConv2d
        else:
            continue
        module.precision = precision
    return model


# --- the operator ---------------------------------------------------------------------------------------------------------

_library = torch.library.Library("conv", "DEF")
_library.define("conv2d(Tensor x, Tensor weight, Tensor? bias, SymInt[2] stride, SymInt[2] padding, SymInt[2] dilation, "
                "SymInt groups, str precision) -> Tensor")

# Layers by device, settings and shape of the weights, and in host memory, where a layer keeps its last weights, by the
# address of those, too: another tensor there is noticed, as its numbers are compared. The oldest ones are dropped.
_MOST_LAYERS = 1024
_MOST_NUMBERS = 1 << 27  # of all weights that are kept; a layer has them twice
_layers: dict = {}
_numbers = [0]
_lock = threading.RLock()  # of both; with a GIL, too, another thread may run between two lines
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
# What a call needs to know: (layer, shape of the result, bytes of workspace, strides of x in bytes)
_MOST_CALLS = 4096
_calls: dict = {}
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda d: torch.cuda.current_stream(d).cuda_stream)
_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_PLAIN = (Tensor, torch.nn.Parameter, type(None))


def _is_differentiated():
    """A transform of torch.func is at work, or derivatives are carried forward. Those of registered operators are not."""
    return not torch.compiler.is_compiling() and (torch._C._functorch.peek_interpreter_stack() is not None
                                                  or torch.autograd.forward_ad._current_level >= 0)


def _is_plain(x, weight, bias):
    """Nothing but arithmetic and gradients is asked for: no tracing, transforms or modes. The dispatcher then does nothing,
    and takes 40 us for it."""
    return (type(x) in _PLAIN and type(weight) in _PLAIN and type(bias) in _PLAIN and not torch.compiler.is_compiling()
            and not x.is_meta and not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()
            and not torch.jit.is_tracing())


def _prepared(key):
    with _lock:
        layer = _layers.get(key)
        if layer is None:
            device, _, shape, settings = key
            layer = _layers[key] = _core.late_layer(tuple(shape), *settings)
            _numbers[0] += 0 if device >= 0 else math.prod(shape)
            while len(_layers) > 1 and (len(_layers) > _MOST_LAYERS or _numbers[0] > _MOST_NUMBERS):
                device, _, shape, _ = oldest = next(iter(_layers))
                _numbers[0] -= 0 if device >= 0 else math.prod(shape)
                del _layers[oldest]
                _calls.clear()
        return layer


def _learn(key, x, weight, bias, settings):
    """Checks the shapes of a call, and adds what it needs to know. Its x has no strides if it has to be copied."""
    if x.dim() != 4 or weight.dim() != 4:
        raise ValueError(f"x has {x.dim()} axes and weight {weight.dim()}; 4 were expected")
    if x.shape[1] != weight.shape[1] * settings[3]:
        raise ValueError(f"x has {x.shape[1]} channels; the weights are for {weight.shape[1]} in {settings[3]} groups")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; the weights have {weight.shape[0]} maps")
    prepared = _prepared((key[0], key[1], weight.shape, key[6]))
    bytes, *sides = prepared.workspace(key[0], x.shape[0], x.shape[2], x.shape[3])
    strides = None
    exact = settings[9] in (None, "exact")  # others take no gaps
    if key[6][10]:
        strides = (0, 0, 0)
    elif x.is_contiguous() or (exact and x.stride(3) == 1 and 0 not in x.stride() and x.stride(2) >= x.shape[3]):
        strides = tuple(x.element_size() * stride for stride in x.stride()[:3])
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    _calls[key] = call = prepared, (x.shape[0], weight.shape[0], *sides), bytes, strides
    return call


def _run(x, weight, bias, stride, padding, dilation, groups, precision):
    name = _NAMES.get(x.dtype)
    if name is None:
        raise TypeError(f"x: {x.dtype}; conv2d takes float32, float16 and bfloat16")
    return run(x, weight, bias, (tuple(stride), tuple(padding), tuple(dilation), groups, None, None, name, name, 1.0, precision))


def run(x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...], out: Tensor | None = None) -> Tensor:
    """A layer whose weights are where the images are, by the settings of _core.late_layer."""
    device = x.get_device()  # -1 on the CPU
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and (tensor.dtype not in _NAMES or tensor.get_device() != device):
            raise TypeError(f"{name}: {tensor.dtype} on {tensor.device}; floats on {x.device} were expected")
    wanted = out is None and _is_channels_last(x, settings[9]) and settings[6] == settings[7]
    last = wanted and (device, x.shape, settings) not in _planar
    order = torch.channels_last if last else torch.contiguous_format
    weight, bias = _dense(weight, order), bias if bias is None else _dense(bias)
    of_weights, of_x = weight.data_ptr(), x.data_ptr()
    key = (device, of_weights if device < 0 else 0, x.shape, x.stride(), weight.shape, None if bias is None else bias.shape,
           (*settings, last))
    call = _calls.get(key)
    if call is None:
        try:
            call = _learn(key, x, weight, bias, settings)
        except Exception:
            if not last:
                raise
            _planar.add((device, x.shape, settings))
            return run(x, weight, bias, settings)
    prepared, shape, bytes, strides = call
    if strides is None or of_x % 16 or x.is_neg():
        result = run(x.resolve_neg().clone(memory_format=order), weight, bias, settings, out)
        return result.contiguous(memory_format=torch.channels_last) if wanted else result
    if out is None:
        out = torch.empty(shape, dtype=_TYPES[settings[7]], device=x.device, memory_format=order)
    elif out.shape != shape or out.dtype is not _TYPES[settings[7]] or out.get_device() != device:
        raise ValueError(f"out: an array of shape {shape} and type {settings[7]} was expected")
    elif not out.is_contiguous(memory_format=order) or out.data_ptr() % 16:
        raise BufferError("out has gaps, or does not begin at a multiple of 16 bytes")
    workspace = x.new_empty(bytes, dtype=torch.uint8) if bytes else None
    if shape[0] > 0:
        prepared.run_with(device, _raw_stream(device) if device >= 0 else 0, of_x, x.shape, strides, of_weights,
                          0 if bias is None else bias.data_ptr(), 0 if workspace is None else workspace.data_ptr(), out.data_ptr())
    return out


# What cuDNN does not take with channels last, or there is no cuDNN: images are copied.
_planar: set = set()


def _is_channels_last(x, precision):
    return (precision not in (None, "exact") and x.is_cuda and not x.is_contiguous()
            and x.is_contiguous(memory_format=torch.channels_last))


def _dense(tensor, order=torch.contiguous_format):
    return (tensor if not tensor.is_neg() else tensor.resolve_neg()).float().contiguous(memory_format=order)


for _device in ("CPU", "CUDA"):
    torch.library.impl(_library, "conv2d", _device)(_run)


@torch.library.register_fake("conv::conv2d", lib=_library)
def _fake(x, weight, bias, stride, padding, dilation, groups, precision):
    sides = [(n + 2 * p - d * (k - 1) - 1) // s + 1
             for n, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation)]
    order = torch.channels_last if _is_channels_last(x, precision) else torch.contiguous_format
    return torch.empty((x.shape[0], weight.shape[0], *sides), dtype=x.dtype, device=x.device, memory_format=order)


def _setup_context(ctx, inputs, output):
    x, weight, bias, ctx.stride, ctx.padding, ctx.dilation, ctx.groups, _ = inputs
    ctx.biases = None if bias is None else list(bias.shape)
    ctx.types = [None if tensor is None else tensor.dtype for tensor in inputs[:3]]
    ctx.save_for_backward(x, weight)
    ctx.save_for_forward(x, weight)


def _backward(ctx, grad):
    x, weight = ctx.saved_tensors
    needed = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.biases is not None and ctx.needs_input_grad[2]]
    grads = torch.ops.aten.convolution_backward(grad, x, weight.to(x.dtype), ctx.biases, ctx.stride, ctx.padding, ctx.dilation,
                                                False, [0, 0], ctx.groups, needed)
    return (*(each if each is None else each.to(dtype) for each, dtype in zip(grads, ctx.types)), None, None, None, None, None)


torch.library.register_autograd("conv::conv2d", _backward, setup_context=_setup_context, lib=_library)


class _Function(torch.autograd.Function):
    """The operator without the dispatcher. A forward without `ctx` would cost 100 us for its signature."""

    @staticmethod
    def forward(ctx, *inputs):
        _setup_context(ctx, inputs, None)
        return _run(*inputs)

    backward = staticmethod(_backward)


def _vmap(info, in_dims, x, weight, bias, *settings):
    if in_dims[1] is None and in_dims[2] is None:
        x = x.movedim(in_dims[0], 0)
        result = _call(x.flatten(0, 1), weight, bias, *settings)
        return result.unflatten(0, x.shape[:2]), 0
    each = [[tensor] * info.batch_size if dim is None else tensor.unbind(dim)
            for tensor, dim in zip((x, weight, bias), in_dims)]
    return torch.stack([_call(*tensors, *settings) for tensors in zip(*each)]), 0


torch.library.register_vmap("conv::conv2d", _vmap, lib=_library)


class _Differentiated(torch.autograd.Function):
    """The operator under transforms of torch.func and with derivatives that are carried forward."""

    setup_context, backward, vmap = staticmethod(_setup_context), staticmethod(_backward), staticmethod(_vmap)

    @staticmethod
    def forward(*inputs):
        return torch.ops.conv.conv2d(*inputs)

    @staticmethod
    def jvp(ctx, x_tangent, weight_tangent, bias_tangent, *_):
        x, weight = ctx.saved_tensors
        how = ctx.stride, ctx.padding, ctx.dilation, ctx.groups
        parts = [functional.conv2d(x_tangent, weight.to(x.dtype), None, *how) if x_tangent is not None else None,
                 functional.conv2d(x, weight_tangent.to(x.dtype), None, *how) if weight_tangent is not None else None,
                 bias_tangent.to(x.dtype)[:, None, None] if bias_tangent is not None else None]
        return sum(part for part in parts if part is not None)
