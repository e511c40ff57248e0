"""Short texts that state a few facts, and classes that ask for some of them in any order: what the demo model learns.

A prompt never says which fields will be asked for; under guidance the grammar writes their names, and the model the
values. Ten kinds of fields: name, e-mail, phone, age, city, date, amount, yes or no, one of a list, list of names.
"""

from __future__ import annotations

import random
import string
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, create_model

from hf_guided.demo import words
from hf_guided.demo.data import (
    _CURRENCY_WORDS,
    _STROKED,
    _WRITERS,
    ANY_KIND,
    KINDS,
    Split,
    _draw,
    _made_up,
    _word,
    make_prompt,
)
from scripts import demo_phrases as phrases
from scripts.demo_phrases import Topic

UNSTATED_SHARE = 0.08  # the share of classes with a field that the text does not state, where null is right
NESTED_SHARE = 0.06


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
    """A thing that a text states: how it may be said, and which fields ask for it."""

    names: list[str]
    types: list[Any]
    value: Any
    written: str = ""
    topic: Topic = field(default_factory=lambda: Topic(""))

    def said(self, phrases_: tuple[str, ...]) -> list[str]:
        """Phrases with the value in them."""
        return [phrase.replace("{v}", self.written) for phrase in phrases_]


def records(n: int, seed: int = 0, split: Split = "held_out") -> list[Record]:
    """Generate records.

    Args:
        n: how many.
        seed: the same seed, split and n give the same records.
        split: "train" for the training data, "held_out" for names it has never seen together.

    Returns:
        A new list of `n` records.
    """
    stream = iter_records(seed, split)
    return [next(stream) for _ in range(n)]


def iter_records(seed: int, split: Split) -> Iterator[Record]:
    """Generate records without end; see `records`."""
    rng = random.Random(f"record/{split}/{seed}")
    while True:
        yield _record(rng, split)


def reshaped_kinds(seed: int, split: Split) -> Iterator[Record]:
    """Texts of the three kinds, asked for by classes of other shapes, without end."""
    rng = random.Random(f"kind/{split}/{seed}")
    while True:
        text, record = _WRITERS[rng.choice(KINDS)](rng, split)
        facts = []
        for key, value in record.items():
            names = [key, key, key, *phrases.KIND_FIELDS[key].split()]
            shown = Decimal(repr(value)) if isinstance(value, float) else value
            facts.append(Fact(names, _KIND_TYPES.get(key, [type(value)]), shown))
        yield _ask(rng, text[0].upper() + text[1:], facts)


_KIND_TYPES: dict[str, list[Any]] = {
    "date": [date, date, str],
    "check_in": [date, date, str],
    "currency": [Literal["EUR", "USD", "GBP", "CHF", "JPY"], str],
    "room": [Literal["single", "double", "suite"], str],
    "total": [float, Decimal],
}


def class_of(fields: dict[str, Any], name: str = "Asked") -> type[BaseModel]:
    """Make the Pydantic class of a record's `fields`, each of them required."""
    types = {key: class_of(one, "Inner") if isinstance(one, dict) else one for key, one in fields.items()}
    made: type[BaseModel] = create_model(name, **{key: (one, ...) for key, one in types.items()})  # type: ignore[call-overload]
    return made


# Values, as a text writes them


def _full_name(rng: random.Random) -> str:
    first, last = _word(rng, words.FIRST_NAMES), _word(rng, words.LAST_NAMES)
    form = rng.random()
    if form < 0.03:
        first = f"{first}-{_word(rng, words.FIRST_NAMES)}"
    elif form < 0.06:
        last = f"{last}-{_word(rng, words.LAST_NAMES)}"
    elif form < 0.10:
        last = f"{rng.choice(('de', 'van', 'von', 'al', 'del', 'di'))} {last}"
    elif form < 0.13:
        first = f"{first} {rng.choice(string.ascii_uppercase)}."
    return f"{first} {last}"


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.translate(_STROKED)).lower()
    return "".join(c for c in plain if c in string.ascii_lowercase)


