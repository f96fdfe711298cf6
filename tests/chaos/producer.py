"""A producer that may be killed at any moment: publishes to one shard until it is told to end (SIGTERM), and prints each
message's fate as it hears it: `durable N NUMBER`, `failed N`, `unknown N`, `accepted N` when it ends well.

usage: producer.py CELL STREAM SHARD NAME BYTES_PER_S"""

import random
import signal
import sys
import time

import tailcast

FATES = {tailcast.Outcome.DURABLE: "durable", tailcast.Outcome.FAILED: "failed", tailcast.Outcome.UNKNOWN: "unknown"}


def message(name, number):
    """Of a size and with bytes that name and number decide: whoever reads it can tell whether it is whole."""
    rng = random.Random(f"{name}:{number}")
    filler = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=50))
    size = rng.choice((0, rng.randrange(200), rng.randrange(3000), rng.randrange(12000)))
    return f"{name}:{number}:" + (filler * (size // 50 + 1))[:size]


def main():
    cell, stream, shard, name, rate = sys.argv[1:]
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))

    def say(text):
        # One write each: a kill leaves whole lines, but for the last.
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    producer = tailcast.Producer(cell, stream, shards=[int(shard)], low_latency=True, takeover=True, open_timeout=60)
    say("open")
    number, sent, begin = 0, 0, time.monotonic()
    while not ended:
        payload = message(name, number).encode()

        def on_ack(ack, n=number):
            say(f"{FATES[ack.outcome]} {n}" + (f" {ack.position.number}" if ack.position else ""))

        producer.publish(payload, shard=int(shard), on_ack=on_ack)
        number += 1
        sent += len(payload)
        ahead = begin + sent / float(rate) - time.monotonic()
        if ahead < -1:  # it was stopped, or the stream was: no burst
            begin -= ahead
        time.sleep(max(0, ahead))
    producer.close(120)
    say(f"accepted {number}")


if __name__ == "__main__":
    main()
