"""Where hf-guided and llguidance's own JSON grammar disagree, and why. Texts that one lets pass, read by the other.

    python -m benchmarks.bench_differential [--rounds 2] [--limit N] [--only NAME ...] [--list]

Hot random walks (bench_soundness.py) over the masks of each library write the texts: half of them are llguidance's,
through its own reading of the schema, half are those of hf-guided with every spelling and every order of keys. Neither
writes white space between values, which they bound differently. A text that the other library refuses belongs to the
first class that applies:

- invalid: `jsonschema` refuses its value, or it is no JSON, so the other is right;
- a name twice: an object has the same name twice;
- infinite: a number is more than a double can hold, which JSON's own readers turn into infinity;
- spelling: accepted as `json.dumps` writes the value, with 1.0 as 1, and with DEL escaped;
- order: accepted so with the keys in the declared order;
- value: the value itself is refused, however it is written.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.bench_schemas import Sample, load_samples
from benchmarks.bench_soundness import HotWalker
from benchmarks.common import finish, parser, table_of
from benchmarks.declared_order import DeclaredOrder
from benchmarks.oracle import Oracle, Undecided
from benchmarks.schema_libraries import HFGuidedAnyText, LLGuidance, Refused, SchemaLibrary, Walk
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import VOCABULARIES

CLASSES = ("accepted", "invalid", "a name twice", "infinite", "spelling", "order", "value", "undecided")


class _HFGuided(HFGuidedAnyText):
    whitespace = "minified"


class _LLGuidance(LLGuidance):
    overrides = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class _Repeated(Exception):
    pass


class _Infinite(Exception):
    pass


def accepts(library: SchemaLibrary, text: str) -> bool:
    """Whether the schema that was compiled last lets a text pass."""
    walk = library.again()
    return all(map(walk.accept, library.vocabulary.encode_bytes(text.encode()))) and walk.is_completed()


class Hot:
    """A walk as the hot walker wants it: it takes a stop token where the text may end."""

    def __init__(self, walk: Walk, stop_token_id: int):
        self._walk, self._stop, self.is_stopped = walk, stop_token_id, False

    def fill_next_token_bitmask(self, bitmask: Tensor) -> None:
        self._walk.fill()
        words = bitmask[0].numpy().view(np.uint32)
        words[:] = self._walk.bitmask[0].numpy().view(np.uint32)
        bit = np.uint32(1 << self._stop % 32)
        words[self._stop // 32] &= ~bit
        if self._walk.is_completed():
            words[self._stop // 32] |= bit

    def accept_token(self, token_id: int) -> bool:
        self.is_stopped = token_id == self._stop
        return self.is_stopped or self._walk.accept(token_id)

    def is_terminated(self) -> bool:
        return self.is_stopped


def why_refused(text: str, sample: Sample, reader: SchemaLibrary, oracle: Oracle) -> str:
    """The class of a text that a library refused."""
    try:
        if oracle.problem(text.encode()):
            return "invalid"
        value = json.loads(text, object_pairs_hook=_once, parse_float=_number)
    except _Repeated:
        return "a name twice"
    except _Infinite:
        return "infinite"
    except Undecided:
        return "undecided"
    if accepts(reader, _written(value)):
        return "spelling"
    return "order" if accepts(reader, _written(DeclaredOrder(sample.schema)(value))) else "value"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise _Repeated
    return names


def _number(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise _Infinite
    return int(number) if number.is_integer() else number


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("\x7f", "\\u007f")


def differences(
    writer: SchemaLibrary, reader: SchemaLibrary, samples: Sequence[Sample], rounds: int
) -> Iterator[tuple[str, str, str]]:
    """The class of each text, its schema's name and the text, of schemas that neither library refuses."""
    walker = HotWalker(writer.vocabulary)
    for sample in samples:
        try:
            for library in (writer, reader):
                library.compile(sample.schema)
        except (Refused, RuntimeError):
            continue
        oracle = Oracle(sample.schema)
        for _ in range(rounds):
            data, ending = walker.walk(Hot(writer.again(), writer.vocabulary.stop_token_ids[0]))
            if ending != "finished":
                continue
            text = data.decode()
            yield "accepted" if accepts(reader, text) else why_refused(text, sample, reader, oracle), sample.name, text


def main() -> None:
    made = parser(__doc__, "differential.csv")
    made.add_argument("--rounds", type=int, default=2, help="walks for each schema and library")
    made.add_argument("--limit", type=int, help="the first N schemas")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of schemas")
    made.add_argument("--list", action="store_true", help="print the texts that are refused")
    arguments = made.parse_args()
    samples = load_samples(arguments.only, arguments.limit)
    vocabulary = Vocabulary.from_tokenizer(VOCABULARIES["tekken"]())
    ours, theirs = _HFGuided(vocabulary), _LLGuidance(vocabulary)
    rows = []
    for writer, reader in ((ours, theirs), (theirs, ours)):
        found = list(differences(writer, reader, samples, arguments.rounds))
        counts = Counter(kind for kind, _, _ in found)
        row = {"texts_of": writer.name, "read_by": reader.name, "schemas": len({name for _, name, _ in found})}
        rows.append({**row, "texts": len(found), **{kind.replace(" ", "_"): counts[kind] for kind in CLASSES}})
        for kind, name, text in found if arguments.list else ():
            if kind != "accepted":
                print(f"{writer.name}: {kind}: {name}: {text[:300]!r}")
    finish(arguments, rows, table_of(rows), whole=not (arguments.only or arguments.limit))


if __name__ == "__main__":
    main()