def _email(rng: random.Random, name: str) -> str:
    parts = [part for part in map(_letters, name.split()) if part] or ["info"]
    first, last = parts[0], parts[-1]
    local = rng.choice(
        (first, first, last, f"{first}.{last}", f"{first}.{last}", f"{first[0]}.{last}", f"{first}_{last}",
         f"{first}{rng.randint(1, 99)}", f"{first[0]}{last}", rng.choice(("info", "office", "sales", "hello", "mail")))
    )  # fmt: skip
    domain = _letters(rng.choice((*[_word(rng, words.COMPANY_HEADS)] * 3, _made_up(rng), "mail", "post", "gmail")))
    return f"{local}@{domain or 'mail'}.{rng.choice('example example com com org net io de co.uk'.split())}"


def _phone(rng: random.Random) -> str:
    form = rng.choice(
        ("+## ## #######", "+## ### ### ###", "555-####", "(###) ###-####", "#### ######", "+#-###-###-####",
         "### #### ####", "##########", "0##/#######", "+## ### #######", "###-###-####", "+############",
         "0## ### ## ##")
    )  # fmt: skip
    return "".join(rng.choice(string.digits) if c == "#" else c for c in form)


def _day(rng: random.Random, first: int, last: int) -> tuple[str, str]:
    """A date as a text may write it, and as ISO."""
    year, month, day = rng.randint(first, last), rng.randint(1, 12), rng.randint(1, 28)
    if rng.random() < 0.06 and month != 2:
        day = rng.randint(29, 30)
    name = words.MONTHS[month - 1]
    nth = f"{day}{'th' if 10 < day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    iso = f"{year}-{month:02d}-{day:02d}"
    forms = (
        iso, iso, iso, f"{day} {name} {year}", f"{day} {name} {year}", f"{day} {name} {year}", f"{name} {day}, {year}",
        f"{name} {day}, {year}", f"{name} {day}, {year}", f"{nth} of {name} {year}", f"{name} {nth}, {year}",
        f"{day} {name[:3]} {year}", f"{name[:3]} {day}, {year}", f"{day:02d}.{month:02d}.{year}",
    )  # fmt: skip
    return rng.choice(forms), iso


def _amount(rng: random.Random, currency: str) -> tuple[str, Any]:
    """An amount as a text may write it, and as a number."""
    whole = rng.choice((rng.randint(1, 99), rng.randint(10, 999), rng.randint(10, 999), rng.randint(1000, 9999)))
    if rng.random() < 0.3:
        whole = whole // 10 * 10 or 5
    cents = "" if rng.random() < 0.5 else f".{rng.choice((rng.randint(1, 99), rng.randint(10, 99), 50, 99)):02d}"
    number = f"{whole:,}{cents}" if whole >= 1000 and rng.random() < 0.2 else f"{whole}{cents}"
    written = f"{number} {rng.choice(_CURRENCY_WORDS[currency])}"
    if currency in _SIGNS and rng.random() < 0.35:
        written = f"{_SIGNS[currency]}{number}"
    elif rng.random() < 0.07:
        written = f"{currency} {number}"
    return written, Decimal(f"{whole}{cents}") if cents else whole


_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}


def _listed(rng: random.Random, items: list[str]) -> str:
    if len(items) < 2:
        return items[0] if items else "none"
    last = rng.choice((" and ", " and ", " and ", ", and ", " & "))  # a comma alone would leave the end open
    return f"{', '.join(items[:-1])}{last}{items[-1]}"


# Facts, one function for each kind


def _of_topic(topic: Topic, types: list[Any], value: Any, written: str) -> Fact:
    return Fact(topic.names.split(), types, value, written, topic)


def _emails(rng: random.Random, name: str) -> list[Fact]:
    email = _email(rng, name)
    return [_of_topic(phrases.EMAIL, [str], email, email)]


def _phones(rng: random.Random, _: str) -> list[Fact]:
    phone = _phone(rng)
    return [_of_topic(phrases.PHONE, [str], phone, phone)]


