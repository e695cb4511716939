"""The query language: text to typed query. `parse`, `ProgramText` and `outside` are all that other packages call here,
besides `lang.query`'s types, `lang.fingerprint` and `lang.render`.
"""

from __future__ import annotations

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.parsing import Outside, ProgramText, outside, parse

__all__ = ["Outside", "ProgramText", "UserSignature", "outside", "parse"]
