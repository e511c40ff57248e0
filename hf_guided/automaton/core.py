"""The compiled loops of token_walk.c, where the package has them.

A wheel for the platform has the library; a wheel for any platform, or an installation where no C compiler was found,
does not, and numpy computes the same in more time.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

LIBRARY = Path(__file__).with_name("token_walk.dll" if sys.platform == "win32" else "libtoken_walk.so")


class Core:
    """The functions of the library; arguments are addresses of arrays, and numbers.

    Args:
        library: its file.
    """

    def __init__(self, library: Path):
        loaded = ctypes.CDLL(str(library))  # lets other threads run meanwhile
        address, number = ctypes.c_void_p, ctypes.c_int64
        self.descend = loaded.hf_guided_descend
        self.descend.argtypes = [address, address, address, address, number, number, number, address, address]
        self.descend.restype = number
        self.add_tokens = loaded.hf_guided_add_tokens
        self.add_tokens.argtypes = [address, address, address, number, address]
        self.add_tokens.restype = None


CORE = Core(LIBRARY) if LIBRARY.exists() else None
"""None where the library is not there."""
