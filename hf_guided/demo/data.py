"""Synthetic business texts and the JSON records they state.

A text never shares its main name (the seller, the guest, the person) with the other split: a checksum of the name
says which split may use it. A held-out record therefore always needs copying of a combination never trained on.
"""

from __future__ import annotations

import json
import random
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hf_guided.demo import words
from hf_guided.demo.schemas import CURRENCIES, ROOMS, SCHEMAS

Split = Literal["train", "held_out"]

KINDS: tuple[str, ...] = tuple(SCHEMAS)
ANY_KIND = "record"

_HELD_OUT_SHARE = 8  # one name in eight belongs to the held-out split
_MADE_UP_SHARE = 0.3  # share of the names that are invented words, so that copying beats memorizing


@dataclass(frozen=True)
class Example:
    """One task for the demo model, with its answer.

    Attributes:
        kind: "invoice", "booking" or "person".
        prompt: the model's input; it ends where the record begins.
        record: the right answer, its keys in output order.
        schema: the JSON Schema of this kind, shared between examples: read it, do not write to it.
    """

    kind: str
    prompt: str
    record: dict[str, Any]
    schema: dict[str, Any]

    @property
    def answer(self) -> str:
        """The text of the record as the model was trained to write it."""
        return json.dumps(self.record, ensure_ascii=False)


def make_prompt(kind: str, text: str) -> str:
    """Put your own text into the form that the demo model was trained on.

    Args:
        kind: "invoice", "booking" or "person", whose records the model writes without a format too; or "record" for
            any other text. With a class of your own, each of them will do.
        text: one paragraph, without line breaks.

    Returns:
        The prompt, up to and including the line break after "JSON:".

    Raises:
        ValueError: another kind, or a text with a line break.
    """
    if kind not in (*KINDS, ANY_KIND):
        raise ValueError(f"kind: expected one of {', '.join((*KINDS, ANY_KIND))}, got {kind!r}")
    if "\n" in text:
        raise ValueError("text: expected one paragraph; join its lines with spaces, the model knows no line breaks")
    return f"[{kind}]\n{text}\nJSON:\n"


def examples(n: int, seed: int = 0, split: Split = "held_out") -> list[Example]:
    """Generate examples, the kinds taking turns.

    Args:
        n: how many.
        seed: the same seed, split and n give the same examples.
        split: "train" for the training data, "held_out" for names it has never seen together.

    Returns:
        A new list of `n` examples.
    """
    stream = iter_examples(seed, split)
    return [next(stream) for _ in range(n)]


def iter_examples(seed: int, split: Split) -> Iterator[Example]:
    """Generate examples without end; see `examples`."""
    # A string seed is hashed by `random` with SHA-512: the same on every machine, and different for the two splits.
    rng = random.Random(f"{split}/{seed}")
    while True:
        for kind in KINDS:
            text, record = _WRITERS[kind](rng, split)
            text = _chatter(rng, words.OPENINGS) + text[0].upper() + text[1:] + _chatter(rng, words.CLOSINGS)
            yield Example(kind, make_prompt(kind, text), record, SCHEMAS[kind])


def _chatter(rng: random.Random, phrases: tuple[str, ...]) -> str:
    """Occasionally a sentence that belongs in no record, numbers included."""
    return rng.choice(phrases).format(n=rng.randint(1, 999)) if rng.random() < 0.3 else ""


def _in_split(name: str, split: Split) -> bool:
    held_out = zlib.crc32(name.encode()) % _HELD_OUT_SHARE == 0
    return held_out == (split == "held_out")


def _draw(rng: random.Random, split: Split, make: Callable[[random.Random], str]) -> str:
    while True:
        name = make(rng)
        if _in_split(name, split):
            return name


def _made_up(rng: random.Random) -> str:
    syllables = (rng.choice(words.ONSETS) + rng.choice(words.VOWELS) for _ in range(rng.choice((1, 2, 2, 3))))
    return ("".join(syllables) + rng.choice(words.CODAS)).capitalize()


def _word(rng: random.Random, known: tuple[str, ...]) -> str:
    return _made_up(rng) if rng.random() < _MADE_UP_SHARE else rng.choice(known)


def _person_name(rng: random.Random) -> str:
    return f"{_word(rng, words.FIRST_NAMES)} {_word(rng, words.LAST_NAMES)}"


def _company(rng: random.Random) -> str:
    return f"{_word(rng, words.COMPANY_HEADS)} {rng.choice(words.COMPANY_TAILS)}"


