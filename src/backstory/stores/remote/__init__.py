"""What stores behind a network connection have in common: retries, time, waking, and logs kept as rows."""
