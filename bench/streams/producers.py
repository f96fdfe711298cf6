"""Producers of many streams in one process: each publishes at a rate, until the standard input ends.

usage: producers.py CELL FIRST COUNT BYTES_PER_S [once]     streams s<FIRST>...; `once`: a message each, and end
Prints "open" when all of them are."""

import concurrent.futures
import select
import sys
import time

import tailcast

MESSAGE = b"x" * 1000


def main():
    cell, first, count, rate = sys.argv[1], *map(int, sys.argv[2:5])
    once = sys.argv[5:] == ["once"]
    names = [f"s{n}" for n in range(first, first + count)]

    def open_one(name):
        producer = tailcast.Producer(cell, name, open_timeout=120)
        if once:
            producer.publish_durably(MESSAGE)
            producer.close(60)
        return producer

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        producers = list(pool.map(open_one, names))
    print("open", flush=True)
    if once:
        return
    pause = len(MESSAGE) / rate
    begin, sent = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], max(0, begin + sent * pause - time.monotonic()))[0]:
        for producer in producers:
            producer.publish(MESSAGE)
        sent += 1
    for producer in producers:
        producer.close(60)


if __name__ == "__main__":
    main()
