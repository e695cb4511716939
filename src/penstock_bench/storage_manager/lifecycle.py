"""The lifecycle of stores: made from their properties, given indices, removed. The one place that decides which
implementation serves which properties.

    persistent                 a table in a database           database_storage
    FIFO, NO-UPDATE            the engine's FIFO store         fifo_storage
    RANDOM                     blocks with marks               random_storage
    IN-PLACE                   blocks that are written again   keyed_storage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from penstock.errors import StorageError
from penstock.instruments import Database, FifoStore, SqliteDatabase, StoreManager, UpdatePattern
from penstock_bench.storage_manager.database_storage import DatabaseStorage
from penstock_bench.storage_manager.fifo_storage import FifoStorage
from penstock_bench.storage_manager.indices import ValueIndices
from penstock_bench.storage_manager.instance import StoreInstance
from penstock_bench.storage_manager.items import Item, ItemCodec
from penstock_bench.storage_manager.keyed_storage import KeyedStorage
from penstock_bench.storage_manager.properties import Embedded, IndexSchema, Postgres, Properties, Role, Transient
from penstock_bench.storage_manager.random_storage import RandomStorage
from penstock_bench.storage_manager.storage import Place, Storage


class StorageManager:
    """Stores in the budget and on the devices of `stores`.

    >>> from penstock.instruments import Budget
    >>> manager = StorageManager(StoreManager(Budget(1 << 20), None))
    >>> tolls = manager.create_store(Properties(update=UpdatePattern.FIFO), "tolls")
    >>> tolls.buffer_item({"segment": 4, "toll": 20})
    0
    >>> tolls.reader("notification").get_attribute(0, "toll")
    20
    """

    def __init__(self, stores: StoreManager) -> None:
        self._stores = stores
        self._instances: dict[str, StoreInstance] = {}

    def create_store(self, properties: Properties, name: str, source: Iterable[Item] | None = None) -> StoreInstance:
        """A store with these properties. Its name is unique; `source` is what an active one takes its items from."""
        if name in self._instances:
            raise StorageError(f"there is a store {name!r} already; choose another name")
        if (source is not None) != (properties.role is Role.ACTIVE):
            raise StorageError("an active store needs a source to take items from, and a passive one has none")
        place = Place(name, self._stores.budget, lambda: self._stores.create_device(name))
        try:
            storage = self._storage(properties, name, place)
            instance = StoreInstance(name, properties, storage, place, source)
        except Exception:
            place.give_back()
            with suppress(KeyError):  # blocks may not have been made
                self._stores.drop(name)
            raise
        self._instances[name] = instance
        return instance

    def remove_store(self, store: StoreInstance) -> None:
        """Destroys a store and what it holds; the table of a persistent one is dropped."""
        self._end(store, store.destroy)

    def close_store(self, store: StoreInstance) -> None:
        """Ends the use of a store; a persistent one can be created again with all it has."""
        self._end(store, store.close)

    def register_index(self, schema: IndexSchema, store: StoreInstance) -> None:
        """From now on items of the store can be found, or replaced, by these attributes."""
        store.register_index(schema)

    def close(self) -> None:
        """Closes all stores, also those after one that fails."""
        with ExitStack() as closing:
            for store in self._instances.values():
                closing.callback(self.close_store, store)

    def _end(self, store: StoreInstance, end: Callable[[], None]) -> None:
        if self._instances.get(store.name) is not store:
            raise StorageError(f"{store.name!r} is not a store of this manager, or was removed before")
        del self._instances[store.name]
        try:
            end()
        finally:
            if isinstance(store.properties.persistence, Transient):
                self._stores.drop(store.name)

    def _storage(self, properties: Properties, name: str, place: Place) -> Storage:
        codec = ItemCodec(properties.schema, place.account("strings"))
        where = properties.persistence
        if isinstance(where, Embedded | Postgres):
            return _in_database(where, codec, place)
        indices = ValueIndices(codec, place.account("indices"))
        if properties.update is UpdatePattern.RANDOM:
            return RandomStorage(place, codec, indices)
        if properties.update is UpdatePattern.IN_PLACE:
            return KeyedStorage(place, codec, indices)
        rows = self._stores.create(name, properties, codec.columns)
        assert isinstance(rows, FifoStore)
        return FifoStorage(rows, codec, indices, place.account("new items"))


def _in_database(where: Embedded | Postgres, codec: ItemCodec, place: Place) -> Storage:
    database = _database(where)
    try:
        return DatabaseStorage(database, where.table, codec, place.account("new items"))
    except Exception:
        database.close()
        raise


def _database(where: Embedded | Postgres) -> Database:
    if isinstance(where, Embedded):
        return SqliteDatabase(where.path)
    from penstock.instruments import PostgresDatabase  # psycopg is an extra

    return PostgresDatabase(where.conninfo)