def _email(rng: random.Random, name: str) -> str:
    plain = unicodedata.normalize("NFKD", rng.choice(name.split()).translate(_STROKED)).encode("ascii", "ignore")
    return f"{plain.decode().lower()}@{_word(rng, words.COMPANY_HEADS).lower()}.example"


# The letters of the word lists that Unicode does not take apart into a letter and an accent.
_STROKED = str.maketrans("ŁłØø", "LlOo")


def _date(rng: random.Random) -> tuple[str, str]:
    """A date as a text may write it, and as ISO."""
    year, month, day = rng.randint(2020, 2029), rng.randint(1, 12), rng.randint(1, 28)
    iso = f"{year}-{month:02d}-{day:02d}"
    name = words.MONTHS[month - 1]
    return rng.choice((f"{day} {name} {year}", f"{day} {name} {year}", f"{name} {day}, {year}", iso)), iso


def _amount(rng: random.Random, whole_only: bool) -> int | float:
    whole = rng.randint(1, 9) if rng.random() < 0.1 else rng.randint(10, 999)
    if rng.random() < 0.3:
        whole = rng.randint(1000, 9999)
    if whole_only or rng.random() < 0.4:
        return whole
    # The last digit is never 0, so the text and json.dumps write the same number.
    return float(f"{whole}.{rng.randint(0, 9)}{rng.randint(1, 9)}")


def _count(rng: random.Random, n: int, noun: str) -> str:
    written = words.NUMBER_WORDS[n] if rng.random() < 0.6 else str(n)
    return f"{written} {noun if n == 1 else noun + 's' if noun != 'person' else 'people'}"


_CURRENCY_WORDS = {
    "EUR": ("euros", "EUR"),
    "USD": ("dollars", "US dollars", "USD"),
    "GBP": ("pounds", "GBP"),
    "CHF": ("francs", "Swiss francs", "CHF"),
    "JPY": ("yen", "JPY"),
}

_PAID = ("It has been paid.", "Paid in full.", "The money has arrived.", "This is already settled.")
_OPEN = ("It is still open.", "Not paid yet.", "Payment is outstanding.", "We have not settled it.")

_INVOICE_TEXTS = (
    "Invoice {number} from {seller}, dated {date}. The total is {total} {unit}. {state}",
    "{seller} sent invoice {number} on {date}. Amount due: {total} {unit}. {state}",
    "On {date} we received invoice {number} over {total} {unit} from {seller}. {state}",
    "Please file {number}: {total} {unit}, issued by {seller} on {date}. {state}",
    "{state} The invoice {number} of {date} from {seller} comes to {total} {unit}.",
    "{seller} charges {total} {unit} for last month, see {number} of {date}. {state}",
    "Reminder: {number} from {seller} over {total} {unit}. {state} Invoice date was {date}.",
    "Date: {date}. Seller: {seller}. Number: {number}. Total: {total} {unit}. {state}",
    "{seller} has billed us {total} {unit}. {state} Number {number}, {date}.",
    "New invoice from {seller} ({number}), {total} {unit}, {date}. {state}",
    "Our order with {seller} cost {total} {unit}. {state} They wrote {number} on {date}.",
    "{date}: {seller}, {number}, {total} {unit}. {state}",
)


def _invoice(rng: random.Random, split: Split) -> tuple[str, dict[str, Any]]:
    number = f"INV-{rng.randint(0, 9999):04d}"
    seller = _draw(rng, split, _company)
    written, iso = _date(rng)
    currency = rng.choice(CURRENCIES)
    total = _amount(rng, whole_only=currency == "JPY")
    paid = rng.random() < 0.5
    text = rng.choice(_INVOICE_TEXTS).format(
        number=number,
        seller=seller,
        date=written,
        total=total,
        unit=rng.choice(_CURRENCY_WORDS[currency]),
        state=rng.choice(_PAID if paid else _OPEN),
    )
    record = {"number": number, "seller": seller, "date": iso, "total": total, "currency": currency, "paid": paid}
    return text, record


_ROOM_WORDS = {
    "single": ("a single room", "one single"),
    "double": ("a double room", "one double"),
    "suite": ("a suite", "the suite"),
}
_WITH_BREAKFAST = ("with breakfast", "breakfast included", "and breakfast please")
_NO_BREAKFAST = ("without breakfast", "no breakfast", "but no breakfast")

