"""The pages, each in a file of its own."""

from penstock.web.kit import Site
from penstock_bench.web.bench import Bench
from penstock_bench.web.pages.controller import controller_page
from penstock_bench.web.pages.monitor import monitor_page


def bench_site(bench: Bench) -> Site:
    """A site where benchmarks can be run and looked at."""
    site = Site(first="/controller")
    site.pages = [controller_page(site, bench), monitor_page(site, bench)]
    return site
