"""A trace's page in headless Chromium: it opens without a network, shows all, and is used without a mouse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import hf_guided as hg
from hf_guided import demo
from hf_guided.trace.events import Alternative, Look, Span, TokenRecord, TokenText
from hf_guided.trace.page import shown
from hf_guided.trace.trace import Trace
from tests import vocabularies
from tests.browser import Visit, visit
from tests.integration import models

PATTERN = (
    r'\{"name": "[A-Z][a-z]+ [A-Z][a-z]+", "age": (?:1[89]|[2-9][0-9]), "email": "[a-z]+@laurel\.(?:org|net)", '
    r'"job": "(?:baker|gardener|engineer)"\}'
)
HOSTILE = [
    b"</script><script>window.hacked = 1</script>",
    b"<!--",
    b"]]>&amp;&#39;\"'`${1}",
    b"\x00\x07\x1b[31m\r\n",
    b"\xf0\x9f",
    b"\x98\x80",
    "\u202eright to left\u2066".encode(),
    "שלום עולם".encode(),
    "\u2028\u2029\ufeff".encode(),
    b'<img src=x onerror="window.hacked = 1">',
    b"\\u003c/script\\u003e",
    b" ",
    b"/*DATA*/",
]


@cache
def traced() -> Trace:
    """An answer of the demo model whose constraint wants another domain than the model does, with drafts."""
    model, tokenizer = demo.load()
    guide = hg.Guide(model, tokenizer)
    prompt = demo.make_prompt("person", "Our gardener Daria Pinto is 50 years old, reachable at daria@laurel.example.")
    inputs = tokenizer(prompt, return_tensors="pt")
    decoder = guide.decoder(hg.Regex(PATTERN), draft="prompt_lookup", trace=True, overlap=True)
    output = model.generate(**inputs, do_sample=False, max_new_tokens=100, custom_generate=decoder)
    trace = guide.trace(decoder, output, constraint=hg.Regex(PATTERN))
    assert {token.kind for token in trace.tokens} == {"chosen", "drafted", "forced"}
    assert any(token.look is not None and token.look.overruled for token in trace.tokens)
    return trace


def check_quiet(seen: Visit) -> None:
    """It fetched nothing, and nothing went wrong."""
    assert seen.said["errors"] == seen.said["violations"] == seen.said["resources"] == seen.console == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_shows_all_and_fetches_nothing(dark: bool, tmp_path: Path) -> None:
    trace = traced()
    trace.save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    script = """
      const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
      return {
        tokens: texts("#tokens .token"),
        classes: [...document.querySelectorAll("#tokens .token")].map((one) => one.className),
        titles: texts("svg .title"),
        bars: document.querySelectorAll("#removed .removed").length,
        spans: ["forward", "fill", "wait"].map((one) => document.querySelectorAll(`#timeline svg > .${one}`).length),
        numbers: texts("#numbers dt"),
        values: [...document.querySelectorAll("#numbers dd")].map((one) => one.firstChild.textContent),
        legend: texts(".legend b"),
        paper: getComputedStyle(document.body).backgroundColor,
      };"""
    seen = visit(page, script, tmp_path, dark=dark)
    check_quiet(seen)
    said = seen.said
    names = [(trace.texts[token.token_id].data or b"").decode() for token in trace.tokens]
    assert said["tokens"][:-1] == names[:-1]  # plain text here; the last is the stop token
    assert [one.split()[1] for one in said["classes"]] == [token.kind for token in trace.tokens]
    assert ["overruled" in one for one in said["classes"]] == [
        token.look is not None and token.look.overruled for token in trace.tokens
    ]
    assert said["titles"] == [
        "Position in the output (tokens)",
        "Probability removed (%)",
        "Time (ms)",
    ]
    assert said["bars"] == sum(token.look is not None and token.look.removed > 0 for token in trace.tokens)
    assert said["spans"] == [sum(span.what == what for span in trace.spans) for what in ("forward", "fill", "wait")]
    assert said["numbers"] == [
        "Tokens",
        "Forward passes",
        "Tokens per forward pass",
        "Forced",
        "Probability removed",
    ]
    tokens, forwards = len(trace.tokens), trace.forwards
    assert forwards is not None
    assert said["values"][:3] == [str(tokens), str(forwards), f"{tokens / forwards:.2f}"]
    assert float(said["values"][3].split("\u00a0")[0]) == pytest.approx(100 * trace.forced / tokens, rel=0.01)
    assert float(said["values"][4]) == pytest.approx(trace.removed, rel=0.01)
    assert said["legend"] == ["chosen", "drafted", "forced", "overruled"]
    assert (sum(map(int, re.findall(r"\d+", said["paper"])[:3])) < 3 * 64) == dark


def test_it_refers_to_nothing_outside(tmp_path: Path) -> None:
    page = traced().html()
    assert not re.search(r"<link|<img|<iframe|<object|@import|\bimport\(|\bfetch\(|XMLHttpRequest|WebSocket", page)
    assert not re.search(r"\b(?:src|href|action|poster)\s*=", page)
    assert re.findall(r"https?://[^\s\"'<>]*", page) == ["http://www.w3.org/2000/svg"]  # a name, which nobody fetches
    assert re.findall(r"url\(([^)]*)\)", page) == ["#hatch"]
    assert "default-src 'none'" in page


# What is said of the token in view, for every one of them: by pointing at it, and by the keyboard.
ROUND = """
  const details = document.getElementById("details");
  const tokens = [...document.querySelectorAll("#tokens .token")];
  const pointed = tokens.map((one) => {
    one.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
    return details.innerText;
  });
  const key = (name) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
  tokens[0].focus();
  key("Home");
  const walked = [details.innerText];
  for (let i = 1; i < tokens.length; i++) { key("ArrowRight"); walked.push(details.innerText); }
  const end = document.activeElement === tokens.at(-1);
  key("ArrowRight"); key("Home");
  return {
    pointed, walked, end,
    home: document.activeElement === tokens[0],
    stops: tokens.filter((one) => one.tabIndex === 0).length,
    selected: tokens.filter((one) => one.ariaSelected === "true").length,
    live: details.getAttribute("aria-live"),
    list: document.getElementById("tokens").getAttribute("role"),
  };"""


def test_pointing_and_the_keyboard_say_why_others_were_forbidden(tmp_path: Path) -> None:
    trace = traced()
    seen = visit(trace.html(), ROUND, tmp_path)
    check_quiet(seen)
    said = seen.said
    assert said["pointed"] == said["walked"]
    assert said["end"] and said["home"] and said["stops"] == said["selected"] == 1
    assert said["live"] == "polite" and said["list"] == "listbox"
    for token, text in zip(trace.tokens, said["pointed"], strict=True):
        assert f"id {token.token_id}" in text
        if token.look is None:
            assert "the constraint allows nothing else" in text
            continue
        allowed = f"{token.look.allowed:,}"
        assert (
            f"{allowed} of {trace.vocab_size:,} tokens {'is' if token.look.allowed == 1 else 'are'} allowed here"
            in text
        )
        forbidden = [one for one in token.look.best if not one.allowed]
        assert text.count("not allowed") == len(forbidden)
        for one in token.look.best:
            assert shown(trace.texts[one.token_id].data or b"").replace(" ", "␣") in text
        if forbidden:
            assert "Allowed here: " in text


def test_a_limit_says_what_it_left(tmp_path: Path) -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(model, tokenizer)
    inputs = tokenizer(demo.make_prompt("person", "Our gardener Daria Pinto is 50 years old."), return_tensors="pt")
    decoder = guide.decoder(hg.Regex(r"[a-z ]{2,80}\."), trace=True, overlap=True)
    output = model.generate(**inputs, do_sample=False, max_new_tokens=8, custom_generate=decoder)
    trace = guide.trace(decoder, output, constraint=hg.Regex(r"[a-z ]{2,80}\."))
    said = visit(trace.html(), ROUND, tmp_path).said["pointed"]
    narrowed = [token.look is not None and token.look.limit is not None for token in trace.tokens]
    assert any(narrowed) and ["The token limit left" in text for text in said] == narrowed
    # The page has the spans as the trace has them, also on which thread they were.
    [written] = re.findall(r'"spans":(\[.*?\])', trace.html())
    assert [span["worker"] for span in json.loads(written)] == [span.on_worker for span in trace.spans]


def test_text_stays_text(tmp_path: Path) -> None:
    texts = {n: TokenText(data, "") for n, data in enumerate(HOSTILE)}
    texts[99] = TokenText(None, "</s><b>")
    best = tuple(Alternative(n, 0.9 / (n + 1), n % 2 == 0) for n in texts)
    tokens = [TokenRecord(n, "chosen", Look(2, 0.5, best), 0.25, 0.5) for n in texts]
    trace = Trace(tuple(tokens), (), None, texts, "</code><script>window.hacked = 1</script>", 1000)
    script = f"""
      const round = (() => {{ {ROUND} }})();
      return {{...round, hacked: window.hacked ?? 0, scripts: document.scripts.length,
        bold: document.querySelectorAll("main b").length, images: document.images.length,
        tokens: [...document.querySelectorAll("#tokens .token")].map((one) => one.textContent),
        isolated: [...document.querySelectorAll("#tokens .token")].map((one) => getComputedStyle(one).unicodeBidi),
        constraint: document.getElementById("constraint").textContent}};"""
    page = trace.html()
    seen = visit(page, script, tmp_path)
    check_quiet(seen)
    assert seen.said["hacked"] == seen.said["images"] == 0
    assert seen.said["scripts"] == 4  # the data, the page's, and two that look
    assert seen.said["bold"] == 4  # the legend's
    assert seen.said["tokens"] == [shown(data).replace("↵", "↵\n") for data in HOSTILE] + ["</s><b>"]
    assert set(seen.said["isolated"]) == {"isolate"}
    assert seen.said["constraint"] == trace.constraint
    assert page.count("</script>") == 2


@pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")
def test_five_hundred_tokens(tmp_path: Path) -> None:
    tokenizer = vocabularies.tiny_byte_level()
    model = models.llama(tokenizer)
    guide = hg.Guide(model, tokenizer)
    decoder = guide.decoder(hg.Regex("[a-z ]{2000,}"), trace=True, backend="llguidance")
    prompt = torch.tensor([[50, 60]])
    output = model.generate(prompt, do_sample=False, max_new_tokens=500, custom_generate=decoder)
    trace = guide.trace(decoder, output, constraint=hg.Regex("[a-z ]{2000,}"))
    assert len(trace.tokens) == 500
    script = """return {tokens: document.querySelectorAll("#tokens .token").length,
      forwards: document.querySelectorAll("#timeline rect.forward").length,
      drawn: Number(document.documentElement.dataset.drawnMs)};"""
    seen = visit(trace.html(), script, tmp_path)
    check_quiet(seen)
    assert (seen.said["tokens"], seen.said["forwards"]) == (500, 500)
    assert seen.said["drawn"] > 0


@pytest.mark.parametrize("spans", [(), (Span("fill", 5, 5), Span("wait", 5, 5))], ids=["no times", "none passed"])
def test_nothing_to_show(spans: tuple[Span, ...], tmp_path: Path) -> None:
    seen = visit(Trace((), spans, 1, {}, "anything", 10).html(), "return {};", tmp_path)
    check_quiet(seen)


class _Frame(HTMLParser):
    attributes: dict[str, str | None]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "iframe" and not hasattr(self, "attributes")
        self.attributes = dict(attrs)


def test_a_notebook_shows_it_in_a_frame_of_its_own(tmp_path: Path) -> None:
    text = traced()._repr_html_()
    frame = _Frame()
    frame.feed(text)
    assert frame.attributes["srcdoc"] == traced().html()
    assert frame.attributes["sandbox"] == "allow-scripts"
    # The frame draws itself without complaint, and the page around it keeps its styles: neither sees the other.
    host = f"<!doctype html><html><head><title>host</title></head><body><h1>host</h1>{text}</body></html>"
    script = """const frame = document.querySelector("iframe");
      return {inside: frame.contentDocument === null, sheets: document.styleSheets.length,
        tall: frame.getBoundingClientRect().height > 600, weight: getComputedStyle(document.body).maxWidth};"""
    seen = visit(host, script, tmp_path)
    assert seen.said["errors"] == seen.console == []
    assert seen.said["inside"]
    assert seen.said["sheets"] == 0 and seen.said["weight"] == "none" and seen.said["tall"]


@pytest.mark.parametrize("tokens", [30, 500])
def test_it_fits_a_narrow_screen(tokens: int, tmp_path: Path) -> None:
    """Nothing is wider than 420 pixels but what scrolls in itself. Chromium's own window is never so narrow."""
    trace = traced()
    if tokens > len(trace.tokens):
        long = "(?:" + "x" * 300 + ")"
        trace = replace(trace, tokens=trace.tokens * (tokens // len(trace.tokens)), constraint=long)
    frame = f"""
      const frame = document.createElement("iframe");
      frame.style = "width: 420px; height: 900px; border: 0";
      document.body.append(frame);
      frame.contentDocument.open();
      frame.contentDocument.write({json.dumps(trace.html()).replace("<", chr(92) + "u003c")});
      frame.contentDocument.close();
      const page = frame.contentDocument, view = frame.contentWindow;
      const scrolls = (one) => one.closest(".scrolls") !== null;
      const wide = [...page.body.querySelectorAll("*")].filter((one) => !scrolls(one)
        && one.getBoundingClientRect().right > 420).map((one) => `${{one.tagName}} ${{one.className}} ${{one.id}}`);
      const bars = [...page.querySelectorAll("#removed .removed")].map((one) => one.getBoundingClientRect());
      return {{inner: view.innerWidth, wide, all: page.documentElement.scrollWidth, bars: bars.length,
        columns: view.getComputedStyle(page.querySelector("main")).gridTemplateColumns.split(" ").length,
        tokens: page.querySelectorAll("#tokens .token").length}};"""
    host = "<!doctype html><html><head><title>host</title></head><body></body></html>"
    seen = visit(host, frame, tmp_path)
    assert seen.said["errors"] == []
    assert seen.said["inner"] == 420 and seen.said["columns"] == 1
    assert seen.said["wide"] == [] and seen.said["all"] <= 420
    assert seen.said["tokens"] == len(trace.tokens) and seen.said["bars"] > 0


# Words of the house that say nothing to a reader of the page.
RIDDLES = r"\b(?:behind|told|tells|asked|stood|fought|came to be|confirmed|in view|anew|likewise)\b"


def test_its_words_are_plain(tmp_path: Path) -> None:
    script = ROUND.replace("return {", "return {all: document.querySelector('body').innerText, ")
    seen = visit(traced().html(), script, tmp_path)
    texts = "\n".join([seen.said["all"], *seen.said["pointed"]])
    assert "How this answer was generated" in texts and "Where the time went" in texts
    assert re.findall(RIDDLES, texts) == []
