"""The storage manager for streams: a store is made from what is known of its use, and used item by item.

    producer ──buffer_item──▶ store ──┬──▶ reader 1: its own read pattern, block cache and consumption
             ──deletes, updates──▶    └──▶ reader 2

The interface is that of *Flexible and Scalable Storage Management for Data-intensive Stream Processing*:
`properties` and `indices` say what a store must offer, `lifecycle` makes and removes stores, `instance` and `readers`
are the operations. Underneath lie the engine's own columnar stores. The engine derives the properties of its stores
from the plan (`penstock.store.derived_properties`) and uses them by whole columns; measurements use this interface.
"""
