"""Random texts of constraints, led by coverage: ``python -m tests.fuzz.texts regex --seconds 300``.

Needs the package ``atheris``. It starts from the texts in ``tests/fuzz/corpus``, keeps the texts that reach new lines
of our readers in the folder ``--new``, and writes those that break the law (law.py) to ``--finds``. Afterwards
``tests.fuzz.minimize`` chooses the texts that are worth keeping.
"""

from __future__ import annotations

import argparse
import atexit
import json
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import atheris

CORPUS = Path(__file__).with_name("corpus")
READERS = [f"hf_guided.{room}" for room in ("constraints", "regex", "schema", "grammars", "backends")]
with atheris.instrument_imports(include=READERS):
    from tests.fuzz import law

    for _path in sorted(CORPUS.glob("*/*"))[::10]:  # some modules are imported where they are needed first
        with suppress(Exception):
            law.check(_path.parent.name, _path.read_text())

MAX_LENGTH = 400  # characters: what is costly only because it is long is the business of other tests

WORDS = {
    "regex": r"(?= (?! (?<= (?<! (?: (?i: (?s) (?P<a> (?P=a) \1 \b \A \Z \d \W [^ {2,3} {,2} *? ++ \x41 \u00e9",
    "gbnf": r"root ::= root | ( ) [^ [a-z] {2,3} {,2} {2,} * + ? # \x41 \u00e9 . <|im_end|> \n",
    "lark": r"start: %ignore %import %json %regex %lark [max_tokens=3] [capture] <|im_end|> /a+/ ~2..3 & ~ NAME \n",
}
WORDS["tag"] = WORDS["schema"] = '" {} [] : , true null 1e3 -0 \\u0041'


class Finds:
    """The texts that broke the law; one for each place in the code.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, text: str, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "hf_guided" in frame.filename] or frames
        place = f"{type(error).__name__} {Path(own[-1].filename).name}:{own[-1].lineno}"
        name = f"{place} {str(error)[:40]}" if isinstance(error, law.LawBroken) else place
        if name not in self._known:
            self._known.add(name)
            (self._folder / f"{len(self._known)}.txt").write_bytes(text.encode())
            print(f"FIND {len(self._known)}: {place}: {str(error)[:300]}\n{text!r}", flush=True)


def parts(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value, with each of its keys or indices."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [part for key in keys for part in parts(value[key])]


def mutated_json(text: str, random: Random, values: list[Any]) -> str:
    """A JSON text in which one value is another one, or one member has another name."""
    whole = json.loads(text)
    found = parts(whole)
    if not found:
        return json.dumps(random.choice(values))
    inner, key = random.choice(found)
    others = [holder[name] for holder, name in found] + values
    kind = random.randrange(5)
    if kind == 0:
        del inner[key]
    elif kind == 1 and isinstance(inner, dict):
        names = [name for _, name in found if isinstance(name, str)]
        names += [name for value in values for _, name in parts(value) if isinstance(name, str)]
        inner[random.choice(names)] = inner.pop(key)
    elif kind == 2 and isinstance(inner, dict) and isinstance(other := random.choice(others), dict):
        inner.update(other)
    elif kind == 3 and isinstance(inner, list):
        inner.insert(key, random.choice(others))
    else:
        inner[key] = random.choice(others)
    return json.dumps(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("kind", choices=law.KINDS)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--new", type=Path, default=Path("fuzz-new"), help="a folder for texts that reach new lines")
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds"), help="a folder for texts that break the law")
    arguments = parser.parse_args()
    kind, corpus = arguments.kind, CORPUS / arguments.kind
    for folder in (arguments.new, arguments.finds):
        folder.mkdir(parents=True, exist_ok=True)
    finds = Finds(arguments.finds)
    values = []
    for path in sorted(corpus.iterdir()) if kind in ("schema", "tag") else ():
        with suppress(ValueError):  # a corpus also holds texts that are no JSON
            values.append(json.loads(path.read_text()))
    counts = {"texts": 0, "constraints": 0}

    def test(data: bytes) -> None:
        text = data.decode(errors="replace")
        counts["texts"] += 1
        try:
            counts["constraints"] += law.check(kind, text)
        except Exception as error:
            finds.add(text, error)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if values and random.random() < 0.9:
            try:
                text = data.decode()
                for _ in range(random.randint(1, 3)):
                    text = mutated_json(text, random, values)
                return text.encode()[:max_size]
            except ValueError:
                pass
        if random.random() < 0.3:
            at, word = random.randint(0, len(data)), random.choice(WORDS[kind].split(" ")).encode()
            return (data[:at] + word + data[at:])[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    options = [f"-max_len={4 * MAX_LENGTH}", f"-seed={arguments.seed}", "-timeout=60", "-rss_limit_mb=4096"]
    options += [f"-max_total_time={arguments.seconds}", str(arguments.new), str(corpus)]
    atheris.Setup([sys.argv[0], *options], test, custom_mutator=mutate)
    atexit.register(lambda: print(kind, counts, f"{len(finds)} finds"))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
