"""The microbenchmarks can be read for every adapter that they name, with options that it knows."""

from __future__ import annotations

import pytest

from penstock_bench.measure.adapters.adapter import adapter_class
from penstock_bench.measure.setup.read import read_setup
from penstock_bench.workloads import micro


@pytest.mark.parametrize("name", micro.names())
def test_options_of_other_adapters(name: str) -> None:
    file = micro.setup_file(name)
    for adapter, options in read_setup(file).system.others.items():
        setup = read_setup(file, adapter=adapter)
        assert setup.system.options == options
        assert adapter_class(adapter)(setup)