def _ages(rng: random.Random, _: str) -> list[Fact]:
    age = rng.randint(1, 99) if rng.random() < 0.2 else rng.randint(18, 79)
    tens, ones = divmod(age, 10)
    written = str(age)
    if rng.random() < 0.1 and age > 19:
        written = phrases.TENS[tens] + (f"-{words.NUMBER_WORDS[ones]}" if ones else "")
    return [_of_topic(phrases.AGE, [int], age, written)]


def _cities(rng: random.Random, _: str) -> list[Fact]:
    city = _word(rng, words.CITIES)
    if rng.random() < 0.05:
        city = f"{rng.choice(('New', 'San', 'Los', 'Bad', 'Port', 'Cape'))} {city}"
    fact = _of_topic(phrases.CITY, [str], city, city)
    if city not in words.CITIES:  # only a known one says by itself what it is
        fact.topic = replace(fact.topic, tag=tuple(tag for tag in fact.topic.tag if tag != "{v}"), bare=False)
    return [fact]


def _dates(rng: random.Random, _: str) -> list[Fact]:
    facts = []
    for kind in rng.sample(sorted(phrases.DATES), rng.choice((1, 1, 1, 2))):
        written, iso = _day(rng, *((1940, 2015) if kind == "birth" else (2018, 2032)))
        facts.append(_of_topic(phrases.DATES[kind], [date, date, date, str], iso, written))
    if len(facts) == 1:
        facts[0].names += ["date"] * 6
    return facts


def _amounts(rng: random.Random, _: str) -> list[Fact]:
    currency = rng.choice(sorted(_CURRENCY_WORDS))
    options = tuple(rng.sample(sorted(_CURRENCY_WORDS), len(_CURRENCY_WORDS)))
    facts = []
    for topic in (phrases.AMOUNT, *([rng.choice(phrases.SECOND_AMOUNTS)] if rng.random() < 0.1 else [])):
        written, value = _amount(rng, currency)
        types = [float, float, Decimal, *([int, int] if isinstance(value, int) else [])]
        facts.append(_of_topic(topic, types, value, written))
    return [*facts, Fact("currency currency currency_code unit".split(), [Literal[options], str], currency)]


def _answers(rng: random.Random, _: str) -> list[Fact]:
    facts = []
    for names, yes, no in rng.sample(phrases.YES_NO, rng.choice((1, 1, 2))):
        value = rng.random() < 0.5
        topic = phrases.sorted_phrases(names, yes if value else no)
        facts.append(_of_topic(topic, [bool], value, "yes" if value else "no"))
    return facts


def _choices(rng: random.Random, _: str) -> list[Fact]:
    facts = []
    for names, options, said in rng.sample(phrases.CHOICES, rng.choice((1, 1, 1, 2))):
        known = options.split("|")
        shown = rng.sample(known, rng.randint(2, len(known)))
        value = written = rng.choice(shown)
        if rng.random() < 0.12:  # the class spells it differently from the text
            respelled: Callable[[str], str] = rng.choice((str.capitalize, str.upper, str.title))
            value, shown = respelled(value), [respelled(one) for one in shown]
        types: list[Any] = [Literal[tuple(shown)]] * 4
        if value == written:
            types.append(str)
        facts.append(_of_topic(phrases.sorted_phrases(names, said), types, value, written))
    return facts


def _name_lists(rng: random.Random, _: str) -> list[Fact]:
    count = rng.choice((0, 1, *[2, 3] * 5, 4, 4))
    full = rng.random() < 0.3
    names = [_full_name(rng) if full else _word(rng, words.FIRST_NAMES) for _ in range(count)]
    noun = rng.choice(phrases.NAME_LIST_NOUNS)
    said = phrases.NAME_LIST if count > 1 else phrases.NAME_LIST_ONE if count else phrases.NAME_LIST_NONE
    singular = noun.removesuffix("s") if noun != "children" else "child"
    topic = phrases.sorted_phrases(noun, said.replace("{nouns}", noun).replace("{noun}", singular))
    fact = _of_topic(topic, [list[str]], list(dict.fromkeys(names)), _listed(rng, list(dict.fromkeys(names))))
    fact.names += [noun, noun, "names", "people", f"{singular}_names"]
    return [fact]


