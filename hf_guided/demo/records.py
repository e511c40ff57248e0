"""Texts for classes of the user's own: a few facts, stated freely, and a class that asks for some of them in any order.

The demo model learns from these to write the value that a key asks for, whatever the keys are. A prompt never says
which keys will come; under guidance the grammar writes them.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, create_model

from hf_guided.demo import phrases, words
from hf_guided.demo.data import _WRITERS, ANY_KIND, KINDS, Split, _date, _draw, _made_up, _word, make_prompt
from hf_guided.demo.phrases import Topic

_NUMBER_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_TEENS = (*words.NUMBER_WORDS, "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
_UNITS = {
    "EUR": ("euros", "EUR", "euro", "€"),
    "USD": ("dollars", "US dollars", "USD", "$"),
    "GBP": ("pounds", "GBP", "£"),
    "CHF": ("francs", "Swiss francs", "CHF"),
    "JPY": ("yen", "JPY"),
}


@dataclass(frozen=True)
class Record:
    """A text, and a class that asks for some of what it states.

    Attributes:
        prompt: the model's input.
        fields: name to type, in output order: str, int, float, Decimal, bool, date, a Literal, a list of str, one of
            these or None, or a dict of the same for a nested class.
        record: the right values as JSON has them; a number that the text writes with decimals is a Decimal.
    """

    prompt: str
    fields: dict[str, Any]
    record: dict[str, Any]


@dataclass
class Fact:
    """A thing that a text may state: its phrases are ready, the value in them."""

    names: list[str]
    types: list[Any]
    value: Any
    labels: list[str] = field(default_factory=list)
    written: str = ""
    be: list[str] = field(default_factory=list)
    do: list[str] = field(default_factory=list)
    tag: list[str] = field(default_factory=list)
    say: list[str] = field(default_factory=list)
    bare: bool = False  # it says what it is without a label
    general: str = ""  # a name that fits as long as no other fact of the text has it


def records(n: int, seed: int = 0, split: Split = "held_out", *, common: bool = False) -> list[Record]:
    """Generate records.

    Args:
        n: how many.
        seed: the same seed, split and n give the same records.
        split: "train" for the training data, "held_out" for names it has never seen together.
        common: only the ten kinds of fields that most classes have: name, e-mail, phone, age, city, date, amount with
            its currency, yes or no, one of a list, list of names. Texts of the three kinds are then left out.

    Returns:
        A new list of `n` records.
    """
    stream = iter_records(seed, split, common=common)
    return [next(stream) for _ in range(n)]


def iter_records(seed: int, split: Split, *, common: bool = False) -> Iterator[Record]:
    """Generate records without end; see `records`."""
    rng = random.Random(f"record/{split}/{seed}")
    while True:
        yield _record(rng, split, _COMMON) if common else _record(rng, split, _TOPICS)


def class_of(fields: dict[str, Any], name: str = "Asked") -> type[BaseModel]:
    """Make the Pydantic class of a record's `fields`, each of them required."""
    types = {key: class_of(one, "Inner") if isinstance(one, dict) else one for key, one in fields.items()}
    made: type[BaseModel] = create_model(name, **{key: (one, ...) for key, one in types.items()})  # type: ignore[call-overload]
    return made


def write(value: Any, item: str = ", ", key: str = ": ", indent: int | None = None, depth: int = 1) -> str:
    """JSON text, a Decimal as a float has it: 2.50 is 2.5, as the canonical spelling of numbers asks."""
    if isinstance(value, Decimal):
        return repr(float(value))
    if isinstance(value, (dict, list)) and value:
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        parts = (
            [f"{_string(name)}{key}{write(one, item, key, indent, depth + 1)}" for name, one in value.items()]
            if isinstance(value, dict)
            else [write(one, item, key, indent, depth + 1) for one in value]
        )
        if indent is None:
            return opening + item.join(parts) + closing
        line = "\n" + " " * indent * depth
        return f"{opening}{line}{(',' + line).join(parts)}{line[: len(line) - indent]}{closing}"
    if isinstance(value, str):
        return _string(value)
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or isinstance(value, bool)
        else (str(value) if not isinstance(value, (dict, list)) else "{}" if isinstance(value, dict) else "[]")
    )


def _string(text: str) -> str:
    return f'"{text}"'  # no text here holds a quote, a backslash or a control character


def in_words(n: int) -> str:
    """A number below one hundred, in English."""
    if n < 20:
        return _NUMBER_TEENS[n]
    return _NUMBER_TENS[n // 10] + (f"-{_NUMBER_TEENS[n % 10]}" if n % 10 else "")


# What is written


def _name_word(rng: random.Random, known: tuple[str, ...]) -> str:
    if rng.random() < 0.12:  # letters at random: longer words, and other ones than the syllables make
        return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8))).capitalize()
    return _word(rng, known)


