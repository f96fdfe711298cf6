#!/usr/bin/env python3
"""Prints COUNT messages, and where to go on: consumer.py SCHEDULER_ADDRESS STREAM COUNT [POSITION...]"""
import sys

import tailcast

cell, stream, count, resume = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
with tailcast.Consumer(cell, stream, resume=resume) as consumer:
    for message in consumer.messages(idle=10):
        sys.stdout.buffer.write(message.payload)
        count -= 1
        if count == 0:
            break
    for position in consumer.positions().values():
        print(position, file=sys.stderr)
sys.exit("nothing came for 10 seconds" if count else 0)
