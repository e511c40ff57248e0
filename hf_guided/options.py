"""Options that are passed down as frozen dataclasses, and the limits of compiling.

No other file reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .errors import InvalidArgument, reading, shown

# transformers stops after 20 tokens unless the caller sets a limit, which cuts nearly every structured output.
DEFAULT_MAX_NEW_TOKENS = 512

Reader = tuple[str, Callable[[str], Any]]  # an environment variable, and what reads its text


def usable_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _switch(*words: str) -> Callable[[str], Any]:
    """Reads "0" and "1" as a switch, and these words as they are."""

    def read(text: str) -> Any:
        if text not in ("0", "1", *words):
            raise ValueError(f"expected {' or '.join(map(repr, ('0', '1', *words)))}")
        return text if text in words else text == "1"

    return read


def _read(environ: Mapping[str, str] | None, cls: Callable[..., Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The options that the environment sets; each is checked by ``cls``.

    Args:
        environ: read instead of the process's environment.
        cls: the options' class.
        readers: for each option, which variable names it and what reads the text.

    Raises:
        InvalidArgument: a value that cannot be read or is refused, naming the variable.
    """
    environ = os.environ if environ is None else environ
    values = {}
    for name, (variable, read) in readers.items():
        text = environ.get(variable, "")
        if text:
            try:
                values[name] = read(text)
                cls(**{name: values[name]})
            except ValueError as error:
                raise InvalidArgument(f"{variable}={text!r}: {error}") from None
    return values


Overlap: TypeAlias = bool | Literal["auto"]


