"""The query language: text to typed query. `parse` is all that other packages call here, besides `lang.query`'s types,
`lang.fingerprint` and `lang.render`.
"""

from __future__ import annotations

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.parsing import parse

__all__ = ["UserSignature", "parse"]
