"""The benchmark: a plan becomes cells, an engine runs their shards, a store keeps the rows, a report reads them."""
