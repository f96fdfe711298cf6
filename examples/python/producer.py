#!/usr/bin/env python3
"""Publishes a price update a message: producer.py SCHEDULER_ADDRESS STREAM COUNT"""
import sys

import tailcast

cell, stream, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with tailcast.Producer(cell, stream, low_latency=True) as producer:
    for i in range(count):
        # Updates of an item come in order: they go to one shard.
        producer.publish(f"item-{i % 100} {i}\n".encode(), key=f"item-{i % 100}")
    producer.flush()  # raises if one of them is not durable
    print(f"{producer.stats().durable} of {count} durable")