_WRITE: tuple[Callable[[random.Random, str], list[Fact]], ...] = (
    _emails, _phones, _ages, _cities, _dates, _amounts, _answers, _choices, _name_lists,
)  # fmt: skip


def _names_of(rng: random.Random, name: str, role: str | None) -> list[Fact]:
    facts = [_of_topic(phrases.NAME, [str], name, name)]
    if role:
        facts[0].names += [role, role, role, f"{role}_name"]
    if rng.random() < 0.15 and name.count(" ") == 1:
        first, last = name.split()
        facts.append(Fact("first_name first_name given_name firstname".split(), [str], first))
        facts.append(Fact("last_name last_name surname family_name".split(), [str], last))
    return facts


# Texts


def _record(rng: random.Random, split: Split) -> Record:
    name = _draw(rng, split, _full_name)
    role = rng.choice(phrases.ROLES) if rng.random() < 0.25 else None
    kinds = rng.sample(_WRITE, rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6)))
    about = _names_of(rng, name, role) if rng.random() < 0.85 else []
    stated = [fact for kind in kinds for fact in kind(rng, name)]
    rng.shuffle(stated)
    shown = [fact for fact in stated if fact.written]
    form = rng.random()
    if form < 0.2:
        for fact in about[:1]:
            shown.insert(0 if rng.random() < 0.7 else rng.randint(0, len(shown)), fact)
        text = _labelled(rng, shown)
    elif form < 0.3 and all(fact.topic.bare for fact in shown):
        text = ", ".join([*(fact.written for fact in [*about[:1], *shown])]) + rng.choice((".", ""))
    else:
        text = _prose(rng, shown, name if about else None, role)
    return _ask(rng, text, [*about, *stated])


def _labelled(rng: random.Random, facts: list[Fact]) -> str:
    """Labels and values, as in "Name: Ada Brown. Age: 34."."""
    lists = any(isinstance(fact.value, list) for fact in facts)
    between = rng.choice((". ", ". ", "; ", " | ", *([] if lists else [", ", ", "])))
    sign = rng.choice((": ", ": ", ": ", ": ", " = ", " - ", " is "))
    style = rng.choice((str.capitalize, str.capitalize, str.lower, str.title))
    parts = [f"{style(rng.choice(fact.names).replace('_', ' '))}{sign}{fact.written}" for fact in facts]
    return between.join(parts) + rng.choice((".", ".", ""))


def _prose(rng: random.Random, facts: list[Fact], name: str | None, role: str | None) -> str:
    """Sentences: a subject, phrases between commas, and what it does; or a sentence of its own."""
    sentences: list[str] = []
    subject = later = rng.choice(phrases.SOMEONE)
    if name is not None:
        first = name.split()[0]
        speaks = rng.random() < 0.12
        later = "I" if speaks else rng.choice(("She", "She", "He", "He", first, "The customer"))
        subject = name if not role else rng.choice((f"Our {role} {name}", f"The {role} {name}", f"{name}, our {role},"))
        if speaks or rng.random() < 0.3:
            sentences.append(rng.choice(phrases.SELF if speaks else phrases.NAMED).replace("{v}", name))
            subject = later
    rest = list(facts)
    while rest:
        group, rest = rest[: (size := rng.choice((1, 1, 2, 2, 3)))], rest[size:]
        tags, predicates, alone = [], [], []
        last_of_clause = ""  # names run on: nothing follows them
        for fact in group:
            ways = [
                (way, said)
                for way, said in ((tags, fact.topic.tag), (predicates, fact.topic.does), (alone, fact.topic.says))
                if said and not (way is tags and (subject in ("I", later) or isinstance(fact.value, list)))
            ]
            way, said = rng.choice(ways or [(alone, (f"{fact.names[0].replace('_', ' ').capitalize()}: {{v}}",))])
            way.append(rng.choice(fact.said(said)))
            if way is predicates and isinstance(fact.value, list):
                last_of_clause = way.pop()
        predicates += [last_of_clause] if last_of_clause else []
        if predicates or tags:
            clause = subject
            if tags:
                clause = f"{clause.rstrip(',')}, {', '.join(tags)}{',' if predicates else ''}"
            if predicates:
                predicates = [_agree(subject, one) for one in predicates]
                joined = predicates[-1]
                if len(predicates) > 1:
                    joined = f"{', '.join(predicates[:-1])}{rng.choice((' and ', ' and ', ', '))}{joined}"
                clause = f"{clause} {joined}"
            sentences.append(clause)
            subject = later
        sentences += alone
    if name is not None and subject != later:  # nothing was said of the subject
        sentences.insert(rng.randint(0, len(sentences)), rng.choice(phrases.NAMED).replace("{v}", name))
    glue = rng.choice((". ",) * 12 + ("; ",))
    return glue.join(sentences) + rng.choice((".", ".", ".", ".", "", "!"))


