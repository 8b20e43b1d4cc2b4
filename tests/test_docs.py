"""The Python on docs/python.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.filterwarnings("ignore:.*no column says how episodes end")
def test_docs_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert f">>> data\n{names['data']!r}\n" in page
    assert len(names["losses"]) == 60
    assert repr(names["policy"]).endswith("needs reset and observe>")
    account = names["policy"]._cost_to_go.item() * names["policy"].metadata.cost_unit
    assert account == pytest.approx(10 - names["spent"])
