"""``hg.Model``: a model and its tokenizer bound once; a call returns one value."""

from __future__ import annotations

import re
from typing import Any, overload

from typing_extensions import Unpack

from ..errors import InvalidArgument, NoValue, reading
from ..session.result_types import Pattern, Texts, Typed, ValueT
from .api import generate
from .arguments import GenerateArguments
from .prompts import as_prompts, check_order


class Model:
    """A shorter form of ``hg.generate``: ``hg.Model(model, tokenizer)(prompt, Person)`` is a ``Person``.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        **arguments: arguments of ``hg.generate``, used by every call that does not set its own.
    """

    def __init__(self, model: Any, tokenizer: Any, **arguments: Unpack[GenerateArguments]):
        self._model = model
        self._tokenizer = tokenizer
        self._arguments = arguments

    @overload
    def __call__(self, prompt: Any, constraint: Texts = None, **arguments: Unpack[GenerateArguments]) -> str: ...

    @overload
    def __call__(self, prompt: Any, constraint: Typed[ValueT], **arguments: Unpack[GenerateArguments]) -> ValueT: ...

    @overload
    def __call__(self, prompt: Any, constraint: Pattern, **arguments: Unpack[GenerateArguments]) -> re.Match[str]: ...

    @overload
    def __call__(self, prompt: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> Any: ...

    def __call__(self, prompt: Any, constraint: Any = None, **arguments: Any) -> Any:
        """Generate one answer and return its value.

        Args:
            prompt: one text or one chat.
            constraint: see ``hg.generate``; None gives free text.
            **arguments: the other arguments of ``hg.generate``, without ``stream``.

        Returns:
            The value, which is an instance of the type, a dict for a schema, a match for a regex, text for a choice.
            Free text may be cut by ``max_new_tokens``.

        Raises:
            NoValue: the answer did not finish, or a validator refused it; the error has the ``GuidedResult``.
            InvalidArgument: more than one prompt, or arguments that request more than one answer.
            HFGuidedError: see ``hg.generate``.
        """
        with reading("Model"):
            check_order(prompt, constraint)
            if len(as_prompts(prompt)) != 1:
                raise InvalidArgument(
                    "expected one prompt, got a list of several; use hg.generate, which returns a list of results"
                )
        given = {**self._arguments, **arguments}
        if given.pop("stream", False):
            raise InvalidArgument("stream: a call returns one finished value; use hg.generate(..., stream=True)")
        results = generate(self._model, self._tokenizer, prompt, constraint, stream=False, **given)
        if len(results) != 1:
            raise InvalidArgument(
                f"expected one answer, got {len(results)}; leave num_return_sequences out, or use hg.generate"
            )
        [result] = results
        if result.value is None and (result.finish_reason != "stop" or result.error is not None):
            reasons = {
                "stop": f"it could not be read: {result.error}",
                "length": f"it was cut after {len(result.token_ids)} tokens; raise max_new_tokens",
                "dead_end": result.error or "no token of this vocabulary could follow",
            }
            raise NoValue(f"the answer has no value: {reasons[result.finish_reason]}", result=result)
        return result.value

    def __repr__(self) -> str:
        return f"hg.Model({type(self._model).__name__}, {type(self._tokenizer).__name__})"
