"""Sessions in Redis: see `backstory.stores.redis.store`."""
