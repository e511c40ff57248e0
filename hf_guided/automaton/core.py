"""The compiled loops: installing hf-guided compiles the files of the folder c into one library, which this file loads.

The signatures of its functions, and the fields of its structs, are read from the same files, so those of Python and of
C cannot differ.
"""

from __future__ import annotations

import ctypes
import re
import sys
from array import array as Array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackendUnavailable, cause

LIBRARY = Path(__file__).with_name("core.dll" if sys.platform == "win32" else "libcore.so")
_SOURCE = "".join(file.read_text("utf-8") for file in sorted(Path(__file__).with_name("c").glob("*.[ch]")))
_FUNCTION = re.compile(r"^PUBLIC (\w+ \*?)hf_guided_(\w+)\(([^)]*)\)", re.MULTILINE)
_TYPES: dict[str, Any] = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "void": None}
_TYPES |= dict.fromkeys(("Look", "Ask"), ctypes.c_void_p)
VERSION: str = re.findall(r"VERSION = (\w+)", _SOURCE)[0]


def record(*fields: int | None) -> tuple[Array[int], int]:
    """A struct of the loops, in which all fields are 64 bits long, and its address; None is a null pointer.

    The caller keeps the struct as long as the loops read it.
    """
    numbers = Array("q", [field or 0 for field in fields])
    return numbers, numbers.buffer_info()[0]


def places(struct: str) -> dict[str, int]:
    """The places of the fields of a struct in its ``record``, by their names."""
    uncommented = re.sub(r"/\*.*?\*/", "", _SOURCE, flags=re.DOTALL)
    fields = re.findall(rf"typedef struct {{([^{{}}]*)}} {struct};", uncommented)[0]
    return {name: place for place, name in enumerate(re.findall(r"(\w+)\s*[,;]", fields))}


def address(array: Any) -> int:
    """The address of a writable contiguous array, not empty; ``array.ctypes.data`` takes three times as long."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))


def signatures(source: str) -> dict[str, tuple[Any, list[Any]]]:
    """The types of the result and of the arguments of each public C function, by its name without ``hf_guided_``."""
    return {
        name: (_type(result), [_type(argument) for argument in arguments.split(",") if argument != "void"])
        for result, name, arguments in _FUNCTION.findall(source)
    }


def _type(declared: str) -> Any:
    return ctypes.c_void_p if "*" in declared else _TYPES[declared.split()[0]]


class Core:
    """The functions of the library, by their names without ``hf_guided_``.

    With ``ctypes.CDLL`` other Python threads run meanwhile; with ``ctypes.PyDLL``, for calls of some microseconds, they
    wait. BackendUnavailable is raised where the file is missing, is no library for this platform, or one of another
    version.
    """

    def __init__(self, library: Path, load: type[ctypes.CDLL] = ctypes.CDLL):
        again = "install hf-guided again, as a wheel for this platform or with a C compiler"
        try:
            functions = load(str(library))
        except OSError as error:
            raise BackendUnavailable(f"expected the compiled core in {library}, got {cause(error)}; {again}") from error
        version = getattr(functions, "hf_guided_version", int)()
        if str(version) != VERSION:
            raise BackendUnavailable(
                f"expected version {VERSION} of the compiled core, got version {version} in {library}; {again}"
            )
        for name, (result, arguments) in signatures(_SOURCE).items():
            function = getattr(functions, f"hf_guided_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


CORE = Core(LIBRARY)
QUICK = Core(LIBRARY, ctypes.PyDLL)
