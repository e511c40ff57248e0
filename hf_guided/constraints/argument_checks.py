"""Rules for the values of arguments: checked at the call, before anything is compiled or run.

Transformers meets a wrong value in the middle of a call and raises an unrelated error, or ignores it. Each rule here
says what was expected, and an error adds what came and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from numbers import Integral, Real
from typing import Any, NamedTuple

from ..errors import InvalidArgument, shown

_LEAVE_OUT = "leave it out for the default"
_LONGEST_STOP = 1000  # characters of a stop string
MOST_TOKENS = 2**24  # more than any vocabulary or row has


class Rule(NamedTuple):
    """The rule of a value.

    Args:
        expected: the same in words.
        holds: whether a value, other than None, is that.
        step: what to do with another value.
    """

    expected: str
    holds: Callable[[Any], bool]
    step: str = _LEAVE_OUT


def check(name: str, value: Any, rule: Rule) -> None:
    """Raise InvalidArgument where a value breaks a rule."""
    try:
        holds = rule.holds(value)
    except Exception:  # errors of the value's own methods
        holds = False
    if not holds:
        raise InvalidArgument(
            f"{name}: expected {rule.expected}, got {shown(value)} of type {type(value).__name__}; {rule.step}",
            name=name,
        )


def is_int(value: Any) -> bool:
    """Whether a value is a whole number, of Python or of numpy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(least: int, most: int | None = None, step: str = _LEAVE_OUT) -> Rule:
    """An int of ``least`` or more, up to ``most``."""
    bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
    return Rule(
        f"an int {bounds}", lambda value: is_int(value) and least <= value <= (value if most is None else most), step
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _number(expected: str, within: Callable[[Any], bool], step: str = _LEAVE_OUT) -> Rule:
    return Rule(expected, lambda value: _is_number(value) and within(value), step)


def _is_penalty(value: Any) -> bool:
    # Transformers takes an int for 1 only, which is no penalty.
    return value == 1 or (isinstance(value, float) and value > 0)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_texts(value: Any) -> bool:
    texts = [value] if isinstance(value, str) else value
    return _is_list(texts) and all(isinstance(text, str) and _is_short(text) for text in texts)


def _is_short(text: str) -> bool:
    # Transformers compares every token with every position of the text, and encodes it.
    try:
        text.encode()
    except Exception:  # half of a surrogate pair, or what a subclass raises
        return False
    return len(text) <= _LONGEST_STOP


def _is_token_ids(value: Any) -> bool:
    if hasattr(value, "tolist"):  # a tensor
        value = value.tolist()
    if not isinstance(value, (list, tuple, range, Set)):
        return is_int(value)
    return len(value) <= MOST_TOKENS and all(map(is_int, value))


def _is_bias(value: Any) -> bool:
    kind, pairs = (tuple, [*value.items()]) if isinstance(value, dict) else (list, value)
    return (
        isinstance(pairs, list)
        and len(pairs) > 0
        and all(
            isinstance(token_ids, kind) and _is_token_ids(token_ids) and min(token_ids) >= 0 and isinstance(bias, float)
            for token_ids, bias in pairs
        )
    )


FLAG = Rule("True or False", lambda value: isinstance(value, bool) or (is_int(value) and value in (0, 1)))
STREAMER = Rule(
    "an object with put() and end(), as transformers.TextStreamer has",
    lambda value: callable(getattr(value, "put", None)) and callable(getattr(value, "end", None)),
    "pass transformers.TextStreamer(tokenizer), or hg.generate(..., stream=True) for values",
)
TEXTS = Rule(
    f"a text or a list of texts of at most {_LONGEST_STOP} characters",
    _is_texts,
    'pass ["..."]; tokens that end a row are eos_token_id',
)
TOKEN_IDS = Rule("a list of token ids", lambda value: not is_int(value) and _is_token_ids(value))
OVERLAP = Rule('True, False or "auto"', lambda value: value == "auto" or FLAG.holds(value))
SHARED_BACKEND = Rule(
    '"xgrammar" or "llguidance"',
    lambda value: value in ("xgrammar", "llguidance"),
    'pass the name of the library that the server decodes with; vLLM calls llguidance "guidance"',
)
BATCH_SIZE = whole(1, step="pass how many prompts run at a time, or leave it out")

_SAMPLING_TEMPERATURE = Rule(
    "a finite float above 0 with do_sample=True",
    lambda value: _is_number(value) and _is_penalty(value),
    "for greedy decoding leave do_sample out",
)

CALL: dict[str, Rule] = {
    **dict.fromkeys(("describe", "jump_forward", "log_mass", "progress", "show_tools", "stream", "trace"), FLAG),
    "batch_size": BATCH_SIZE,
    "retries": whole(0, 1000, step="pass 0 to generate each answer once"),
    "stats": Rule("True, False or a function of SessionStats", lambda value: callable(value) or FLAG.holds(value)),
}
"""The arguments of ``hg.generate`` that are no settings of transformers; None only where the signature has it."""

SAMPLE: dict[str, Rule] = {
    "particles": whole(1, 2**24),
    "temperature": _number(
        "a number above 0", lambda value: value > 0, "hg.generate is greedy if do_sample is left out"
    ),
    "method": Rule('"expand" or "importance"', lambda value: value in ("expand", "importance")),
    "describe": FLAG,
}
"""The arguments of ``hg.sample`` that are no arguments of ``hg.generate``, or have another rule there."""

WARPERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("top_p", "top_h", "typical_p", "repetition_penalty", "encoder_repetition_penalty"), (1,)),
    **dict.fromkeys(("top_k", "min_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size"), (0,)),
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"), (0,)),
    **dict.fromkeys(("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias"), ([], {})),
    **dict.fromkeys(("exponential_decay_length_penalty", "watermarking_config", "forced_bos_token_id"), ()),
    "guidance_scale": (1,),
}
"""Settings that change the distribution of a token, each with the values, beside None, that leave it as it is."""


