"""Compiles the C files of hf_guided/automaton/c when a wheel is built, or the project installed.

This is a hook of hatchling, see pyproject.toml. The wheel is one for this platform and every version of Python 3.
In a checkout, ``python -m scripts.build_core`` compiles them again.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import setuptools  # noqa: F401  # brings distutils, which Python 3.12 and later do not have
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("hf_guided", "automaton")
SOURCES = FOLDER / "c"
NAME = "core.dll" if sys.platform == "win32" else "libcore.so"  # as in core.py


class NoCompiler(Exception):
    """The core cannot be compiled here."""


class CoreHook(BuildHookInterface):
    """Puts the library beside its source, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root, FOLDER, NAME)
        try:
            compile_core(Path(self.root, SOURCES), library)
        except NoCompiler as error:
            self.app.abort(
                f"hf-guided is compiled when it is installed, which needs a C compiler (gcc, clang or MSVC): {error}; "
                "install one, or install a wheel of hf-guided for this platform"
            )
        build_data["artifacts"].append(str(FOLDER / NAME))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def compile_core(sources: Path, library: Path) -> None:
    """Compile the core with the compiler that Python's own extensions are compiled with.

    Args:
        sources: the folder of the C files.
        library: the file to write.

    Raises:
        NoCompiler: there is none, or it failed.
    """
    from distutils.ccompiler import new_compiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    customize_compiler(compiler)
    optimized = ["/O2"] if compiler.compiler_type == "msvc" else ["-O2", "-fvisibility=hidden"]
    files = sorted(map(str, sources.glob("*.c")))
    with tempfile.TemporaryDirectory() as folder:
        try:
            objects = compiler.compile(files, output_dir=folder, extra_postargs=optimized)
            compiler.link_shared_object(objects, str(library))
        except (CCompilerError, DistutilsError) as error:
            raise NoCompiler(str(error)) from error


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    compile_core(root / SOURCES, root / FOLDER / NAME)
