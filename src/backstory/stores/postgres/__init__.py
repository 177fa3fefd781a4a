"""Sessions in PostgreSQL: see `backstory.stores.postgres.store`."""
