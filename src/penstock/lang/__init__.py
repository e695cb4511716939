"""The query language: text to typed query. `parse` and `declared_streams` are all that other packages call here,
besides `lang.query`'s types, `lang.fingerprint` and `lang.render`.
"""

from __future__ import annotations

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.parsing import declared_streams, parse

__all__ = ["UserSignature", "declared_streams", "parse"]
