"""The texts that fuzzing has kept obey the law that it looks for a breach of; see ``tests/fuzz``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import law

CORPUS = Path(law.__file__).with_name("corpus")


@pytest.mark.parametrize("kind", law.KINDS)
def test_kept_texts_obey_the_law(kind: str) -> None:
    texts = [path.read_bytes().decode(errors="replace") for path in sorted((CORPUS / kind).iterdir())]
    constraints = sum(law.check(kind, text) for text in texts)
    assert 10 <= constraints < len(texts), "a corpus holds constraints, and texts that are none"


def test_the_law_can_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("re.fullmatch", lambda pattern, text: None)
    with pytest.raises(law.LawBroken, match="re disagree"):
        law.check("regex", "a|b")