_FIRST_PERSON = {"is": "am", "has": "have", "does": "do", "was": "was", "can": "can", "will": "will"}


def _agree(subject: str, predicate: str) -> str:
    """The predicate of "she", as "I" has it."""
    if subject != "I":
        return predicate
    verb, _, rest = predicate.partition(" ")
    if verb in _FIRST_PERSON:
        verb = _FIRST_PERSON[verb]
    elif verb.endswith(("ches", "shes", "oes")):
        verb = verb[:-2]
    elif verb.endswith("ies"):
        verb = f"{verb[:-3]}y"
    elif verb.endswith("s"):
        verb = verb[:-1]
    return f"{verb} {rest}"


# Classes


def _ask(rng: random.Random, text: str, facts: list[Fact]) -> Record:
    size = 1
    while size < min(10, len(facts)) and rng.random() < 0.86:
        size += 1
    names = _field_names(rng, facts)
    asked = rng.sample(range(len(facts)), size)
    entries = [(names[i], _perhaps(rng, rng.choice(facts[i].types)), facts[i].value) for i in asked]
    if rng.random() < UNSTATED_SHARE:
        topic, kind = rng.choice(phrases.UNSTATED)
        name = rng.choice(topic.names.split())
        if not any(set(topic.names.split()) & set(fact.names) for fact in facts):
            entries.insert(rng.randint(0, len(entries)), (name, kind | None, None))
    if len(entries) > 2 and rng.random() < NESTED_SHARE:
        entries = _nested(rng, entries)
    opening = rng.choice(words.OPENINGS).format(n=rng.randint(1, 999)) if rng.random() < 0.1 else ""
    closing = rng.choice(words.CLOSINGS).format(n=rng.randint(1, 999)) if rng.random() < 0.1 else ""
    if closing and text[-1] not in ".!":
        text += "."
    prompt = make_prompt(ANY_KIND if rng.random() < 0.3 else rng.choice(KINDS), opening + text + closing)
    return Record(prompt, {name: kind for name, kind, _ in entries}, {name: value for name, _, value in entries})


def _perhaps(rng: random.Random, kind: Any) -> Any:
    return kind | None if rng.random() < 0.12 else kind


def _field_names(rng: random.Random, facts: list[Fact]) -> list[str]:
    """A field name for each fact, no name twice, and none that another fact would answer as well."""
    names: list[str] = []
    for fact in facts:
        others = {name for other in facts if other is not fact for name in other.names}
        free = [name for name in fact.names if name not in others] or [f"{fact.names[0]}_{len(names)}"]
        names.append(rng.choice(free))
    return names


def _nested(rng: random.Random, entries: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    size = rng.randint(1, len(entries) - 1)
    start = rng.randint(0, len(entries) - size)
    inner = entries[start : start + size]
    name = rng.choice("details contact_details info data person_data customer_info inner extra about".split())
    outer = (name, {key: kind for key, kind, _ in inner}, {key: value for key, _, value in inner})
    return [*entries[:start], outer, *entries[start + size :]]
