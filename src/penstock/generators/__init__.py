"""Streams that `generate:` sources make: importing this makes `generate:callcentre`, `generate:stock` and
`generate:rate-sizing-d` (-r, -m) known."""

from penstock.connect.generate import register_generator
from penstock.generators import callcentre, rate_sizing, stock

register_generator("callcentre", callcentre.from_parameters)
register_generator("stock", stock.from_parameters)
for name in rate_sizing.STREAMS:
    register_generator(f"rate-sizing-{name}", rate_sizing.factory(name))
