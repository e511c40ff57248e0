"""A GPU that is not there: tensors that say they are on it, and a count of what makes the host wait for it.

A mode over torch's functions: everything is computed on the CPU, and results of its tensors are its tensors too. As on
a GPU, tensors of the host must not be mixed with them, and ``numpy`` does not read them. What waits there is counted
here: reading a number, a branch on one, a copy from or to memory that is not pinned, an index that has to be copied, or
whose size depends on numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
_READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__", "equal", "allclose"}
_SIZES = {"nonzero", "masked_select", "unique", "argwhere"}  # the shape of the result depends on numbers
_FACTORIES = {"zeros", "ones", "full", "empty", "arange", "rand", "randn", "eye", "tensor", "as_tensor", "linspace"}
_GETTERS = {"device": DEVICE, "is_cuda": True, "is_cpu": False}


def is_on(value: Any) -> bool:
    """Whether a value is a tensor of the fake device."""
    return isinstance(value, Tensor) and getattr(value, "_on_fake_device", False)


def put(value: Tensor) -> Tensor:
    """The tensor, of the fake device from now on."""
    value._on_fake_device = True  # type: ignore[attr-defined]
    return value


def put_model(model: nn.Module) -> None:
    """The parameters and buffers of a model, of the fake device from now on."""
    for tensor in (*model.parameters(), *model.buffers()):
        put(tensor)


def take_model(model: nn.Module) -> None:
    """Undoes ``put_model``."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor._on_fake_device = False  # type: ignore[attr-defined]


class FakeDevice(TorchFunctionMode):
    """Counts in ``waits`` what makes the host wait, by the name of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            attribute = getattr(func.__self__, "__name__", "")
            if attribute in _GETTERS and is_on(args[0]):
                return _GETTERS[attribute]
            return self._kept(func(*args, **kwargs), args)
        if name in ("to", "cpu", "cuda", "type_as", "copy_", "pin_memory"):
            return self._copied(name, func, args, kwargs)
        if name == "numpy" or name == "__array__":
            if is_on(args[0]):
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
            return func(*args, **kwargs)
        if (name in _READS or name in _SIZES) and any(map(is_on, args)):
            self.waits[name] += 1
        if name in ("__getitem__", "__setitem__") and is_on(args[0]) and self._index_waits(args[1]):
            self.waits[name] += 1
        pinned = kwargs.pop("pin_memory", False)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = "cpu"
            if name in ("tensor", "as_tensor") and not is_on(args[0]):
                self.waits[name] += 1  # from memory that is not pinned
            return put(func(*args, **kwargs))
        result = func(*args, **kwargs)
        if name == "__getitem__" and isinstance(args[1], (int, slice)) and getattr(args[0], "_pinned", False):
            result._pinned = True  # a view of the same memory
        if device is not None or (name in _FACTORIES and not any(map(is_on, args))):
            if pinned:
                result._pinned = True
            return result
        self._check_mixture(name, args)
        return self._kept(result, args)

    def _copied(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        source, others = args[0], list(args[1:])
        if name == "pin_memory":
            result = source.clone()
            result._pinned = True
            return result
        if name == "copy_":
            if is_on(source) != is_on(others[0]) and not self._is_quick(others[0], source, kwargs):
                self.waits[name] += 1
            return func(*args, **kwargs)
        target = kwargs.get("device")
        for i, value in enumerate(others):
            if isinstance(value, (str, torch.device)):
                target, others[i] = torch.device(value), torch.device("cpu")
            elif isinstance(value, Tensor):
                target, others[i] = DEVICE if is_on(value) else torch.device("cpu"), value.dtype
        if "device" in kwargs and kwargs["device"] is not None:
            target, kwargs["device"] = torch.device(kwargs["device"]), torch.device("cpu")
        if name in ("cpu", "cuda"):
            target = torch.device(name)
        there = is_on(source) if target is None else torch.device(target).type == "cuda"
        if there == is_on(source):
            return self._kept(func(source, *others, **kwargs), args)
        if not self._is_quick(source, None, kwargs) and source.numel():
            self.waits[f"{name} {'device' if there else 'host'}"] += 1
        result = source.detach().clone() if name == "cuda" else func(source, *others, **kwargs)
        result = result.clone()  # a copy, never the same memory
        return put(result) if there else result

    @staticmethod
    def _is_quick(source: Tensor, target: Tensor | None, kwargs: dict[str, Any]) -> bool:
        pinned = getattr(source, "_pinned", False) or getattr(target, "_pinned", False)
        return bool(kwargs.get("non_blocking") and pinned)

    @staticmethod
    def _index_waits(index: Any) -> bool:
        parts = index if isinstance(index, tuple) else (index,)
        return any(
            isinstance(part, (list, range))
            or (isinstance(part, Tensor) and (part.dtype == torch.bool or not is_on(part)))
            for part in parts
        )

    @staticmethod
    def _check_mixture(name: str, args: Any) -> None:
        flat = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        tensors = [one for one in flat if isinstance(one, Tensor)]
        if any(map(is_on, tensors)) and name not in ("__getitem__", "__setitem__"):
            stray = [one for one in tensors if not is_on(one) and one.dim() > 0]
            assert not stray, (
                f"{name}: expected all tensors on one device, got {[one.shape for one in stray]} on the CPU"
            )

    @staticmethod
    def _kept(result: Any, args: Any) -> Any:
        flat = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        if any(map(is_on, flat)):
            for one in result if isinstance(result, (list, tuple)) else (result,):
                if isinstance(one, Tensor):
                    put(one)
        return result


class FakeTransfers:
    """``CudaTransfers`` of the fake device; the host's wait for a copy is counted."""

    def __init__(self, device: torch.device, mode: FakeDevice | None = None):
        self.device = device
        self._mode = mode

    def to_device(self, pieces: Sequence[Tensor]) -> Any:
        return _FakeTransfer(put(torch.cat([piece.clone() for piece in pieces])), self._mode)

    def to_host(self, source: Tensor) -> Any:
        with torch._C.DisableTorchFunction():
            copy = source.detach().clone()
        return _FakeTransfer(copy, self._mode)


class _FakeTransfer:
    def __init__(self, tensor: Tensor, mode: FakeDevice | None):
        self.tensor = tensor
        self._mode = mode

    def join(self) -> None:
        pass

    def synchronize(self) -> None:
        if self._mode is not None and not is_on(self.tensor):
            self._mode.waits["copy to host"] += 1


class FakeOrder:
    """There is one stream, and everything is done at once; see ``StreamOrder``."""

    def enter(self) -> None:
        pass

    def leave(self) -> FakeOrder:
        return self

    def synchronize(self) -> None:
        pass