@dataclass(frozen=True)
class LoopOptions:
    """How masks are made while a model generates.

    Args:
        overlap: fill masks on a thread of their own, while the forward pass runs; without, in the call that needs them;
            "auto": on the thread only for scores on a GPU.
        mask_table_bytes: of the masks that stay on each device, and of their copy on the host; 0: none stay.
    """

    overlap: Overlap = "auto"
    mask_table_bytes: int = 32 * 2**20

    def __post_init__(self) -> None:
        if self.mask_table_bytes < 0:
            raise InvalidArgument(f"mask_table_bytes: expected 0 or more, got {self.mask_table_bytes}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> LoopOptions:
        """The defaults, overridden by the environment.

        Args:
            environ: read instead of the process's environment. HF_GUIDED_OVERLAP ("0", "1" or "auto") and
                HF_GUIDED_MASK_TABLE_BYTES are read; an empty value counts as not set.

        Raises:
            InvalidArgument: another value; the message names the variable and its valid values.
        """
        readers: dict[str, Reader] = {
            "overlap": ("HF_GUIDED_OVERLAP", _switch("auto")),
            "mask_table_bytes": ("HF_GUIDED_MASK_TABLE_BYTES", int),
        }
        return cls(**_read(environ, cls, readers))


@dataclass(frozen=True)
class CompilerOptions:
    """How much time, memory and how many threads compiling may take.

    One limit holds for one whole compile: all engines that "auto" tries spend the same CPU time. Constraints that may
    take long, by an estimate from their text alone, are compiled in a worker process that is killed at the limit. The
    others stay in this process; the native engine counts its work there, and gives up at the same point on every
    machine. Where a compile reaches ``cpu_s`` or ``memory_bytes`` first, what is served depends on the machine: a
    faster one may compile what a slower one refuses. So does what llguidance takes: at most 1 s and 128 MiB in the
    worker, because it is made again in this process.

    Args:
        workers: threads that compile; by default half the cores, rounded up.
        cache_bytes: bound on the compiled constraints that are kept.
        max_failures: how many failures are remembered, to be raised again at once, and how many warnings, to be given
            once.
        cpu_s: seconds of CPU time that one compile may take; None is no limit. A caller waits at most 60 times as many
            seconds, for the machine may be busy with other work.
        memory_bytes: memory that one compile may allocate, in addition to its vocabulary; None is no limit. It holds in
            the worker process, on Linux only.
    """

    workers: int = field(default_factory=lambda: (usable_cores() + 1) // 2)
    cache_bytes: int = 256 * 2**20
    max_failures: int = 256
    cpu_s: float | None = 10.0
    memory_bytes: int | None = 1 << 30

    @reading("CompilerOptions")
    def __post_init__(self) -> None:
        for name, least in ("workers", 1), ("cache_bytes", 0), ("max_failures", 0), ("memory_bytes", 1):
            value = getattr(self, name)
            if name == "memory_bytes" and value is None:
                continue
            if type(value) is not int or value < least:
                raise InvalidArgument(f"{name}: expected an int of {least} or more, got {shown(value)}")
        if self.cpu_s is not None and not (isinstance(self.cpu_s, (int, float)) and self.cpu_s > 0):
            raise InvalidArgument(f"cpu_s: expected seconds above 0, or None for no limit, got {shown(self.cpu_s)}")

    @property
    def wait_s(self) -> float | None:
        """How many seconds a caller waits for one compile; None waits for ever."""
        return None if self.cpu_s is None else WAIT * self.cpu_s

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> CompilerOptions:
        """The defaults, overridden by the environment.

        Args:
            environ: read instead of the process's environment. HF_GUIDED_COMPILE_WORKERS,
                HF_GUIDED_COMPILE_CACHE_BYTES, HF_GUIDED_COMPILE_MAX_FAILURES, HF_GUIDED_COMPILE_CPU_S and
                HF_GUIDED_COMPILE_MEMORY_BYTES ("none": no limit) are read; an empty value counts as not set.

        Raises:
            InvalidArgument: a value that is not a number, naming the variable.
        """
        readers: dict[str, Reader] = {
            "workers": ("HF_GUIDED_COMPILE_WORKERS", int),
            "cache_bytes": ("HF_GUIDED_COMPILE_CACHE_BYTES", int),
            "max_failures": ("HF_GUIDED_COMPILE_MAX_FAILURES", int),
            "cpu_s": ("HF_GUIDED_COMPILE_CPU_S", lambda text: None if text == "none" else float(text)),
            "memory_bytes": ("HF_GUIDED_COMPILE_MEMORY_BYTES", lambda text: None if text == "none" else int(text)),
        }
        return cls(**_read(environ, cls, readers))


@dataclass(frozen=True)
class KernelOptions:
    """Which kernel masks scores on an NVIDIA GPU; by default the Triton kernel of hf-guided.

    Args:
        hub_repository: of the Hub, loaded with the package ``kernels`` and used instead; None: nothing is loaded.
        torch_only: use torch's own operations.
    """

    hub_repository: str | None = None
    torch_only: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> KernelOptions:
        """The defaults, overridden by the environment.

        Args:
            environ: read instead of the process's environment. HF_GUIDED_KERNEL_REPOSITORY and HF_GUIDED_TORCH_ONLY
                ("0" or "1") are read; an empty value counts as not set.

        Raises:
            InvalidArgument: another value of a switch, naming the variable.
        """
        readers: dict[str, Reader] = {
            "hub_repository": ("HF_GUIDED_KERNEL_REPOSITORY", str),
            "torch_only": ("HF_GUIDED_TORCH_ONLY", _switch()),
        }
        return cls(**_read(environ, cls, readers))


def api_keys_from_env(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The keys in HF_GUIDED_API_KEY, one of which a request to the server has to give.

    Args:
        environ: read instead of the process's environment. Several keys have commas between them.
    """
    text = (os.environ if environ is None else environ).get("HF_GUIDED_API_KEY", "")
    return tuple(key.strip() for key in text.split(",") if key.strip())


@dataclass(frozen=True)
class CompileLimits:
    """Bounds on one compile.

    Args:
        max_states: of the byte automaton, before and after it is made minimal.
        max_work: units of work, each of about a microsecond.
        expect: whether to give up before anything is built where more states are to be expected: a guess.
    """

    max_states: int = 50_000
    max_work: int = 3_000_000
    expect: bool = False


WAIT = 60.0
"""Seconds that a caller waits for each second of CPU time that a compile may take."""

AGAIN_CPU_S = 1.0
AGAIN_BYTES = 128 * 2**20
"""What llguidance may take in the worker process, for its result cannot travel: it is made again in this process, where
nothing can stop it."""

NETWORK = CompileLimits(max_states=400_000, max_work=18_000_000)
"""Of the native engine. The most work is needed by 1,500 properties of one object that may all be left out."""

OUTLINES = CompileLimits(max_states=400_000)
"""Of outlines-core: its states take less memory than the native engine's, and the work is the same."""

LLGUIDANCE_MAX_CHAIN = 1500
"""References that lead to each other: llguidance follows them by recursion, without a limit of its own, and on a stack
of 8 MiB the process ends between 2,000 and 3,000."""

CALL_CPU_S = 5.0
"""CPU seconds of one call of an engine: a mask, a token. Native code cannot be interrupted, so a row whose call took
longer ends after it, alone; the other rows of its batch have waited for this one call. Engines that count their work
end it long before."""

LLGUIDANCE_MASK_ITEMS = 10_000
"""Items of its parser that one mask may make; about 0.1 s. Its own limit, 50,000, is 0.5 s of an ambiguous grammar, for
every further token. No schema of the benchmark makes 5,000."""

EBNF = CompileLimits(max_states=5_000)
"""Of intersections and complements in a grammar for xgrammar, in which each state becomes a rule."""

SEARCH_WORK = 150_000
"""Work of each of the searches for a way to the end, before a request with a token budget, where an engine knows none.
It is counted, so every machine finds the same. A unit takes about a microsecond; more if an engine's masks are slow."""

LATER_SEARCH_WORK = 30_000
"""Work of such a search inside a text, while a model waits."""

LM_FORMAT_ENFORCER_MAX_CALLS = 3_000_000
"""lm-format-enforcer has no limit of its own. Its calls are counted, so every machine takes the same constraints."""
