"""``hg.Model``: a model and its tokenizer bound once; a call returns one value, a batch one for each prompt."""

from __future__ import annotations

import re
from typing import Any, overload

from typing_extensions import Unpack

from ..errors import InvalidArgument, NoValue, reading
from ..session.result import GuidedResult
from ..session.result_types import Pattern, Texts, Typed, ValueT
from .api import generate
from .arguments import GenerateArguments
from .async_api import agenerate
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
        self._check_single(prompt, constraint)
        [value] = _values(self._generate(prompt, constraint, arguments), 1)
        return value

    @overload
    def batch(self, prompts: Any, constraint: Texts = None, **arguments: Unpack[GenerateArguments]) -> list[str]: ...

    @overload
    def batch(
        self, prompts: Any, constraint: Typed[ValueT], **arguments: Unpack[GenerateArguments]
    ) -> list[ValueT]: ...

    @overload
    def batch(
        self, prompts: Any, constraint: Pattern, **arguments: Unpack[GenerateArguments]
    ) -> list[re.Match[str]]: ...

    @overload
    def batch(self, prompts: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> list[Any]: ...

    def batch(self, prompts: Any, constraint: Any = None, **arguments: Any) -> list[Any]:
        """Generate an answer to each of several prompts and return their values.

        Args:
            prompts: texts, or chats.
            constraint: of all answers, or a list with one for each prompt; see ``hg.generate``.
            **arguments: the other arguments of ``hg.generate``, without ``stream``.

        Returns:
            A value for each prompt.

        Raises:
            NoValue: the first answer without a value; ``hg.generate`` returns the results of all of them.
            HFGuidedError: as for a call.
        """
        return _values(self._generate(prompts, constraint, arguments), len(as_prompts(prompts)))

    @overload
    async def acall(self, prompt: Any, constraint: Texts = None, **arguments: Unpack[GenerateArguments]) -> str: ...

    @overload
    async def acall(self, prompt: Any, constraint: Typed[ValueT], **arguments: Unpack[GenerateArguments]) -> ValueT: ...

    @overload
    async def acall(
        self, prompt: Any, constraint: Pattern, **arguments: Unpack[GenerateArguments]
    ) -> re.Match[str]: ...

    @overload
    async def acall(self, prompt: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> Any: ...

    async def acall(self, prompt: Any, constraint: Any = None, **arguments: Any) -> Any:
        """A call without blocking the event loop; see ``hg.agenerate``.

        Args:
            prompt: as for a call.
            constraint: as for a call.
            **arguments: as for a call.

        Returns:
            As a call.

        Raises:
            HFGuidedError: as a call.
        """
        self._check_single(prompt, constraint)
        [value] = _values(await agenerate(*self._bound(prompt, constraint), **self._given(arguments)), 1)
        return value

    def _check_single(self, prompt: Any, constraint: Any) -> None:
        with reading("Model"):
            check_order(prompt, constraint)
            if (count := len(as_prompts(prompt))) != 1:
                raise InvalidArgument(f"expected one prompt, got a list of {count}; use Model.batch, or hg.generate")

    def _bound(self, prompts: Any, constraint: Any) -> tuple[Any, Any, Any, Any]:
        return self._model, self._tokenizer, prompts, constraint

    def _given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = {**self._arguments, **arguments}
        if given.pop("stream", False):
            raise InvalidArgument("stream: a call returns finished values; use hg.generate(..., stream=True)")
        return given

    def _generate(self, prompts: Any, constraint: Any, arguments: dict[str, Any]) -> list[GuidedResult[Any]]:
        results: list[GuidedResult[Any]] = generate(
            *self._bound(prompts, constraint), **self._given(arguments), stream=False
        )
        return results

    def __repr__(self) -> str:
        return f"hg.Model({type(self._model).__name__}, {type(self._tokenizer).__name__})"


def _values(results: list[GuidedResult[Any]], prompts: int) -> list[Any]:
    """The values of results, of which there is one for each prompt."""
    if len(results) != prompts:
        raise InvalidArgument(
            f"expected {'one answer' if prompts == 1 else f'{prompts} answers'}, got {len(results)}; leave "
            "num_return_sequences out, or use hg.generate"
        )
    return [value_of(result) for result in results]


def value_of(result: GuidedResult[Any]) -> Any:
    """The value of a result.

    Raises:
        NoValue: the answer did not finish, or it could not be read.
    """
    if result.value is None and (result.finish_reason != "stop" or result.error is not None):
        reasons = {
            "stop": f"it could not be read: {result.error}",
            "length": f"it was cut after {len(result.token_ids)} tokens; raise max_new_tokens",
            "dead_end": result.error or "no token of this vocabulary could follow",
        }
        raise NoValue(f"the answer has no value: {reasons[result.finish_reason]}", result=result)
    return result.value