def _full_name(rng: random.Random) -> str:
    first, last = _name_word(rng, words.FIRST_NAMES), _name_word(rng, words.LAST_NAMES)
    form = rng.random()
    if form < 0.05:
        first = f"{first}-{_name_word(rng, words.FIRST_NAMES)}"
    elif form < 0.10:
        last = f"{last}-{_name_word(rng, words.LAST_NAMES)}"
    elif form < 0.16:
        last = f"{rng.choice(('de', 'van', 'von', 'al', 'del', 'van der', 'Mc', 'O', 'di', 'le', 'bin'))} {last}"
    elif form < 0.20:
        first = f"{first} {rng.choice(string.ascii_uppercase)}."
    elif form < 0.22:
        last = f"O'{last}"
    return f"{first} {last}"


def _email(rng: random.Random, name: str) -> str:
    plain = ["".join(c for c in part.lower() if c in string.ascii_lowercase) for part in name.split()]
    plain = [part for part in plain if part] or ["info"]
    first, last = plain[0], plain[-1]
    local = rng.choice(
        (first, first, last, f"{first}.{last}", f"{first}.{last}", f"{first[0]}.{last}", f"{first}_{last}",
         f"{first}{rng.randint(1, 99)}", f"{first[0]}{last}", f"{last}{rng.randint(1, 2010)}", f"{first}-{last}",
         rng.choice(("info", "office", "sales", "hello", "contact", "mail", "team")), _made_up(rng).lower())
    )  # fmt: skip
    domain = rng.choice(
        (_word(rng, words.COMPANY_HEADS), _made_up(rng), _name_word(rng, words.LAST_NAMES), "mail", "post")
    )
    domain = "".join(c for c in domain.lower() if c in string.ascii_lowercase) or "mail"
    if rng.random() < 0.1:
        domain += f"-{_made_up(rng).lower()}"
    return f"{local}@{domain}.{rng.choice(phrases.TLDS)}"


def _phone(rng: random.Random) -> str:
    form = rng.choice(
        ("+## ## #######", "+## ### ### ###", "555-####", "(###) ###-####", "#### ######", "+#-###-###-####",
         "### #### ####", "##########", "0##/#######", "+## (0)## ######", "###-###-####", "+############",
         "0## ### ## ##", "### ###", "0#### #####")
    )  # fmt: skip
    return "".join(rng.choice(string.digits) if c == "#" else c for c in form)


def _day(rng: random.Random, years: tuple[int, int]) -> tuple[str, str]:
    """A date as a text may write it, and as ISO."""
    if years[1] > 2025 and rng.random() < 0.25:
        return _date(rng)
    year, month, day = rng.randint(*years), rng.randint(1, 12), rng.randint(1, 28)
    if rng.random() < 0.06:
        day = rng.randint(28, 30 if month != 2 else 28)
    name = words.MONTHS[month - 1]
    short = name[:3]
    nth = f"{day}{'th' if 10 < day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    iso = f"{year}-{month:02d}-{day:02d}"
    forms = (
        iso, iso, iso, f"{day} {name} {year}", f"{day} {name} {year}", f"{name} {day}, {year}", f"{name} {day}, {year}",
        f"{nth} of {name} {year}", f"{nth} {name} {year}", f"{name} {nth}, {year}", f"{day} {short} {year}",
        f"{short} {day}, {year}", f"{day:02d}.{month:02d}.{year}", f"{day}.{month}.{year}",
        f"{year}/{month:02d}/{day:02d}",
        f"{day}. {name} {year}", f"{name} {day} {year}", f"the {nth} of {name} {year}",
    )  # fmt: skip
    return rng.choice(forms), iso


def _money(rng: random.Random) -> tuple[str, Any]:
    """An amount as a text may write it, and as a number."""
    whole = rng.choice((rng.randint(1, 20), rng.randint(10, 999), rng.randint(10, 999), rng.randint(1000, 99999)))
    if rng.random() < 0.3:
        whole = whole // 10 * 10 or 5
    cents = "" if rng.random() < 0.45 else f".{rng.choice((rng.randint(0, 99), rng.randint(0, 99), 50, 0, 99, 95)):02d}"
    written = f"{whole:,}{cents}" if whole >= 1000 and rng.random() < 0.3 else f"{whole}{cents}"
    if whole < 100 and not cents and rng.random() < 0.2:
        written = in_words(whole)
    return written, Decimal(f"{whole}{cents}") if cents else whole


def _phrase_of(rng: random.Random, topic: Topic, written: str, a: str = "") -> dict[str, Any]:
    def fill(templates: tuple[str, ...]) -> list[str]:
        chosen = templates if len(templates) < 3 else rng.sample(templates, 3)
        return [template.format(v=written, a=a) for template in chosen]

    return {
        "names": topic.names.split(),
        "labels": topic.labels.replace("_", " ").split(" ") if topic.labels and "_" not in topic.labels else
        [label.replace("_", " ") for label in topic.labels.split()],
        "written": written,
        "be": fill(topic.be),
        "do": fill(topic.do),
        "tag": fill(topic.tag),
        "say": fill(topic.say),
    }  # fmt: skip


def _text(rng: random.Random, topic: Topic, value: str, **more: Any) -> Fact:
    return Fact(types=[str], value=value, **_phrase_of(rng, topic, value, more.pop("a", "")), **more)