def _all(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


SETTINGS: dict[str, Rule] = {
    **_all("do_sample use_cache", FLAG),
    **_all("encoder_no_repeat_ngram_size min_length min_new_tokens no_repeat_ngram_size pad_token_id", whole(0)),
    **_all("num_beam_groups prompt_lookup_num_tokens", whole(1)),
    **_all("diversity_penalty guidance_scale length_penalty", _number("a number", lambda value: True)),
    **_all("min_p top_p", _number("a number from 0 to 1", lambda value: 0 <= value <= 1)),
    **_all("top_h typical_p", _number("a number above 0, up to 1", lambda value: 0 < value <= 1)),
    **_all("epsilon_cutoff eta_cutoff", _number("a number from 0 to less than 1", lambda value: 0 <= value < 1)),
    **_all(
        "encoder_repetition_penalty repetition_penalty",
        _number("a float above 0", _is_penalty, "1.0 is no penalty"),
    ),
    **_all("begin_suppress_tokens suppress_tokens", TOKEN_IDS),
    "assistant_model": Rule("a model that can generate", lambda value: callable(getattr(value, "generate", None))),
    "bad_words_ids": Rule(
        "a list of lists of token ids",
        lambda value: _is_list(value) and len(value) > 0 and all(map(TOKEN_IDS.holds, value)),
    ),
    "custom_generate": Rule(
        "a function or the name of a repository", lambda value: callable(value) or isinstance(value, str)
    ),
    "early_stopping": Rule('True, False or "never"', lambda value: value == "never" or FLAG.holds(value)),
    "eos_token_id": Rule("a token id or a list of token ids", _is_token_ids),
    "logits_processor": Rule("a list of logits processors", _is_list, "put it into a list"),
    "max_length": whole(
        1, step="pass max_new_tokens, the tokens of the answer; max_length also counts those of the prompt"
    ),
    "max_new_tokens": whole(1, step="pass how many tokens an answer may have, or leave it out"),
    "max_time": _number("seconds above 0", lambda value: value > 0),
    "num_beams": whole(1, step="1 is no beam search; leave it out for the default"),
    "num_return_sequences": whole(1, step="pass how many answers each prompt gets, or leave it out"),
    "prefix_allowed_tokens_fn": Rule("a function of batch_id and input_ids", callable),
    "sequence_bias": Rule(
        "a dict of tuples of token ids, or a list of lists of them, with a float as the bias of each",
        _is_bias,
        "pass {(token_id,): bias}",
    ),
    "stop_strings": Rule(
        f"a text or a list of texts, one or more, of at most {_LONGEST_STOP} characters",
        lambda value: TEXTS.holds(value) and len(value) > 0,
        'pass ["..."], or leave it out; tokens that end a row are eos_token_id',
    ),
    "stopping_criteria": Rule("a list of stopping criteria", _is_list, "put it into a list"),
    "streamer": STREAMER,
    "temperature": _number(
        "a number of 0 or more",
        lambda value: value >= 0,
        "for greedy decoding leave it out, for sampling pass a float above 0 with do_sample=True",
    ),
    "top_k": whole(0, step="0 is no limit; leave it out for the default"),
}
"""Settings of transformers, in every place that may hold them; None is always the default."""


def check_settings(get: Callable[[str], Any]) -> None:
    """Check the settings that generate() would use.

    Args:
        get: gives the value of a setting by name; None if it has none.

    Raises:
        InvalidArgument: a value that no generation can use.
    """
    check_each({name: get(name) for name in SETTINGS}, SETTINGS)
    if get("do_sample"):
        check_each({"temperature": get("temperature")}, {"temperature": _SAMPLING_TEMPERATURE})
    beams, answers = get("num_beams") or 1, get("num_return_sequences") or 1
    if answers > 1 and (beams > 1 or not get("do_sample")) and answers > beams:
        raise InvalidArgument(
            f"num_return_sequences: expected 1 for greedy decoding, or up to num_beams={beams} for beam search, got "
            f"{answers}; pass do_sample=True, or num_beams={answers}",
            name="num_return_sequences",
        )


def check_each(values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Check the values that are not None by the rules of the same names; raises InvalidArgument."""
    for name, value in values.items():
        if value is not None and name in rules:
            rule = rules[name]
            check(name, value, rule._replace(expected=f"{rule.expected}, or None"))
