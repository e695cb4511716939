"""The glossary says one thing for each term, and its files exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

NEEDED = {
    "evaluation", "boundary", "slide", "extent", "watermark", "lateness", "late event", "chunk", "piece", "slot",
    "group", "grouping", "state", "window member", "tail", "pane", "family", "block", "page", "pool", "frame", "budget",
    "account", "charge", "derived stream", "sink", "source", "share", "bucket", "micro-batch", "snapshot",
    "checkpoint", "reject",
}  # fmt: skip


def terms() -> list[str]:
    rows = re.findall(r"^\| (\*\*.*?) \| .+ \|$", PAGE, re.MULTILINE)
    return [term for row in rows for term in re.findall(r"\*\*(.+?)\*\*", row)]


def test_every_term_is_explained_once() -> None:
    assert [term for term, times in Counter(terms()).items() if times > 1] == []
    assert set(terms()) >= NEEDED


def test_its_files_exist() -> None:
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE):
        assert (ROOT / "src" / "penstock" / name).exists(), name
