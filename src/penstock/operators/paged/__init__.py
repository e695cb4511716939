"""Groups beyond memory: shards by the hash of the key, of which one is in memory at a time. Counted texts too."""
