"""Chooses the backend of a constraint, with the reason, and compiles with it.

"auto" takes the first backend of ``candidates`` that loses nothing. All but Lark grammars have the native engine, which
is ready in about a millisecond and knows the shortest path to the end; llguidance reads Lark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..constraints.json_style import Spelling
from ..constraints.values import Constraint, Grammar, JsonSchema
from ..errors import BackendUnavailable, CompileLimitExceeded, Loss, UnsupportedConstraint
from .base import Backend, CompiledConstraint, held_spelling

AUTO = "auto"
NATIVE = "native"

_NAMED = 5  # keywords in the first line of a message; all of them are listed below it


@dataclass(frozen=True)
class BackendChoice:
    """A chosen backend."""

    backend: str
    reason: str
    considered: tuple[tuple[str, tuple[Loss, ...]], ...]  # the backends examined, in order, and their losses
    losses: tuple[Loss, ...] = ()  # losses of the chosen one; only with ``on_unsupported`` "warn" or "validate"
    spelling: Spelling | None = None  # spelling of JSON values; None where there are none


def candidates(constraint: Constraint, backend: str) -> tuple[str, ...]:
    """The names of the backends to examine, in order; ``backend`` is "auto", or a name."""
    if backend != AUTO:
        return (backend,)
    if isinstance(constraint, Grammar) and constraint.syntax == "lark":
        return ("llguidance",)  # terminals are greedy there
    return (NATIVE,)


def choose_backend(
    constraint: Constraint,
    backend: str,
    backends: Mapping[str, Backend],
    refused: Mapping[str, tuple[Loss, ...]] | None = None,
) -> BackendChoice:
    """Choose a backend; "auto" passes over those that are not installed. Only the examined ones are created.

    ``refused`` are backends that gave up only when compiling; they are not chosen again. UnsupportedConstraint: every
    candidate loses something; its losses name the backend and the JSON pointer. BackendUnavailable: the backend named,
    or all of "auto", cannot be imported. InvalidConstraint: an unknown name.
    """
    considered: list[tuple[str, tuple[Loss, ...]]] = []
    usable: list[tuple[str, tuple[Loss, ...]]] = []
    missing: BackendUnavailable | None = None
    for name in candidates(constraint, backend):
        if refused and name in refused:
            considered.append((name, refused[name]))
            continue
        try:
            losses = tuple(backends[name].losses(constraint))
        except KeyError:
            if backend != AUTO:
                raise
            continue  # "auto" uses the engines that are available
        except BackendUnavailable as error:
            missing = error
            considered.append((name, (Loss("", constraint.kind, str(error)),)))
            continue
        considered.append((name, losses))
        usable.append((name, losses))
        if not losses:
            break
    if missing is not None and not usable and not refused:
        raise missing
    # The first of those that lose least: candidates are in order of preference.
    name, losses = min(usable, key=lambda choice: len(choice[1]), default=("", ()))
    if not usable or (losses and constraint.on_unsupported == "error"):
        # A backend that gave up when compiling would have enforced everything.
        gave_up = [(name, losses) for name, losses in considered if name in (refused or {})]
        raise _unsupported(constraint, backend, gave_up or usable or considered, considered)
    spelling = held_spelling(backends[name], constraint)
    return BackendChoice(name, _reason(name, losses, backend, considered), tuple(considered), losses, spelling)


def compile_with_first(
    constraint: Constraint,
    backend: str,
    backends: Mapping[str, Backend],
    compile: Callable[[BackendChoice, Backend], CompiledConstraint],
    refused: Mapping[str, tuple[Loss, ...]] | None = None,
) -> CompiledConstraint:
    """Compile with the first engine that enforces all and does not give up; raises as ``Compiler.submit``."""
    refused = dict(refused or {})
    limit: CompileLimitExceeded | None = None
    while True:
        try:
            chosen = choose_backend(constraint, backend, backends, refused)
        except UnsupportedConstraint as error:
            if limit is None:
                raise
            if len(refused) == 1:
                raise limit from None
            # A backend would enforce it if it were smaller.
            raise CompileLimitExceeded(str(error)) from limit
        try:
            return replace(compile(chosen, backends[chosen.backend]), choice=chosen)
        except (UnsupportedConstraint, CompileLimitExceeded) as error:
            if backend != AUTO:
                raise
            losses = error.losses if isinstance(error, UnsupportedConstraint) else ()
            limit = error if isinstance(error, CompileLimitExceeded) else limit
            refused[chosen.backend] = losses or (Loss("", constraint.kind, str(error)),)


def _reason(name: str, losses: tuple[Loss, ...], backend: str, considered: list[tuple[str, tuple[Loss, ...]]]) -> str:
    enforced = f"would not enforce {_counted(losses)}" if losses else "enforces all of it"
    if backend != AUTO:
        return f"chosen by name; {enforced}"
    others = [f"{other} would not enforce {lost[0]}" for other, lost in considered if other != name and lost]
    return "; ".join([f"{enforced}, fewer than any other" if losses else enforced, *others])


def _unsupported(
    constraint: Constraint,
    backend: str,
    usable: list[tuple[str, tuple[Loss, ...]]],
    considered: list[tuple[str, tuple[Loss, ...]]],
) -> UnsupportedConstraint:
    """The error that lists the losses of the closest backend; those of the others would not help."""
    closest, losses = min(usable, key=lambda choice: len(choice[1]))
    subject = f"no backend enforces all of this {constraint.kind}"
    has_parts = {(loss.pointer, loss.keyword) for loss in losses} != {("", constraint.kind)}
    if backend != AUTO:
        subject = f"{closest} does not enforce all of this {constraint.kind}"
    elif has_parts:
        subject += f"; {closest} is closest"
    others = ", ".join(f"{name}: {len(lost)}" for name, lost in considered if name != closest)
    steps = [f"change or remove {'it' if len(losses) == 1 else 'them'}" if has_parts else "change it"]
    bounded = not isinstance(constraint, JsonSchema) or constraint.max_depth is not None
    if not bounded and backend == AUTO and [loss.keyword for loss in losses] == ["indent"]:
        steps.insert(0, "pass hg.JsonSchema(..., max_depth=...)")  # no layout is known without a depth
    elif isinstance(constraint, JsonSchema) and constraint.on_unsupported == "error":
        steps.append(
            'wrap it: hg.JsonSchema(..., on_unsupported="validate") checks the finished text, on_unsupported="warn" '
            "only warns"
        )
    if backend != AUTO:
        steps.append('choose another backend: backend="auto" tries them')
    if not has_parts:
        return UnsupportedConstraint("; ".join([subject, ", or ".join(steps)]), losses)
    pointers = [f"{loss.pointer or '/'} ({loss.keyword})" for loss in losses[:_NAMED]]
    more = [f"{len(losses) - _NAMED} more"] if len(losses) > _NAMED else []
    return UnsupportedConstraint(
        f"{subject}: {_counted(losses)} would not be enforced: {', '.join([*pointers, *more])}"
        f"{f' (of other backends, {others})' if others else ''}; {', or '.join(steps)}",
        losses,
    )


def _counted(losses: tuple[Loss, ...]) -> str:
    return "1 keyword" if len(losses) == 1 else f"{len(losses)} keywords"
