"""Workloads of the papers as generators; importing this makes `generate:callcentre` and `generate:stock` known."""

from penstock.connect.generate import register_generator
from penstock.workloads import callcentre, stock

register_generator("callcentre", callcentre.from_parameters)
register_generator("stock", stock.from_parameters)
