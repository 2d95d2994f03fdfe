"""``metrics``: a store in numbers, in Prometheus' text format."""
