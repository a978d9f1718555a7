"""HTTP and server-sent events: what every target behind a URL shares."""