_BOOKING_TEXTS = (
    "{guest} would like {room} in {city} from {date}, {nights}, {people}, {breakfast}.",
    "Booking for {guest}: {room} in {city}, arriving {date} for {nights}. {people}, {breakfast}.",
    "Please reserve {room} for {people} in {city}, {breakfast}. {guest} arrives on {date} and stays {nights}.",
    "{nights} in {city} for {guest}, starting {date}. We need {room} for {people}, {breakfast}.",
    "We have {people} coming to {city} on {date} for {nights}. The name is {guest}, {room}, {breakfast}.",
    "{guest}, {people}, checks in on {date} at our hotel in {city}, {room}, {nights}, {breakfast}.",
    "City: {city}. Guest: {guest}. Arrival: {date}. Stay: {nights}. Party: {people}. {room}, {breakfast}.",
    "I want to book {room} for {guest} in {city}. Check-in {date}, {nights}, {people}, {breakfast}.",
    "{guest} is travelling to {city} and needs {room}, {breakfast}, for {people}. It is {nights} from {date}.",
    "From {date} {guest} stays {nights} in {city}: {room}, {people}, {breakfast}.",
    "{date}, {city}, {nights}: {room} for {guest}, {people}, {breakfast}.",
    "Can you hold {room} in {city}, {breakfast}, for {nights} from {date}? It is for {people}, name {guest}.",
)


def _booking(rng: random.Random, split: Split) -> tuple[str, dict[str, Any]]:
    guest = _draw(rng, split, _person_name)
    city = _word(rng, words.CITIES)
    written, iso = _date(rng)
    nights = rng.randint(1, 14)
    people = rng.randint(1, 6)
    room = rng.choice(ROOMS)
    breakfast = rng.random() < 0.5
    text = rng.choice(_BOOKING_TEXTS).format(
        guest=guest,
        city=city,
        date=written,
        nights="a week" if nights == 7 and rng.random() < 0.5 else _count(rng, nights, "night"),
        people=_count(rng, people, "person"),
        room=rng.choice(_ROOM_WORDS[room]),
        breakfast=rng.choice(_WITH_BREAKFAST if breakfast else _NO_BREAKFAST),
    )
    record = {
        "guest": guest,
        "city": city,
        "check_in": iso,
        "nights": nights,
        "people": people,
        "room": room,
        "breakfast": breakfast,
    }
    return text, record


_REMOTE = ("works from home", "works remotely", "is fully remote")
_ON_SITE = ("comes to the office", "works on site", "is in the office every day")

_PERSON_TEXTS = (
    "{name}, {age}, is our {job} in {city}. With us since {since}, {place}. Mail: {email}.",
    "{name} ({email}) lives in {city}, {place} and joined as {a_job} in {since}. Age: {age}.",
    "Meet {name} from {city}, aged {age}, {a_job} since {since} who {place}. Write to {email}.",
    "In {since} we hired {name} as {job}. Now {age} years old and based in {city}, {name} {place}, {email}.",
    "Our {job} {name} {place}. Age {age}, home town {city}, here since {since}, reachable at {email}.",
    "The {job} in {city} is {name}, {age} years old, who {place} and started in {since}. Contact: {email}.",
    "Name: {name}. Mail: {email}. Job: {job}. City: {city}. Age: {age}. Since: {since}. {name} {place}.",
    "Since {since} the {age} year old {name} has been {a_job} in {city} and {place}. You can use {email}.",
    "{name} joined us in {since}. At {age}, {name} is {a_job} in {city} and {place}. Ask {email}.",
    "The address {email} belongs to {name}, {a_job} of {age} from {city}, employed since {since}, who {place}.",
    "We have {a_job} in {city}: {name}, {email}, age {age}, since {since}. {name} {place}.",
    "{name}, {job}, {city}, {age}, since {since}, {email}, {place}.",
)


def _person(rng: random.Random, split: Split) -> tuple[str, dict[str, Any]]:
    name = _draw(rng, split, _person_name)
    email = _email(rng, name)
    age = rng.randint(18, 79)
    city = _word(rng, words.CITIES)
    job = rng.choice(words.JOBS)
    since = rng.randint(max(1990, 2042 - age), 2025)  # the minimum age for joining is 16
    remote = rng.random() < 0.5
    text = rng.choice(_PERSON_TEXTS).format(
        name=name,
        email=email,
        age=age,
        city=city,
        job=job,
        a_job=f"{'an' if job[0] in 'aeiou' else 'a'} {job}",
        since=since,
        place=rng.choice(_REMOTE if remote else _ON_SITE),
    )
    record = {
        "name": name,
        "email": email,
        "age": age,
        "city": city,
        "job": job,
        "since": since,
        "remote": remote,
    }
    return text, record


_WRITERS: dict[str, Callable[[random.Random, Split], tuple[str, dict[str, Any]]]] = {
    "invoice": _invoice,
    "booking": _booking,
    "person": _person,
}
