"""What came in the past: files of counts, metrics and requests, as requests per slot of time."""
