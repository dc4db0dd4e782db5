# SPDX-License-Identifier: MIT
"""What conv uses of torch, as the module torch: the environments of most tests have none."""
import contextlib, sys, types
import numpy as np
torch = types.ModuleType("torch")
enabled = True
def mode(value):
    @contextlib.contextmanager
    def set_mode():
        global enabled
        before, enabled = enabled, value
        yield
        enabled = before
    return set_mode
class Tensor:
    layout, is_cuda = "strided", False
    device = types.SimpleNamespace(type="cpu")
    def __init__(self, array, requires_grad=False):
        self.array, self.requires_grad = array, requires_grad
    dtype = property(lambda self: self.array.dtype.name)
    shape = property(lambda self: self.array.shape)
    def data_ptr(self): return self.array.ctypes.data
    def stride(self): return tuple(s // self.array.itemsize for s in self.array.strides)
    def is_neg(self): return False
    def detach(self): return Tensor(self.array)
    def cpu(self): return self
    def numpy(self):
        assert not self.requires_grad
        return self.array
    def requires_grad_(self):
        self.requires_grad = True
        return self
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **options):
        assert not self.requires_grad
        return self.array.__dlpack__()
Tensor.__module__ = "torch"
torch.Tensor, torch.strided, torch._C = Tensor, "strided", types.SimpleNamespace(_cuda_getCurrentRawStream=None)
torch.is_grad_enabled = lambda: enabled
torch.no_grad = torch.inference_mode = mode(False)
torch.enable_grad = mode(True)
torch.from_numpy = Tensor
torch.device = str
for name in ("uint8", "float32", "float16"):
    setattr(torch, name, name)
torch.empty = lambda shape, dtype, device: Tensor(np.empty(shape, dtype))
torch.empty_like = lambda tensor: Tensor(np.empty_like(tensor.array))
sys.modules["torch"] = torch
