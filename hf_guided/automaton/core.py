"""The compiled loops of the folder c, where the package has them.

A wheel for the platform has the library; a wheel for any platform, or an installation where no C compiler was found,
does not, and numpy computes the same in more time.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from array import array as Array
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("core.dll" if sys.platform == "win32" else "libcore.so")
_VERSION = 16  # as in public.h
_A, _N = ctypes.c_void_p, ctypes.c_int64  # the address of an array, and a number


def record(*fields: int | None) -> tuple[Array[int], int]:
    """A struct of the loops, in which all fields are 64 bits long, and its address.

    Args:
        fields: in the order of the struct; None is a null pointer.

    Returns:
        The struct, which the caller keeps as long as the loops read it, and where it stands.
    """
    numbers = Array("q", [field or 0 for field in fields])
    return numbers, numbers.buffer_info()[0]


def address(array: Any) -> int:
    """Of a contiguous array that may be written and is not empty: ``array.ctypes.data`` takes three times as long."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))


class Core:
    """The functions of the library.

    Args:
        library: its file.

    Raises:
        OSError: it is no library for this platform, or one of another version of the package.
    """

    def __init__(self, library: Path):
        self._library = ctypes.CDLL(str(library))  # lets other threads run meanwhile
        version = getattr(self._library, "hf_guided_version", int)()
        if version != _VERSION:
            raise OSError(f"its functions are of version {version}, expected {_VERSION}")
        self.descend = self._function("descend", _N, _A, _A, _A, _A, _N, _N, _N, _A, _A)
        self.leave = self._function("leave", _N, _A, _A, _A, _A, _N, _A, _N, _N, _N, _A, _A, _A, _A)
        self.differ = self._function("differ", _N, _A, _A, _A, _A, _N, _N, _A, _A, _A)
        self.change = self._function("change", _N, *[_A] * 4, _N, _N, *[_A] * 7)
        self.body = self._function("body", _N, _A, _A, _N, _N, _N)
        self.after_copy = self._function("after_copy", _N, _A, _A, _N, _A, _N, _A, _N, _N, _N, _A, _A)
        self.add_tokens = self._function("add_tokens", None, _A, _A, _A, _N, _A)
        self.subsets_begin = self._function("subsets_begin", _A, _A, _A)
        self.subsets_write = self._function("subsets_write", None, _A, _A, _A, _A)
        self.subsets_minimal = self._function("subsets_minimal", _A, _A, _A)
        self.subsets_end = self._function("subsets_end", None, _A)
        self.minimal_begin = self._function("minimal_begin", _A, _A, _N, _N, _A, _A, _N, _A, _A)
        self.minimal_write = self._function("minimal_write", None, _A, _A, _A, _A, _A)
        self.minimal_end = self._function("minimal_end", None, _A)
        self.without_words = self._function("without_words", _A, _A, _A)
        self.piece_write = self._function("piece_write", None, _A, _A, _A, _A, _A)
        self.piece_end = self._function("piece_end", None, _A)
        self.take_calls = self._function("take_calls", None, _A, _A, _N, _N, _A, ctypes.c_char_p, _N, _N, _A)
        self.product_begin = self._function("product_begin", _A, _A, _A)
        self.product_write = self._function("product_write", None, _A, _A, _A)
        self.product_end = self._function("product_end", None, _A)
        self.common_string = self._function("common_string", _N, _A, *[_N] * 4, _A, _A, _N)
        self.living = self._function("living", _N, _A, _N, _N, _A, _A)
        self.machine_new = self._function("machine_new", _A, _A)
        self.machine_end = self._function("machine_end", None, _A)
        self.machine_bytes = self._function("machine_bytes", _N, _A)
        self.machine_missing = self._function("machine_missing", _N, _A)
        self.machine_calls = self._function("machine_calls", _N, _A, _N, _N, _A, _A, _N)
        self.machine_component = self._function("machine_component", _N, _A, _N, _A)
        self.machine_table = self._function("machine_table", _N, _A, _N, _N, _A)
        self.machine_start = self._function("machine_start", _N, _A)
        self.machine_read = self._function("machine_read", _N, _A, _N, ctypes.c_char_p, _N, _A)
        self.machine_completed = self._function("machine_completed", _N, _A, _N)
        self.machine_forced = self._function("machine_forced", _N, _A, _N)
        self.machine_same_mask = self._function("machine_same_mask", _N, _A, _N)
        self.machine_mask = self._function("machine_mask", _N, _A, _N, _A, _N, _A, _N)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"hf_guided_{name}")
        function.restype, function.argtypes = result, arguments
        return function


def found(library: Path) -> Core | None:
    """The functions of a library; None where it is not there, or of no use."""
    if not library.exists() or sys.maxsize < 2**32:  # see ``record``
        return None
    try:
        return Core(library)
    except OSError as error:  # left from an earlier version, or built on another platform
        warnings.warn(
            f"{library} cannot be used, so masks take longer: {error}; install hf-guided again", RuntimeWarning, 2
        )
        return None


CORE = found(LIBRARY)
"""None where the library is not there."""
