"""The adapter that the page on measuring shows is the one under examples/, and can be measured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from penstock_bench.measure.running.logs import read_log

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "numpy_average.py"


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```" in page


def test_the_example_is_measured(penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLE.parent), os.environ.get("PYTHONPATH", "")]))
    setup = EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8")
    (tmp_path / "setup.toml").write_text(
        setup.replace('text.numpy = "price"', 'text.numpy = "id"').replace('symbol = "STRING"', 'id = "BIGINT"')
        .replace('symbol = { generator = "list", values = ["ACME", "HOLT"] }', 'id = { generator = "sequential" }')
        + "\n[measuring]\nanswers = true\n"
    )  # fmt: skip
    code, out, err = penstock("bench", "run", "setup.toml", "--quick", "--quiet", "--set", "rows=10", "-o", "run")
    assert (code, err) == (0, "")
    answers = read_log(Path("run/answers/average"))
    assert answers is not None
    count = json.loads(out)["latency"]["average"]["count"]
    assert answers.num_rows == count > 500
    numbers = np.arange(1, count + 1)
    np.testing.assert_allclose(answers["average"].to_numpy(), (numbers + np.maximum(numbers - 9, 1)) / 2)
