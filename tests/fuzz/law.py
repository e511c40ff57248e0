"""The law of a constraint's text: it becomes masks, or one of our errors with a short message, within a time.

Where another judge is at hand, it also decides about what the constraint writes: ``re``, ``jsonschema``, and for GBNF a
second engine.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable
from functools import cache
from random import Random
from zlib import crc32

import jsonschema

from hf_guided.backends.base import BackendError, CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.values import Constraint, Grammar, JsonSchema, Regex, StructuralTag
from hf_guided.errors import MAX_MESSAGE, BackendUnavailable, CompileLimitExceeded, HFGuidedError, InternalError
from hf_guided.options import CompilerOptions
from tests.property import strategies as draw

CPU_S = 2.0
"""Of one compile."""
STEPS = 40
LETTERS = 'ab1 "{}[]:,\n-.é'

KINDS: dict[str, Callable[[str], Constraint]] = {
    "regex": Regex,
    "schema": JsonSchema,
    "gbnf": lambda text: Grammar(text, "gbnf"),
    "lark": lambda text: Grammar(text, "lark"),
    "tag": StructuralTag,
}


class LawBroken(AssertionError):
    """What a text has done that none may do."""


@cache
def compiler() -> Compiler:
    return Compiler(draw.tiny(), CompilerOptions(workers=1, cache_bytes=2**20))


def check(kind: str, text: str) -> bool:
    """Whether this text is a constraint. Raises LawBroken; any other exception breaks the law too."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            constraint = KINDS[kind](text)
            compiled = compiler().compile(constraint)
            finished = write(kind, compiled, Random(crc32(text.encode())))
        except HFGuidedError as error:
            expect_ours(error)
            return False
        finally:
            seconds = time.process_time() - began
            if seconds > 2 * CPU_S:
                raise LawBroken(f"took {seconds:.1f} CPU s")
        judge(compiled, finished)
    return True


def expect_ours(error: HFGuidedError) -> None:
    """The error has a short message, and says nothing of a defect."""
    if len(str(error)) > MAX_MESSAGE:
        raise LawBroken(f"a message of {len(str(error))} characters")
    failed = isinstance(error, BackendError) and not isinstance(error, (CompileLimitExceeded, BackendUnavailable))
    if failed or isinstance(error, InternalError):
        raise LawBroken(f"a defect: {error}") from error


def write(kind: str, compiled: CompiledConstraint, random: Random) -> str | None:
    """A text of the constraint; None if it did not end soon."""
    matcher = compiled.matcher()
    if not draw.allowed(matcher):
        raise LawBroken("the first mask allows nothing")
    taken = draw.walk(matcher, [random.randrange(10_000) for _ in range(STEPS)], past_the_end=False)
    while len(taken) < 2 * STEPS and not matcher.is_terminated():
        tokens = draw.allowed(matcher)
        ends = [token_id for token_id in tokens if token_id in compiled.vocabulary.stop_token_ids]
        if not tokens:
            return None
        taken.append(random.choice(ends or tokens))
        if not matcher.accept_token(taken[-1]):
            raise LawBroken(f"the token {taken[-1]} is allowed and refused")
    is_text = all(map(compiled.vocabulary.is_text, taken[:-1]))
    if not (matcher.is_terminated() and is_text):
        return None
    # Only Lark grammars and structural tags name tokens, which may be parts of a character.
    errors = "replace" if kind in ("lark", "tag") else "strict"
    return compiled.vocabulary.decode_bytes(taken).decode(errors=errors)


def judge(compiled: CompiledConstraint, finished: str | None) -> None:
    """Raise LawBroken if another judge says the opposite."""
    constraint = compiled.constraint
    if isinstance(constraint, Regex):
        random = Random(crc32(constraint.pattern.encode()))
        texts = ["".join(random.choices(LETTERS + constraint.pattern[:40], k=random.randrange(7))) for _ in range(20)]
        for text in [*texts, *([] if finished is None else [finished])]:
            if accepts_text(compiled, text) != bool(re.fullmatch(constraint.pattern, text)):
                raise LawBroken(f"{compiled.backend} and re disagree about {text!r}")
    elif isinstance(constraint, JsonSchema) and finished is not None and not names_inner_dialect(constraint.schema):
        validator = jsonschema.validators.validator_for(constraint.schema)(constraint.schema)
        if not compiled.losses and not validator.is_valid(json.loads(finished)):
            raise LawBroken(f"{compiled.backend} wrote {finished!r}, which is not valid")
    elif isinstance(constraint, Grammar) and constraint.syntax == "gbnf" and finished is not None:
        for name in {"llguidance", "xgrammar"} - {compiled.backend}:
            try:
                other = compiler().compile(constraint, name)
            except HFGuidedError as error:
                expect_ours(error)
                continue
            if not accepts_text(other, finished):
                raise LawBroken(f"{compiled.backend} wrote {finished!r}, which {name} refuses")


def names_inner_dialect(schema: object, outermost: bool = True) -> bool:
    """Whether a schema inside names a draft: the specification forbids that; jsonschema follows it."""
    if isinstance(schema, dict):
        here = "$schema" in schema and not outermost
        return here or any(names_inner_dialect(value, False) for value in schema.values())
    return isinstance(schema, list) and any(names_inner_dialect(value, False) for value in schema)


def accepts_text(compiled: CompiledConstraint, text: str) -> bool:
    """Whether a constraint accepts a text, in the tokens of its bytes."""
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, compiled.vocabulary.encode_bytes(text.encode()))) and matcher.is_completed()
