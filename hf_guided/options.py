"""Options that are passed down as frozen dataclasses, and the limits of compiling.

No other file reads environment variables.
"""

from __future__ import annotations

import ipaddress
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


def is_local(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or none: all addresses
        return False


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
    """How many threads compile, and what is kept of the results.

    What one compile may take is no option: work and memory are counted, so every machine serves the same constraints.

    Args:
        workers: threads that compile, those aside that take long; by default as many as cores, four at least.
        cache_bytes: bound on the compiled constraints that are kept.
        max_failures: how many failures are remembered, to be raised again at once, and how many warnings, to be given
            once.
    """

    workers: int = field(default_factory=lambda: max(4, usable_cores()))
    cache_bytes: int = 256 * 2**20
    max_failures: int = 256

    @reading("CompilerOptions")
    def __post_init__(self) -> None:
        for name, least in ("workers", 1), ("cache_bytes", 0), ("max_failures", 0):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidArgument(f"{name}: expected an int of {least} or more, got {shown(value)}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> CompilerOptions:
        """The defaults, overridden by the environment.

        Args:
            environ: read instead of the process's environment. HF_GUIDED_COMPILE_WORKERS,
                HF_GUIDED_COMPILE_CACHE_BYTES and HF_GUIDED_COMPILE_MAX_FAILURES are read; an empty value counts as not
                set.

        Raises:
            InvalidArgument: a value that is not a number, naming the variable.
        """
        readers: dict[str, Reader] = {
            "workers": ("HF_GUIDED_COMPILE_WORKERS", int),
            "cache_bytes": ("HF_GUIDED_COMPILE_CACHE_BYTES", int),
            "max_failures": ("HF_GUIDED_COMPILE_MAX_FAILURES", int),
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


WAIT_S = 600.0
"""Seconds that a caller waits for a compile at most: others may come first, on a machine that is busy."""

MOST_READ = 1_000_000
"""Steps of reading one constraint in Python, each of about a microsecond."""

MOST_BYTES = 256 * 2**20
"""Bytes of the arrays that one compile may make."""

OUTLINES_MOST_STEPS = 16_000_000
"""States of a pattern times tokens: outlines-core tries every token in every state, ten million a second, and may not
be interrupted."""

NETWORK = CompileLimits(max_states=400_000, max_work=18_000_000)
"""Of the native engine. The most work is needed by 1,500 properties of one object that may all be left out."""

OUTLINES = CompileLimits(max_states=400_000)
"""Of outlines-core: its states take less memory than the native engine's, and the work is the same."""

LLGUIDANCE_MAX_RULES = 1500
"""Rules and terminals of a grammar: llguidance follows references by recursion, without a limit of its own, and on a
stack of 8 MiB the process ends between 2,000 and 3,000 that lead to each other."""

LLGUIDANCE_FUEL, LLGUIDANCE_SCHEMA_FUEL = 20_000, 200_000
"""Work of llguidance before the first mask, in its own units: for users' grammars, and for those that are written here,
where strings without some character take more. Its default, a million, is 0.7 s and 300 MB for a pattern of 9,000
optional letters."""

CALL_CPU_S = 5.0
"""CPU seconds of one call of an engine: a mask, a token. Native code cannot be interrupted, so a row whose call took
longer ends after it, alone; the other rows of its batch have waited for this one call. Engines that count their work
end it long before."""

LLGUIDANCE_MASK_ITEMS = 10_000
"""Items of its parser that one mask may make; about 0.1 s. Its own limit, 50,000, is 0.5 s of an ambiguous grammar, for
every further token. No schema of the benchmark makes 5,000."""

EBNF = CompileLimits(max_states=5_000)
"""Of intersections and complements in a grammar for xgrammar, in which each state becomes a rule."""

SEARCH_WORK = 300_000
"""Work of the search for a way to the end of a Lark grammar, before a request with a token budget. It is counted, so
every machine finds the same. A unit takes about a microsecond; more if an engine's moves are slow."""

LATER_SEARCH_WORK = 60_000
"""Work of such a search inside a text, while a model waits."""

LM_FORMAT_ENFORCER_MAX_CALLS = 3_000_000
"""lm-format-enforcer has no limit of its own. Its calls are counted, so every machine takes the same constraints."""
