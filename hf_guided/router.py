"""Which backend takes a constraint, and why.

"auto" takes the first backend that loses nothing: llguidance, because it is ready at once, then xgrammar for what
llguidance refuses, then the automaton for what both refuse. The automaton goes first where a text has to close within a
number of tokens, because it knows the shortest way from everywhere, and where the depth of nesting is bounded, because
no other engine does that; it has no tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .backends.base import Backend, held_spelling
from .constraints import Constraint, JsonObject, JsonSchema, StructuralTag
from .errors import BackendUnavailable, Loss, UnsupportedConstraint
from .json_style import Spelling

AUTO = "auto"
NATIVE = "automaton"


@dataclass(frozen=True)
class Route:
    """A choice.

    Args:
        backend: name of the chosen backend.
        reason: why this one.
        considered: what was looked at, in order: name, and what it would lose.
        losses: what the chosen one does not enforce; only with ``on_unsupported`` "warn" or "validate".
        spelling: how it spells JSON values; None where there are none.
    """

    backend: str
    reason: str
    considered: tuple[tuple[str, tuple[Loss, ...]], ...]
    losses: tuple[Loss, ...] = ()
    spelling: Spelling | None = None


def candidates(constraint: Constraint, backend: str, budget: bool = False) -> tuple[str, ...]:
    """The names to look at, in order."""
    if backend != AUTO:
        return (backend,)
    if isinstance(constraint, StructuralTag):
        return ("llguidance", "xgrammar")
    if budget or (isinstance(constraint, JsonSchema) and constraint.max_depth is not None):
        return (NATIVE, "llguidance", "xgrammar")
    if isinstance(constraint, JsonSchema):
        return ("llguidance", NATIVE, "xgrammar")
    return ("llguidance", "xgrammar", NATIVE)


def route(
    constraint: Constraint,
    backend: str,
    backends: Mapping[str, Backend],
    refused: Mapping[str, tuple[Loss, ...]] | None = None,
    budget: bool = False,
) -> Route:
    """Choose.

    Args:
        constraint: what is asked.
        backend: "auto", or the name of a backend.
        backends: by name; only the ones looked at are made, where they are made on demand. "auto" passes over those
            that are not there.
        refused: backends that said no only when compiling, with the reason; they are not chosen again.
        budget: whether its texts have to close within a number of tokens.

    Raises:
        UnsupportedConstraint: every candidate loses something; its losses name the backend and the JSON pointer.
        BackendUnavailable: the backend named, or all candidates of "auto", cannot be imported.
        InvalidConstraint: an unknown name.
    """
    considered: list[tuple[str, tuple[Loss, ...]]] = []
    usable: list[tuple[str, tuple[Loss, ...]]] = []
    missing: BackendUnavailable | None = None
    for name in candidates(constraint, backend, budget):
        if refused and name in refused:
            considered.append((name, refused[name]))
            continue
        try:
            losses = tuple(backends[name].losses(constraint))
        except KeyError:
            if backend != AUTO:
                raise
            continue  # "auto" does with the engines there are
        except BackendUnavailable as error:
            missing = error
            considered.append((name, (Loss("", constraint.kind, str(error)),)))
            continue
        if backend == AUTO and _misspells(backends[name], constraint):
            # Where nothing else is lost, a user who names this engine gets it.
            considered.append((name, (*losses, Loss("", "spelling", f"{name} also writes other spellings of values"))))
            continue
        considered.append((name, losses))
        usable.append((name, losses))
        if not losses:
            break
    if missing is not None and not usable and not refused:
        raise missing
    # The first of those that lose least: candidates are in order of preference.
    name, losses = min(usable, key=lambda one: len(one[1]), default=("", ()))
    if not usable or (losses and constraint.on_unsupported == "error"):
        # One that gave up when compiling would have enforced it all.
        gave_up = [(name, losses) for name, losses in considered if name in (refused or {})]
        raise _unsupported(constraint, backend, gave_up or usable or considered, considered)
    spelling = held_spelling(backends[name], constraint)
    return Route(name, _reason(name, losses, backend, considered), tuple(considered), losses, spelling)


def _misspells(backend: Backend, constraint: Constraint) -> bool:
    """Whether a backend writes values in other ways than the constraint has asked for in so many words."""
    has_option = isinstance(constraint, (JsonSchema, JsonObject))
    return has_option and held_spelling(backend, constraint) != constraint.spelling


def _reason(name: str, losses: tuple[Loss, ...], asked: str, considered: list[tuple[str, tuple[Loss, ...]]]) -> str:
    what = f"loses least ({len(losses)})" if losses else "enforces all of it"
    if asked != AUTO:
        return f"asked for by name; {what if not losses else f'loses {len(losses)}'}"
    others = [f"{other} would lose {lost[0]}" for other, lost in considered if other != name and lost]
    return "; ".join([what, *others])


def _unsupported(
    constraint: Constraint,
    backend: str,
    usable: list[tuple[str, tuple[Loss, ...]]],
    considered: list[tuple[str, tuple[Loss, ...]]],
) -> UnsupportedConstraint:
    """What the one that comes closest would lose: what the others would lose besides helps nobody."""
    closest, losses = min(usable, key=lambda one: len(one[1]))
    others = "".join(f"; {name} would lose {len(lost)}" for name, lost in considered if name != closest)
    step = "change what is lost"
    if constraint.kind == "json_schema":
        step = (
            'change the schema, or wrap it: hg.JsonSchema(..., on_unsupported="validate") checks the finished text, '
            'on_unsupported="warn" leaves out what is lost'
        )
    if backend != AUTO:
        step += '; other engines may take it: backend="auto" tries them'
    return UnsupportedConstraint(
        f"no backend enforces all of this {constraint.kind}: {closest} would lose {len(losses)}{others}; {step}", losses
    )
