# SPDX-License-Identifier: MIT
"""DLPack as other packages export it: both versions of the protocol, flags, and how long what they export lives."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import conv

FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
READ_ONLY, IS_COPIED = 1, 2


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", FREE)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", FREE),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    """Exports an array, counts what is asked for and given back, and spoils the memory that is given back."""

    def __init__(self, array, versioned=True, flags=0, major=1, device=(1, 0), inner=(1, 0), strides=True):
        self.array, self.flags, self.major, self.device, self.inner, self.strides = array, flags, major, device, inner, strides
        self.versioned, self.calls, self.freed, self.alive = versioned, [], 0, {}

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.calls.append(options)
        if not self.versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        owned, number = self.array, len(self.calls)
        axes = ctypes.c_int64 * max(owned.ndim, 1)
        shape, strides = axes(*owned.shape), axes(*(s // owned.itemsize for s in owned.strides))

        def free(address):
            assert address == ctypes.addressof(self.alive.pop(number)[0])
            self.freed += 1

        tensor = Tensor(owned.ctypes.data - 8, *self.inner, owned.ndim, {"u": 1, "f": 2, "i": 0}[owned.dtype.kind],
                        8 * owned.itemsize, 1, ctypes.addressof(shape), ctypes.addressof(strides) if self.strides else None, 8)
        deleter = FREE(free)
        managed = (Versioned(self.major, 0, None, deleter, self.flags, tensor) if self.versioned
                   else Legacy(tensor, None, deleter))
        self.alive[number] = (managed, deleter, shape, strides, owned)
        return new_capsule(ctypes.addressof(managed), b"dltensor_versioned" if self.versioned else b"dltensor", None)


BOTH = pytest.mark.parametrize("versioned", (True, False), ids=("1.0", "0.x"))


@BOTH
@pytest.mark.parametrize("dtype", (np.uint8, np.uint16, np.float32))
def test_both_versions(noise, versioned, dtype):
    image = noise((13, 9, 3), np.uint16).astype(dtype)
    wanted = conv.filter(image, "emboss")
    for view in (image, image[::2, ::-1], image.transpose(1, 0, 2), image[:, :, :1], image[:0]):
        other = Exporter(view, versioned)
        if view.size == 0:
            with pytest.raises(ValueError, match="no pixels"):
                conv.filter(other, "emboss")
        else:
            assert np.array_equal(conv.filter(other, "emboss"), conv.filter(view, "emboss"))
        assert other.calls[0] == {"max_version": (1, 0)} and other.freed == 1 and not other.alive
        assert len(other.calls) == (1 if versioned else 2)  # an older exporter is asked again, without
    other = Exporter(image, versioned, strides=False)
    assert np.array_equal(conv.filter(other, "emboss"), wanted) and other.freed == 1


@BOTH
def test_all_functions_give_back_once(noise, versioned):
    image = noise((6, 8, 3))
    floats = noise((2, 3, 9, 8)).astype(np.float32)
    weights = noise((4, 3, 3, 3)).astype(np.float32)
    file = conv.encode_png(image)
    exporters = [Exporter(image, versioned), Exporter(np.zeros_like(image), versioned), Exporter(floats, versioned)]
    one, out, batch = exporters
    conv.filter([one, one], "emboss")
    conv.filter(one, "emboss", out=out)
    assert np.array_equal(out.array, conv.filter(image, "emboss"))
    conv.encode_png(one)
    conv.decode_png(file, out=out)
    assert np.array_equal(out.array, image)
    conv.layer(batch, weights)
    conv.layer(conv_input := Exporter(noise((1, 3, 9, 8)), versioned), weights)  # uint8, without `dtype`
    for wrong in (lambda: conv.filter(one, "emboss", out=batch), lambda: conv.filter([one, batch, 3], "emboss"),
                  lambda: conv.filter(one, "emboss", layout="CHW"), lambda: conv.filter(Exporter(image.astype("i4")), "emboss"),
                  lambda: conv.encode_png([one, batch]), lambda: conv.decode_png(b"", out=out)):
        with pytest.raises((ValueError, TypeError)):
            wrong()
    gc.collect()
    for other in [*exporters, conv_input]:
        given = sum(versioned or not call for call in other.calls)
        assert given == other.freed > 0 and not other.alive


def test_exporters_outlive_their_use(noise):
    """The memory is given back only after the library has read it: here the exporter spoils it at that moment."""

    class Spoiling(Exporter):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            managed, deleter, *rest = self.alive[len(self.calls)]

            def free(address):
                deleter(address)
                self.array[:] = 0

            spoil = FREE(free)
            managed.deleter = spoil
            self.alive[len(self.calls)] = (managed, (deleter, spoil), *rest)
            self.kept = (deleter, spoil)
            return capsule

    for shape in ((50, 40), (50, 40, 3)):
        for view in (lambda a: a, lambda a: a[::-1], lambda a: a[:, ::-2]):
            image = noise(shape)
            wanted = conv.filter(view(image), "emboss")
            other = Spoiling(view(image.copy()))
            assert np.array_equal(conv.filter(other, "emboss"), wanted) and other.freed == 1 and not other.array.any()
            assert np.array_equal(conv.decode_png(conv.encode_png(Spoiling(view(image.copy())))), view(image))


@pytest.mark.parametrize("dtype", ("float64", "int8", "uint32", "float16"))
def test_other_types(dtype):
    with pytest.raises(TypeError, match=dtype):
        conv.filter(Exporter(np.zeros((4, 4), dtype)), "emboss")


def test_flags(noise):
    image = noise((6, 8))
    wanted = conv.filter(image, "emboss")
    for flags in (READ_ONLY, IS_COPIED, READ_ONLY | IS_COPIED):
        other = Exporter(image.copy(), flags=flags)
        assert np.array_equal(conv.filter(other, "emboss"), wanted)
        for call in (lambda: conv.filter(image, "emboss", out=other), lambda: conv.decode_png(conv.encode_png(image), out=other)):
            with pytest.raises(BufferError):
                call()
        assert np.array_equal(other.array, image) and other.freed == 3
    # NumPy's arrays that are read-only, behind an object that has DLPack alone. 1.0.0 asked for the old version.
    image.flags.writeable = False

    class Only:
        def __dlpack__(self, **options):
            return image.__dlpack__(**options)

        def __dlpack_device__(self):
            return image.__dlpack_device__()

    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert np.array_equal(conv.filter(Only(), "emboss"), wanted)
        with pytest.raises(BufferError):
            conv.filter(wanted, "emboss", out=Only())


def test_what_is_refused_is_given_back(noise):
    image = noise((6, 8))
    for settings in ({"major": 2}, {"inner": (2, 0)}, {"inner": (8, 0)}):
        other = Exporter(image, **settings)
        with pytest.raises(BufferError):
            conv.filter(other, "emboss")
        assert other.freed == 1 and not other.alive
    with pytest.raises(BufferError):
        conv.filter(other := Exporter(image, device=(8, 0)), "emboss")
    assert not other.calls
    deep = Exporter(np.zeros((1,) * 6, np.uint8))
    with pytest.raises(ValueError, match="axes"):
        conv.filter(deep, "emboss")
    assert deep.freed == 1


def test_errors_of_exporters_stay(noise):
    class Failing(Exporter):
        def __dlpack__(self, **options):
            self.calls.append(options)
            raise self.error

    for error, calls in ((BufferError("not now"), 1), (RuntimeError("gone"), 1), (TypeError("not of this type"), 2)):
        other = Failing(noise((4, 4)))
        other.error = error
        with pytest.raises(type(error), match=str(error)):
            conv.filter(other, "emboss")
        assert len(other.calls) == calls
    other = Exporter(noise((4, 4)))
    other.__class__ = type("Wrong", (Exporter,), {"__dlpack__": lambda self, **options: 3})
    with pytest.raises(ValueError):
        conv.filter(other, "emboss")


def test_types_are_not_kept_alive(noise):
    """1.0.0 kept every type of which an array was passed, and all that its namespace holds."""
    image = noise((6, 8))
    wanted = conv.filter(image, "emboss")
    gone = []
    for number in range(200):
        kind = type(f"Kind{number}", (np.ndarray,) if number % 2 else (Exporter,), {})
        array = image.view(kind) if number % 2 else kind(image)
        assert np.array_equal(conv.filter(array, "emboss"), wanted)
        gone.append(weakref.ref(kind))
        del kind, array
    gc.collect()
    assert not any(kind() for kind in gone)
