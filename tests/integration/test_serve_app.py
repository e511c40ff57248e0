"""The web side of the server, around an engine that plays a script: who may ask, and what an answer says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from tokenizers.processors import TemplateProcessing

from hf_guided.serve.job import Ended, NewTokens
from hf_guided.serve.options import ServeOptions
from tests.serve_site import (
    Emit,
    Played,
    chat,
    error_of,
    events,
    says,
    served,
    site,
)

ROUTES = {
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model_id:path}"),
    ("POST", "/tokenize"),
    ("POST", "/v1/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/detokenize"),
    ("GET", "/health"),
    ("GET", "/metrics"),
}


def test_the_routes_are_these_and_no_others():
    def routes(url: str) -> set[tuple[str, str]]:
        with urllib.request.urlopen(f"{url}/openapi.json") as answer:
            paths = json.load(answer)["paths"]
        return {(method.upper(), path) for path, methods in paths.items() for method in methods}

    with site(docs_pages=True) as with_pages:
        assert {(method, path.replace(":path", "")) for method, path in ROUTES} == routes(with_pages.url)
    with site() as plain:
        for path in ("/docs", "/redoc", "/openapi.json", "/load_model", "/reset", "/v1/systemone", "/v1/audio/x"):
            for body in (None, {}):
                status, _, text = plain.send(body, path)
                assert status == 404 and error_of(text)["code"] == "not_found"
        assert plain.send(path="/v1/chat/completions")[0] == 405
        assert plain.send(path="/health")[0] == 200


def test_a_stream_ends_each_answer_once():
    with site() as started:
        started.engine.script = says(started.tokenizer, "abc", "de")  # the last tokens often come with the end
        for _ in range(10):
            _, _, text = started.send(chat(stream=True, n=2, temperature=1.0))
            choices = [choice for event in events(text) for choice in event["choices"]]
            assert sorted(choice["index"] for choice in choices if choice["finish_reason"] is not None) == [0, 1]
        started.engine.script = says(started.tokenizer, "abc")
        for _ in range(10):
            _, _, text = started.send({"input": "x", "stream": True}, "/v1/responses")
            kinds = [event["type"] for event in events(text)]
            assert kinds.count("response.output_text.done") == kinds.count("response.completed") == 1


def test_every_route_but_health_wants_a_key():
    with site(api_keys=("first", "second")) as guarded:
        assert guarded.send(path="/health")[0] == 200
        for method, path in sorted(ROUTES - {("GET", "/health")}):
            body = {} if method == "POST" else None
            for headers in ({}, {"authorization": "Bearer third"}, {"authorization": "Basic first"}):
                status, answered, text = guarded.send(body, path, **headers)
                assert (status, answered["www-authenticate"]) == (401, "Bearer")
                assert error_of(text)["code"] == "invalid_api_key"
        for key in ("first", "second"):
            assert guarded.send(path="/v1/models", authorization=f"Bearer {key}")[0] == 200
        assert 'refused_total{code="invalid_api_key"}' in guarded.send(path="/metrics", authorization="Bearer first")[2]


def test_other_pages_may_call_only_if_they_are_named():
    headers = {"origin": "https://a.example"}
    with site() as plain:
        assert "access-control-allow-origin" not in plain.send(path="/v1/models", **headers)[1]
    with site(allowed_origins=("https://a.example",)) as named:
        assert named.send(path="/v1/models", **headers)[1]["access-control-allow-origin"] == "https://a.example"
        answered = named.send(path="/v1/models", origin="https://b.example")[1]
        assert answered.get("access-control-allow-origin") != "https://b.example"
        assert "access-control-allow-credentials" not in answered
    with site(allowed_origins=("*",)) as every:
        answered = every.send(path="/v1/models", **headers)[1]
        assert answered["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answered


def test_a_page_cannot_send_a_request_without_asking_first():
    with site() as plain:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            status, _, text = plain.send(chat(), **{"content-type": kind})
            assert status == 415 and error_of(text)["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 10_000 + b"}", b"[1]", b"null"]
)
def test_bodies_that_are_no_objects(body):
    with site() as plain:
        status, _, text = plain.send(body)
        assert status == 400 and error_of(text)["type"] == "invalid_request_error"


def test_stop_strings_end_their_answer_alone():
    with site() as plain:
        plain.engine.script = says(plain.tokenizer, "one STOP more", "two")
        for stream in (False, True):
            status, _, text = plain.send(chat(n=2, stop=["STOP"], stream=stream))
            assert status == 200
            found = ["", ""]
            if stream:
                for event in events(text):
                    choice = event["choices"][0]
                    found[choice["index"]] += choice["delta"].get("content") or ""
            else:
                choices = json.loads(text)["choices"]
                found = [choice["message"]["content"] for choice in choices]
                assert [choice["finish_reason"] for choice in choices] == ["stop", "stop"]
            assert found == ["one ", "two"]
            assert 0 in plain.engine.played[-1].cancelled_answers
            assert 1 not in plain.engine.played[-1].cancelled_answers


def test_the_best_of_several():
    from hf_guided.session.logprobs import TokenLogprob

    with site() as plain:
        ids = [plain.tokenizer.encode(text, add_special_tokens=False)[0] for text in "abc"]

        def ranked(played: Played, emit: Emit) -> None:
            assert played.job.top_logprobs == 0
            for answer, logprob in enumerate((-3.0, -1.0, -2.0)):
                emit(NewTokens(answer, (ids[answer],)))
                emit(NewTokens(answer, logprobs=(TokenLogprob(ids[answer], logprob, 0.0, 0.0, False),)))
                emit(Ended(answer))

        plain.engine.script = ranked
        body = {"prompt": "x", "n": 2, "best_of": 3}
        status, _, text = plain.send(body, "/v1/completions")
        found = json.loads(text)
        assert status == 200
        assert [(choice["index"], choice["text"]) for choice in found["choices"]] == [(0, "b"), (1, "c")]
        assert found["usage"]["completion_tokens"] == 3 and found["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_an_engines_error_names_no_file(stream):
    with site() as plain:
        plain.engine.script = lambda played, emit: emit(Ended(0, error=RuntimeError("no /home/someone/model.bin here")))
        status, _, text = plain.send(chat(stream=stream))
        error = events(text)[-1]["error"] if stream else error_of(text)
        assert status == (200 if stream else 500)
        assert (error["type"], error["message"]) == ("server_error", "no (path) here")


def test_usage_comes_when_it_is_asked_for():
    with site() as plain:
        plain.engine.script = says(plain.tokenizer, "two words")
        _, _, text = plain.send(chat(stream=True))
        assert all("usage" not in event for event in events(text))
        _, _, text = plain.send(chat(stream=True, stream_options={"include_usage": True}))
        *chunks, last = events(text)
        assert all(chunk["usage"] is None for chunk in chunks)
        assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0


def test_tokens_and_back():
    with site() as plain:
        text = "Grüße <b>"
        _, _, body = plain.send({"prompt": text, "add_special_tokens": False, "return_token_strs": True}, "/tokenize")
        found = json.loads(body)
        assert found["tokens"] == plain.tokenizer.encode(text, add_special_tokens=False)
        assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
        _, _, body = plain.send({"tokens": found["tokens"]}, "/v1/detokenize")
        assert json.loads(body) == {"prompt": text}
        _, _, body = plain.send({"messages": [{"role": "user", "content": text}]}, "/v1/tokenize")
        assert json.loads(body)["count"] > 0
        again = {"messages": [{"role": "user", "content": text}], "add_special_tokens": True}
        status, _, body = plain.send(again, "/tokenize")
        assert (status, error_of(body)["param"]) == (400, "add_special_tokens")


@pytest.mark.parametrize("stream", [False, True])
def test_echo_repeats_a_text_as_it_was_sent(stream, monkeypatch):
    """Not as the tokenizer would write it again, with special tokens of its own."""
    with site() as plain:
        prompt = "Grüße\r\n"
        begins = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", served().tokenizer.bos_token_id)])
        monkeypatch.setattr(served().tokenizer.backend_tokenizer, "post_processor", begins)
        assert served().tokenizer.decode(served().tokenizer(prompt)["input_ids"]) != prompt
        plain.engine.script = says(plain.tokenizer, "!")
        _, _, text = plain.send({"prompt": prompt, "echo": True, "stream": stream}, "/v1/completions")
        made = events(text) if stream else [json.loads(text)]
        assert "".join(choice["text"] for part in made for choice in part["choices"]) == f"{prompt}!"


def test_a_stop_string_waits_for_the_log_probabilities_of_its_text():
    from hf_guided.session.logprobs import TokenLogprob

    with site() as plain:
        ids = plain.tokenizer.encode("hello world", add_special_tokens=False)

        def late(played: Played, emit: Emit) -> None:
            emit(NewTokens(0, tuple(ids)))
            emit(NewTokens(0, logprobs=tuple(TokenLogprob(token_id, -1.0, 0.0, 0.0, False) for token_id in ids)))
            if not played.cancelled.wait(10):
                emit(Ended(0, "length"))

        plain.engine.script = late
        _, _, text = plain.send(chat(logprobs=True, stop="rld"))
        [choice] = json.loads(text)["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("hello wo", "stop")
        *whole, cut = [token["token"] for token in choice["logprobs"]["content"]]
        assert len("".join(whole)) < len("hello wo") and "".join([*whole, cut]).startswith("hello wo")


def test_a_client_is_known_by_its_key_however_the_header_is_spaced():
    from starlette.datastructures import Headers

    from hf_guided.serve.limits import key_of

    written = ("Bearer first", "bearer  first", "BEARER   first ")
    assert {key_of(Headers({"authorization": value})) for value in written} == {"first"}
    assert key_of(Headers({"authorization": "Basic first"})) == key_of(Headers({})) == ""


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [("0.0.0.0", (), True), ("0.0.0.0", ("k",), False), ("localhost", (), False), ("::1", (), False), ("", (), True)],
)
def test_a_server_that_all_may_use_says_so(host, keys, warned, caplog):
    from fastapi import FastAPI

    from hf_guided.serve.app import Server

    Server(FastAPI(), ServeOptions("demo", host=host, api_keys=keys), lambda _: None)
    assert any("--api-key" in record.getMessage() for record in caplog.records) == warned