def _sorted_phrases(rng: random.Random, templates: tuple[str, ...], **values: Any) -> dict[str, Any]:
    """Phrases of one list, told apart by how they begin."""
    out: dict[str, list[str]] = {"do": [], "tag": [], "say": []}
    for template in rng.sample(templates, min(4, len(templates))):
        text = re.sub(r"\ba (?=[aeiou])", "an ", template.format(**values))
        first = text.split()[0]
        if (
            template[0] in "AEIOUBCDFGHJKLMNPQRSTVWXYZ"
            or " are " in text
            or " is " in text[3:]
            or " will " in text
            or re.match("{v} (takes?|came) ", template)
        ):
            out["say"].append(text)
        elif (first.endswith("s") and first.isalpha() and first not in ("beds", "its", "plus", "this")) or first in (
            "can",
            "can't",
        ):
            if template.startswith("{noun}"):
                out["tag"].append(text)
            else:
                out["do"].append(text)
        else:
            out["tag"].append(text)
    return out


# The facts


class _Facts:
    """Draws the facts of one text; names and other words are of one split."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.rng = rng
        self.split = split
        self.name = _draw(rng, split, _full_name)

    def draw(self, topic: str) -> list[Fact]:
        made = getattr(self, topic)()
        return made if isinstance(made, list) else [made]

    def email(self) -> Fact:
        return _text(self.rng, phrases.EMAIL, _email(self.rng, self.name), bare=True)

    def phone(self) -> Fact:
        return _text(self.rng, phrases.PHONE, _phone(self.rng), bare=True)

    def age(self) -> Fact:
        n = self.rng.randint(1, 99) if self.rng.random() < 0.3 else self.rng.randint(18, 79)
        written = in_words(n) if self.rng.random() < 0.25 else str(n)
        return Fact(types=[int], value=n, bare=True, **_phrase_of(self.rng, phrases.AGE, written))

    def city(self) -> Fact:
        city = _name_word(self.rng, words.CITIES)
        if self.rng.random() < 0.08:
            city = f"{self.rng.choice(('New', 'San', 'Saint', 'Los', 'Bad', 'Port', 'El', 'Cape'))} {city}"
        return _text(self.rng, phrases.CITY, city, bare=city in words.CITIES)

    def country(self) -> Fact:
        if self.rng.random() < 0.8:
            return _text(self.rng, phrases.COUNTRY, self.rng.choice(phrases.COUNTRIES))
        topic = Topic(phrases.COUNTRY.names, phrases.COUNTRY.labels, say=phrases.labelled("country"))
        return _text(self.rng, topic, _made_up(self.rng))

    def street(self) -> Fact:
        rng = self.rng
        street = (
            rng.choice(phrases.STREETS)
            if rng.random() < 0.6
            else f"{_made_up(rng)} {rng.choice(('Street', 'Road', 'Lane', 'Avenue', 'Way'))}"
        )
        number = rng.randint(1, 200)
        return _text(
            rng, phrases.STREET, rng.choice((f"{number} {street}", f"{number} {street}", f"{street} {number}"))
        )

    def postcode(self) -> Fact:
        code = "".join(self.rng.choice(string.digits) for _ in range(self.rng.choice((4, 5, 5))))
        return _text(self.rng, phrases.POSTCODE, code)

    def job(self) -> Fact:
        rng = self.rng
        job = (
            rng.choice(words.JOBS)
            if rng.random() < 0.8
            else f"{_made_up(rng).lower()}{rng.choice(('er', 'ist', 'or', 'man'))}"
        )
        if rng.random() < 0.12:
            job = f"{rng.choice(phrases.JOB_RANKS)} {job}"
        return _text(rng, phrases.JOB, job, a=_a(job))

    def company(self) -> Fact:
        rng = self.rng
        head, tail = (
            _name_word(rng, words.COMPANY_HEADS),
            rng.choice((*words.COMPANY_TAILS, *"Ltd Inc GmbH Corp Co LLC".split())),
        )
        return _text(
            rng, phrases.COMPANY, rng.choice((f"{head} {tail}", f"{head} {tail}", head, f"{head} & {_made_up(rng)}"))
        )

    def date(self) -> list[Fact]:
        return [self._date_of(kind) for kind in self.rng.sample(sorted(phrases.DATES), self.rng.choice((1, 1, 1, 2)))]

    def _date_of(self, kind: str) -> Fact:
        written, iso = _day(self.rng, (1940, 2024) if kind == "birth" else (2015, 2032))
        more = _phrase_of(self.rng, phrases.DATES[kind], written)
        return Fact(types=[date, date, date, str], value=iso, bare=kind == "event", general="date", **more)

    def amount(self) -> list[Fact]:
        currency = self.rng.choice(sorted(_UNITS))
        options = tuple(self.rng.sample(sorted(_UNITS), len(_UNITS)))
        facts = [self._amount_of(phrases.AMOUNT, currency)]
        facts.append(Fact(phrases.CURRENCY_NAMES.split(), [Literal[options], str], currency))
        if self.rng.random() < 0.08:
            facts.append(self._amount_of(self.rng.choice(list(phrases.SECOND_AMOUNTS.values())), currency))
        return facts

    def _amount_of(self, topic: Topic, currency: str) -> Fact:
        number, value = _money(self.rng)
        unit = self.rng.choice(_UNITS[currency])
        written = f"{number} {unit}"
        if currency in _SIGNS and number[0].isdigit() and self.rng.random() < 0.35:
            written = f"{_SIGNS[currency]}{number}"
        elif self.rng.random() < 0.1 and number[0].isdigit():
            written = self.rng.choice((f"{number}{_SIGNS.get(currency, ' ' + currency)}", f"{currency} {number}"))
        types = [float, float, Decimal] + ([int, int, float] if isinstance(value, int) else [])
        return Fact(types=types, value=value, bare=topic is phrases.AMOUNT, **_phrase_of(self.rng, topic, written))

    def yes_no(self) -> list[Fact]:
        return [self._one_yes_no(topic) for topic in self.rng.sample(phrases.YES_NO, self.rng.choice((1, 1, 2)))]

    def _one_yes_no(self, topic: tuple[str, tuple[str, ...], tuple[str, ...]]) -> Fact:
        rng = self.rng
        yes = rng.random() < 0.5
        written = rng.choice(("yes", "yes", "Yes", "true") if yes else ("no", "no", "No", "false"))
        if rng.random() < 0.2:
            noun = rng.choice(phrases.YES_NO_WORDS)
            templates = tuple(way.format(noun) for way in (phrases.WITH if yes else phrases.WITHOUT))
            names = [noun, noun, f"has_{noun}", f"with_{noun}", f"needs_{noun}", f"{noun}_included"]
        else:
            names, templates = topic[0].split(), topic[1] if yes else topic[2]
        return Fact(names, [bool], yes, written=written, **_sorted_phrases(rng, templates))

    def choice(self) -> list[Fact]:
        chosen = self.rng.sample(phrases.CHOICES, self.rng.choice((1, 1, 2)))
        return [self._one_choice(*one) for one in chosen]

    def _one_choice(self, names: str, options: str, templates: tuple[str, ...]) -> Fact:
        rng = self.rng
        known = options.split("|")
        others = rng.sample(known, min(len(known), rng.randint(2, 5)))
        value = rng.choice(others) if rng.random() < 0.85 else _made_up(rng).lower()
        if value not in others:  # an unknown word must say what it is
            templates = phrases.labelled(names.split()[0])
        written = value
        form = rng.random()
        if form < 0.10:  # the class writes it differently from the text
            value, others = value.capitalize(), [one.capitalize() for one in others]
        elif form < 0.14:
            value, others = value.upper(), [one.upper() for one in others]
        elif form < 0.18:
            value, others = value.replace(" ", "_"), [one.replace(" ", "_") for one in others]
        elif form < 0.22:
            written = written.capitalize()
        options_ = tuple(dict.fromkeys(rng.sample([*others, value], len(others) + 1)))
        types = [Literal[options_]] * 4 + ([str] if form >= 0.22 else [])
        return Fact(names.split(), types, value, written=written, **_sorted_phrases(rng, templates, v=written))

    def count(self) -> list[Fact]:
        facts = []
        nouns = self.rng.sample(phrases.COUNTS, self.rng.choice((1, 1, 2)))
        for noun in nouns:
            n = self.rng.choice((self.rng.randint(1, 14), self.rng.randint(1, 99), self.rng.randint(10, 500)))
            if n == 1:
                n = 2
            written = in_words(n) if n < 100 and self.rng.random() < (0.6 if n < 13 else 0.1) else str(n)
            names = [noun, noun, noun, f"number_of_{noun}", f"num_{noun}", f"{noun}_count", f"n_{noun}"]
            if len(nouns) == 1:
                names += ["quantity", "count", "number", "how_many", "qty", "quantity"]
            more = _sorted_phrases(self.rng, phrases.COUNT_PHRASES, v=written, noun=noun)
            facts.append(Fact(names, [int], n, written=written, **more))
        return facts

    def measure(self) -> Fact:
        names, low, high, decimals, templates = self.rng.choice(phrases.MEASURES)
        value: Any = self.rng.randint(low, high)
        if decimals and self.rng.random() < 0.4:
            value = Decimal(f"{value}.{self.rng.randint(1, 9)}")
        types = [float] if isinstance(value, Decimal) else [int, int, float]
        more = _sorted_phrases(self.rng, templates, v=value)
        return Fact(names.split(), types, value, written=str(value), **more)

    def time(self) -> Fact:
        clock = f"{self.rng.randint(7, 22):02d}:{self.rng.choice((0, 15, 30, 45, self.rng.randint(0, 59))):02d}"
        return _text(self.rng, phrases.TIME, clock)

    def code(self) -> Fact:
        rng = self.rng
        form = rng.choice(
            (
                "AAA-####",
                "A-###",
                "#####",
                "AA####",
                "AAA-####-##",
                "A##-###",
                "####-####",
                "A#A#A",
                "######",
                "#A",
                "aaa###",
            )
        )
        drawn = "".join(
            {
                "A": rng.choice(string.ascii_uppercase),
                "#": rng.choice(string.digits),
                "a": rng.choice(string.ascii_lowercase),
            }.get(c, c)
            for c in form
        )
        if rng.random() < 0.3:
            drawn = (
                f"{rng.choice(('INV', 'ORD', 'REF', 'TCK', 'PO', 'SKU', 'ID', 'BK', 'EMP'))}-{rng.randint(1, 99999)}"
            )
        return _text(rng, phrases.CODE, drawn)

    def product(self) -> Fact:
        rng = self.rng
        product = rng.choice(phrases.PRODUCTS)
        if rng.random() < 0.35:
            product = f"{_made_up(rng).lower()} {product}" if rng.random() < 0.7 else _made_up(rng).lower()
        return _text(rng, phrases.PRODUCT, product, a=_a(product))

    def name_list(self) -> Fact:
        rng = self.rng
        n = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5))
        full = rng.random() < 0.35
        names = [_full_name(rng) if full else _name_word(rng, words.FIRST_NAMES) for _ in range(n)]
        noun = rng.choice(phrases.NAME_LISTS.names.split())
        fields_ = [noun, noun, noun, *phrases.NAME_LISTS.names.split(), f"{noun.rstrip('s')}_names"]
        templates = phrases.NAME_LIST_PHRASES if n > 1 else phrases.NAME_LIST_ONE if n else phrases.NAME_LIST_NONE
        return self._list_of(noun, fields_, names, templates)

    def word_list(self) -> Fact:
        rng = self.rng
        names, known, templates = rng.choice(phrases.WORD_LISTS)
        pool = known.split() or list(words.CITIES)
        items = rng.sample(pool, rng.choice((1, 2, 2, 3, 3, 4)))
        items = [_made_up(rng).lower() if rng.random() < 0.15 else item for item in items]
        return self._list_of(names.split()[0], names.split(), items, templates)

    def _list_of(self, noun: str, names: list[str], items: list[str], templates: tuple[str, ...]) -> Fact:
        rng = self.rng
        last = rng.choice((" and ", " and ", " and ", " & ", ", and ", ", "))
        written = items[0] if len(items) == 1 else f"{', '.join(items[:-1])}{last}{items[-1]}" if items else "none"
        closed = f"{', '.join(items[:-1])} and {items[-1]}" if last == ", " and len(items) > 1 else written
        more = _sorted_phrases(rng, templates, v=closed, noun=noun)
        return Fact(names, [list[str]], items, written=written, **more)

    def attribute(self) -> list[Fact]:
        rng = self.rng
        facts = []
        for noun in rng.sample(phrases.ATTRIBUTES, rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.12:
                noun = _made_up(rng).lower()
            value: Any = rng.choice((
                _made_up(rng), _made_up(rng).lower(), f"{_made_up(rng)} {_made_up(rng)}",
                f"{_made_up(rng)} {rng.randint(1, 99)}",
                f"{rng.choice(string.ascii_uppercase)}{rng.randint(1, 99)}", rng.choice(words.COMPANY_HEADS),
                f"{rng.choice(words.COMPANY_HEADS)} {rng.choice(words.COMPANY_TAILS)}", rng.choice(words.LAST_NAMES),
                f"{_made_up(rng)} of {_made_up(rng)}", f"the {rng.choice(words.COMPANY_HEADS)} {_made_up(rng)}",
            ))  # fmt: skip
            types: list[Any] = [str]
            if rng.random() < 0.15:
                value, types = rng.randint(1, 9999), [int]
            names = [noun, noun, noun]
            if not noun.endswith("_name"):
                names.append(f"{noun}_name" if types == [str] else f"{noun}_number")
            more = _sorted_phrases(rng, phrases.ATTRIBUTE_PHRASES, v=value, noun=noun.replace("_", " "))
            facts.append(Fact(names, types, value, written=str(value), **more))
        return facts

    def second_name(self) -> Fact:
        role = self.rng.choice(phrases.SECOND_ROLES)
        name = _full_name(self.rng) if self.rng.random() < 0.7 else _name_word(self.rng, words.FIRST_NAMES)
        templates = tuple(t.replace("{role}", role.replace("_", " ")) for t in phrases.SECOND_NAME)
        more = _sorted_phrases(self.rng, templates, v=name)
        return Fact([role, role, f"{role}_name"], [str], name, written=name, **more)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


_COMMON = {
    "email": 12, "phone": 11, "age": 12, "city": 12, "date": 13, "amount": 12, "yes_no": 13, "choice": 13,
    "name_list": 12,
}  # fmt: skip
_TOPICS = {
    **_COMMON, "job": 5, "company": 4, "count": 6, "measure": 2, "time": 2, "code": 3, "product": 4, "word_list": 3,
    "attribute": 3, "country": 1, "street": 1, "postcode": 1, "second_name": 1,
}  # fmt: skip


def _name_facts(rng: random.Random, name: str, role: str | None) -> list[Fact]:
    more = _phrase_of(rng, phrases.NAME, name)
    if role:
        more["names"] = [role, role, *more["names"]]
    whole = Fact(types=[str], value=name, bare=True, **more)
    first, last = name.split(" ", 1)
    parts = [
        Fact(phrases.FIRST_NAME.names.split(), [str], first),
        Fact(phrases.LAST_NAME.names.split(), [str], last),
    ]
    return [whole, *parts] if ". " not in name and rng.random() < 0.25 else [whole]


# The text


def _prose(rng: random.Random, facts: list[Fact], name: str | None, role: str | None) -> str:
    """Sentences: a subject with predicates, apposed phrases, and sentences of their own."""
    if name is None:
        subject, told = rng.choice(phrases.OPENERS), True
    else:
        subject, told = _subject(rng, name, role), False
    rest = list(facts)
    rng.shuffle(rest)
    sentences: list[str] = []
    if name is not None and rng.random() < 0.35:
        sentences.append(rng.choice(phrases.NAME.say).format(v=name))
        subject, told = rng.choice((*phrases.OPENERS[:3], name.split()[0], "The person")), True
    while rest:
        group, rest = rest[: (size := rng.choice((1, 1, 2, 2, 3)))], rest[size:]
        doing = [fact for fact in group if fact.do or fact.be]
        tags = [fact for fact in group if not (fact.do or fact.be) and fact.tag]
        alone = [fact for fact in group if fact not in doing and fact not in tags]
        for fact in list(doing):
            if told and fact.say and rng.random() < 0.4:
                doing.remove(fact)
                alone.append(fact)
            elif fact.tag and rng.random() < 0.3:
                doing.remove(fact)
                tags.append(fact)
        if (doing or tags) and not (told and not doing):
            sentences.append(_clause(rng, subject, doing, tags))
            if not told:
                told = True
                subject = rng.choice((*phrases.OPENERS[:3], name.split()[0] if name else "She", subject))
        elif tags:
            phrases_ = [rng.choice(fact.tag) for fact in tags]
            sentences.append(", ".join(phrases_))
        for fact in alone:
            sentences.append(rng.choice(fact.say or fact.tag or [f"{fact.names[0].replace('_', ' ')}: {fact.written}"]))
    if not told and name is not None:
        sentences.insert(rng.randint(0, len(sentences)), rng.choice(phrases.NAME.say).format(v=name))
    glue = rng.choice((". ",) * 8 + ("; ", ". ", " - ", "; " if _lists(facts) else ", "))
    if glue == ". ":
        sentences = [_capital(one, facts) for one in sentences]
    return glue.join(sentences) + rng.choice((".", ".", ".", ".", "", "!"))


def _subject(rng: random.Random, name: str, role: str | None) -> str:
    if role and rng.random() < 0.7:
        shown = role.replace("_", " ")
        return rng.choice(
            (
                f"Our {shown} {name}",
                f"The {shown} {name}",
                f"{name}, our {shown},",
                f"The {shown}, {name},",
            )
        )
    return rng.choice(
        (name,) * 8 + (f"Mr {name}", f"Ms {name}", f"Dr. {name}", f"A certain {name}", f"My friend {name}")
    )


def _clause(rng: random.Random, subject: str, doing: list[Fact], tags: list[Fact]) -> str:
    apposed = [rng.choice(fact.tag) for fact in tags]
    predicates = []
    for fact in doing:
        be = f"is {rng.choice(fact.be)}" if fact.be else ""
        predicates.append(_agree(subject, be if be and (not fact.do or rng.random() < 0.5) else rng.choice(fact.do)))
    if not predicates:
        return ", ".join([subject.rstrip(","), *apposed])
    if apposed and rng.random() < 0.5:
        subject = f"{subject.rstrip(',')}, {', '.join(apposed)},"
        apposed = []
    if len(predicates) == 1:
        joined = predicates[0]
    else:
        joined = rng.choice((" and ", ", ")).join((", ".join(predicates[:-1]), predicates[-1]))
    clause = f"{subject} {joined}"
    for phrase in apposed:
        clause += (" " if phrase.split()[0] in _LINKS and rng.random() < 0.3 else ", ") + phrase
    return clause


_LINKS = frozenset("at by for from in on until via".split())
_PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do"}
_FIRST = {**_PLURAL, "is": "am", "was": "was"}


def _agree(subject: str, predicate: str) -> str:
    """The predicate of "she", as "they", "we" or "I" have it."""
    if subject not in ("They", "We", "I"):
        return predicate
    verb, _, rest = predicate.partition(" ")
    irregular = (_FIRST if subject == "I" else _PLURAL).get(verb)
    if irregular:
        verb = irregular
    elif verb.endswith("ies"):
        verb = f"{verb[:-3]}y"
    elif verb.endswith(("ches", "shes", "sses", "oes")):
        verb = verb[:-2]
    elif verb.endswith("s"):
        verb = verb[:-1]
    return f"{verb} {rest}".strip()


def _capital(text: str, facts: list[Fact]) -> str:
    """The text as it begins a sentence, unless it begins with a word that a class may ask for."""
    kept = (fact.written for fact in facts if isinstance(fact.value, (str, list)) and fact.written)
    return text if any(text.startswith(one) for one in kept) else text[0].upper() + text[1:]


def _lists(facts: list[Fact]) -> bool:
    return any(isinstance(fact.value, list) for fact in facts)


def _labelled(rng: random.Random, facts: list[Fact], asked: dict[int, str]) -> str:
    """Labels and values, as in "Name: ..., age: ..."."""
    comma = "; " if _lists(facts) else ", "
    between = rng.choice((". ", comma, "; ", " | ", ". ", comma, " / ", " - "))
    sign = rng.choice((": ", ": ", ": ", " = ", "=", ": " if between == " - " else " - ", " is ", ":"))
    style = rng.choice((str.capitalize, str.capitalize, str.lower, str.title))
    parts = []
    for fact in facts:
        label = asked.get(id(fact)) if rng.random() < 0.4 else None
        label = label or (rng.choice(fact.labels) if fact.labels and rng.random() < 0.5 else rng.choice(fact.names))
        parts.append(f"{style(label.replace('_', ' '))}{sign}{fact.written}")
    return between.join(parts) + rng.choice((".", ".", ""))


def _bare(rng: random.Random, facts: list[Fact]) -> str:
    comma = "; " if _lists(facts) else ", "
    parts = []
    for fact in facts:
        said = fact.tag or fact.say or [f"{fact.names[0].replace('_', ' ')}: {fact.written}"]
        parts.append(fact.written if fact.bare else rng.choice(said))
    return rng.choice((comma, comma, "; ", " | ", " - ", " / ")).join(parts) + rng.choice((".", "", ""))


# The class


def _record(rng: random.Random, split: Split, weights: dict[str, int]) -> Record:
    if weights is _TOPICS and rng.random() < 0.15:
        return _of_a_kind(rng, split)
    drawer = _Facts(rng, split)
    count = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7))
    topics: list[str] = []
    while len(topics) < count:
        topic = rng.choices(list(weights), list(weights.values()))[0]
        if topic not in topics:
            topics.append(topic)
    stated = _told_apart([fact for topic in topics for fact in drawer.draw(topic)])
    rng.shuffle(stated)
    shown = [fact for fact in stated if fact.written]
    named = rng.random() < 0.75
    role = rng.choice(phrases.ROLES) if rng.random() < 0.25 else None
    about = _name_facts(rng, drawer.name, role) if named else []
    if named:
        shown = [*shown]
        shown.insert(0 if rng.random() < 0.7 else rng.randint(0, len(shown)), about[0])
    names = _name_fields(rng, [*about, *stated])
    style = rng.random()
    others = [fact for fact in shown if not about or fact is not about[0]]
    if style < 0.2:
        text = _labelled(rng, shown, names)
    elif style < 0.27:
        text = _bare(rng, shown)
    elif style < 0.37 and len(others) > 1:
        half = rng.randint(1, len(others) - 1)
        first = _prose(rng, others[:half], drawer.name if named else None, role)
        text = f"{_ended(first)} {_labelled(rng, others[half:], names)}"
    else:
        text = _prose(rng, others, drawer.name if named else None, role)
    return _ask(rng, text, [*about, *stated], names, role)


def _told_apart(facts: list[Fact]) -> list[Fact]:
    """Leave out facts that another one contradicts or repeats, and phrases that two of them would share."""
    kept: list[Fact] = []
    for fact in facts:
        heads = {one.names[0] for one in kept}
        if not any(fact.names[0] in group and heads & group for group in phrases.ALIKE):
            kept.append(fact)

    def shapes(fact: Fact) -> set[str]:
        return {text.replace(fact.written, "{}").lower() for text in (*fact.be, *fact.do, *fact.tag, *fact.say)}

    common = Counter(shape for fact in kept if fact.written for shape in shapes(fact))
    settled = {fact.names[0] for fact in kept} & {"paid", "payment"}
    for fact in kept:
        for said in (fact.be, fact.do, fact.tag, fact.say):
            said[:] = [text for text in said if common[text.replace(fact.written, "{}").lower()] < 2]
            if settled and fact.names[0] == "amount":  # "pays 20 euros" would tell of the payment
                said[:] = [text for text in said if not re.search("paid|pay|transfer|spent|charged|donated", text)]
    return kept


def _ended(text: str) -> str:
    return text if text[-1] in ".!" else f"{text}."


_FIELD_NAMES: dict[str, str] = {
    "seller": phrases.COMPANY.names, "number": phrases.CODE.names,
    "date": phrases.DATES["order"].names + " date date date",
    "total": phrases.AMOUNT.names, "currency": phrases.CURRENCY_NAMES, "paid": phrases.YES_NO[0][0],
    "guest": phrases.NAME.names, "name": phrases.NAME.names, "city": phrases.CITY.names,
    "check_in": phrases.DATES["start"].names + " date", "nights": "nights number_of_nights nights_count duration stay",
    "people": "people guests_count number_of_people persons party_size num_people", "room": "room room_type room_kind",
    "breakfast": phrases.YES_NO[5][0], "email": phrases.EMAIL.names, "age": phrases.AGE.names, "job": phrases.JOB.names,
    "since": "since since_year start_year year joined_year year_joined", "remote": phrases.YES_NO[1][0],
}  # fmt: skip
_FIELD_TYPES: dict[str, list[Any]] = {
    "date": [date, date, str], "check_in": [date, date, str],
    "currency": [Literal["EUR", "USD", "GBP", "CHF", "JPY"], str],
    "room": [Literal["single", "double", "suite"], str], "total": [float, Decimal],
}  # fmt: skip


def _of_a_kind(rng: random.Random, split: Split) -> Record:
    """A text of one of the three kinds, asked for by a class of another shape."""
    text, record = _WRITERS[rng.choice(KINDS)](rng, split)
    facts = []
    for key, value in record.items():
        names = [key, key, key, *_FIELD_NAMES[key].split()]
        shown = Decimal(repr(value)) if isinstance(value, float) else value
        facts.append(Fact(names, _FIELD_TYPES.get(key, [type(value)]), shown))
        if key in ("guest", "name") and rng.random() < 0.2:
            facts += _name_facts(rng, value, None)[1:]
    return _ask(rng, text, facts, _name_fields(rng, facts), None)


def _name_fields(rng: random.Random, facts: list[Fact]) -> dict[int, str]:
    """A field name for each fact, no name twice, and none that another fact would also answer."""
    names: dict[int, str] = {}
    for fact in rng.sample(facts, len(facts)):
        own = list(fact.names)
        if fact.general and sum(other.general == fact.general for other in facts) == 1:
            own += [fact.general] * len(own)
        others = {name for other in facts if other is not fact for name in other.names}
        free = [name for name in own if name not in others] or [name for name in own if name not in names.values()]
        free = [name for name in free if name not in names.values()] or [f"{own[0]}_{len(names)}"]
        names[id(fact)] = rng.choice(free)
    return names


_UNSTATED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (phrases.NAME.names, (str,)), (phrases.EMAIL.names, (str,)), (phrases.PHONE.names, (str,)),
    (phrases.AGE.names, (int,)),
    (phrases.CITY.names, (str,)), (phrases.JOB.names, (str,)), (phrases.COMPANY.names, (str,)),
    (phrases.AMOUNT.names, (float, int)),
    (phrases.STREET.names, (str,)), (phrases.COUNTRY.names, (str,)), (phrases.CODE.names, (str,)),
    *((topic.names, (date,)) for topic in phrases.DATES.values()),
    *((topic[0], (bool,)) for topic in phrases.YES_NO if topic[0].split()[0] not in phrases.OFTEN_IMPLIED),
    *((topic[0], (str,)) for topic in phrases.CHOICES),
    (" ".join(phrases.ATTRIBUTES), (str,)),
)  # fmt: skip


def _ask(rng: random.Random, text: str, facts: list[Fact], names: dict[int, str], role: str | None) -> Record:
    size = 1
    while size < min(10, len(facts)) and rng.random() < 0.86:
        size += 1
    asked = rng.sample(facts, size)
    entries = [(names[id(fact)], _either(rng, fact), fact.value) for fact in asked]
    if rng.random() < 0.2:  # a field that the text says nothing about
        topic, types = rng.choice(_UNSTATED)
        taken = {name for fact in facts for name in (*fact.names, fact.general)}
        taken |= {str(fact.value).lower() for fact in facts}
        taken |= {near for fact in facts for near in phrases.NEARLY_STATED.get(fact.names[0], "").split()}
        taken |= {"job", "name"} if role else set()
        if not taken & set(topic.split()):
            name = rng.choice(topic.split())
            entries.insert(rng.randint(0, len(entries)), (name, rng.choice(types) | None, None))
    if len(entries) > 2 and rng.random() < 0.07:
        entries = _nested(rng, entries)
    closing = _chatter(rng, words.CLOSINGS)
    text = (
        _chatter(rng, words.OPENINGS) + _capital(text, facts) + closing
        if not closing
        else (_chatter(rng, words.OPENINGS) + _capital(_ended(text), facts) + closing)
    )
    kind = ANY_KIND if rng.random() < 0.3 else rng.choice(KINDS)
    prompt = make_prompt(kind, text) if rng.random() < 0.97 else f"{text}\nJSON:\n"
    fields_ = {name: kind_ for name, kind_, _ in entries}
    return Record(prompt, fields_, {name: value for name, _, value in entries})


def _either(rng: random.Random, fact: Fact) -> Any:
    kind = rng.choice(fact.types)
    return kind | None if rng.random() < 0.12 else kind


def _nested(rng: random.Random, entries: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    size = rng.randint(1, len(entries) - 1)
    start = rng.randint(0, len(entries) - size)
    inner = entries[start : start + size]
    name = rng.choice(
        "details contact_details info data person_data customer_info header body inner extra meta about".split()
    )
    outer = (name, {key: kind for key, kind, _ in inner}, {key: value for key, _, value in inner})
    return [*entries[:start], outer, *entries[start + size :]]


def _chatter(rng: random.Random, said: tuple[str, ...]) -> str:
    return rng.choice(said).format(n=rng.randint(1, 999)) if rng.random() < 0.12 else ""
