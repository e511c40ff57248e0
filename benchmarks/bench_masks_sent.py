"""How many masks does a step send to the device? Counted over the sample of JSONSchemaBench, without a device.

    python -m benchmarks.bench_masks_sent [--schemas 200]   # about five minutes

Each schema's valid instances are written one after the other, as Tekken's tokens. A mask counts as sent if it is in no
table, or new there; the shares are per row and step, for the first instance of each schema and for the later ones.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import hf_guided as hg
from benchmarks.common import finish, parser, schema_rows, spread, table_of
from hf_guided.session.mask_table import MaskTables
from hf_guided.session.masks import MaskFiller
from tests import vocabularies

Counts = Counter[str]


def steps(guide: hg.Guide, filler: MaskFiller, constraint: Any, token_ids: list[int], limit: int | None) -> Counts:
    """The masks of one text: how many, and how many of them are sent."""
    session = guide.session(constraint, max_new_tokens=limit)
    [row] = session.begin(1)
    assert row.matcher is not None
    table = filler._tables and filler._tables.of(filler._device)
    found: Counts = Counter()
    for number, token_id in enumerate(token_ids):
        before = len(table._by_content) if table else 0
        masks = filler.fill([row], [None if limit is None else limit - number])
        found["all"] += 1
        found["sent"] += masks.slots[0] < 0 or (table is not None and len(table._by_content) > before)
        if not row.advance(token_id):
            break
    return found


def main() -> None:
    made = parser(__doc__, "masks_sent.csv")
    made.add_argument("--schemas", type=int, default=200)
    arguments = made.parse_args()
    tokenizer = vocabularies.fast_tekken()
    guide = hg.Guide(tokenizer, len(tokenizer))
    rows = []
    for limit in (None, 2048):
        tables = MaskTables(guide.vocabulary.padded_size)
        filler = MaskFiller(guide.vocabulary, guide.vocabulary.stop_token_ids, tables=tables)
        counts = {"first": Counts(), "later": Counts()}
        for case in spread(schema_rows(), arguments.schemas):
            valid = [one["data"] for one in case["tests"] if one["valid"]]
            try:
                constraint = hg.JsonSchema(case["schema"], whitespace="flexible", extra="allow")
                guide.compile(constraint)
            except hg.ConstraintError:
                continue
            for number, one in enumerate(valid):
                ids = tokenizer.encode(json.dumps(one, ensure_ascii=False), add_special_tokens=False)[:1000]
                counts["later" if number else "first"] += steps(guide, filler, constraint, ids, limit)
        for name, count in counts.items():
            share = count["sent"] / max(1, count["all"])
            rows.append({"budget": limit or "", "instances": name, "masks": count["all"], "sent": f"{share:.4f}"})
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    main()
