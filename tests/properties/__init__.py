"""Generated streams, windows, aggregates, batch splits, budgets and restarts, held up against the oracle."""
