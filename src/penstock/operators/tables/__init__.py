"""Tables: kept, changed by events, looked up."""
