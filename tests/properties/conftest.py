"""How long hypothesis searches here.

`quick` is what every run does; `pytest tests/properties --hypothesis-profile=ci-long` searches for a long time.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", max_examples=20, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci-long", max_examples=400, deadline=None, suppress_health_check=_SLOW_IS_FINE)
