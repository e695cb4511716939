"""The query language: text to typed query. `parse`, `outside` and `declared_streams` are all that other packages call
here, besides `lang.query`'s types, `lang.fingerprint` and `lang.render`.
"""

from __future__ import annotations

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.parsing import Outside, declared_streams, outside, parse

__all__ = ["Outside", "UserSignature", "declared_streams", "outside", "parse"]
