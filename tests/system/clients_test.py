"""The libraries for C and Python over a real deployment: what the shared library shows, that `pip install .` needs no
network, that a key has the same shard everywhere, and what Python promises. tests/install runs the examples."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import typing
import unittest

from harness import NEAR_AND_FAR, ONE_CELL, TIME_FACTOR, Up, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["TAILCAST_LIBRARY"]
DEBIAN_PYTHON = "/usr/bin/python3"
SHARDS = 7

tailcast = None  # the package, once it is installed


def setUpModule():
    global tailcast, folder, up, cell
    folder = tempfile.TemporaryDirectory(prefix="tc-clients-")
    pip = subprocess.run([DEBIAN_PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--target", folder.name,
                          str(ROOT / "clients" / "python")], capture_output=True, text=True, timeout=100)
    assert pip.returncode == 0, pip.stderr
    sys.path.insert(0, folder.name)
    import tailcast
    assert tailcast.__file__.startswith(folder.name), tailcast.__file__
    up = Up(ONE_CELL)
    cell = up.status()["cells"][0]["scheduler"]


def tearDownModule():
    code = up.close()
    folder.cleanup()
    assert code == 0


def create(stream, shards=1):
    code, _, err = run("stream", "create", "--dir", up.dir, "--stream", stream, "--shards", str(shards))
    assert code == 0, err


def known_shards():
    """[(key, shard of 4, of 7, of 10000)], those that the test of the C++ library has."""
    rows = re.findall(r'\{"(.*)", (\d+), (\d+), (\d+)\},', (ROOT / "src/stream/shard_of_key_test.cc").read_text())
    assert len(rows) >= 10
    return [(key, int(a), int(b), int(c)) for key, a, b, c in rows]


class CLibrary(unittest.TestCase):
    def header(self):
        return re.sub(r"/\*.*?\*/", "", (ROOT / "src/capi/tailcast.h").read_text(), flags=re.S)

    def test_it_shows_what_its_header_declares_and_nothing_else(self):
        declared = set(re.findall(r"TAILCAST_EXPORT [^;]*?\b(tailcast_\w+)\(", self.header()))
        self.assertGreater(len(declared), 25)
        listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
        shown = {line.split()[2] for line in listed.stdout.splitlines()} - {"TAILCAST_2"}
        self.assertEqual(shown, {f"{name}@@TAILCAST_2" for name in declared})

    def test_its_name_has_the_abi_version(self):
        dynamic = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        version = re.search(r"#define TAILCAST_ABI_VERSION (\d+)", self.header())[1]
        self.assertIn(f"soname: [libtailcast.so.{version}]", dynamic)

    def test_the_header_is_plain_c_and_plain_c_plus_plus(self):
        header = str(ROOT / "src/capi/tailcast.h")
        for compiler, language, standard in (("cc", "c", "c99"), ("c++", "c++", "c++11")):
            done = subprocess.run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                                   "-fsyntax-only", "-x", language, header], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_pythons_structures_are_those_of_the_header(self):
        """Sizes and offsets, as a C compiler sees them."""
        from tailcast import _library
        pairs = {"tailcast_position": _library.Position, "tailcast_header": _library.Header, "tailcast_ack": _library.Ack,
                 "tailcast_producer_options": _library.ProducerOptions,
                 "tailcast_producer_stats": _library.ProducerStats,
                 "tailcast_consumer_options": _library.ConsumerOptions,
                 "tailcast_shard_status": _library.ShardStatus, "tailcast_consumer_stats": _library.ConsumerStats}
        lines = ['#include "tailcast.h"', "#include <stdio.h>", "int main(void) {"]
        expected = []
        for name, structure in pairs.items():
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            expected.append(ctypes.sizeof(structure))
            for field, _ in structure._fields_:
                lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
                expected.append(getattr(structure, field).offset)
        for name, layout, fields in (
                ("tailcast_message", _library.MESSAGE_LAYOUT,
                 {"payload": "P", "size": "N", "time_us": "q", "position": "Qqqi4x", "headers": "P", "header_count": "N",
                  "next_byte": "q"}),
                ("tailcast_header", _library.HEADER_LAYOUT,
                 {"name": "P", "name_size": "N", "value": "P", "value_size": "N"})):
            self.assertEqual(layout, "@" + "".join(fields.values()))
            before = "@"
            for field, kind in fields.items():
                lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
                expected.append(struct.calcsize(before))
                before += kind
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            expected.append(struct.calcsize(layout))
        with tempfile.TemporaryDirectory() as here:
            source = pathlib.Path(here, "sizes.c")
            source.write_text("\n".join([*lines, "return 0; }"]))
            subprocess.run(["cc", f"-I{ROOT / 'src/capi'}", "-o", f"{here}/sizes", str(source)], check=True)
            said = subprocess.run([f"{here}/sizes"], capture_output=True, text=True, check=True).stdout
        self.assertEqual([int(line) for line in said.split()], expected)


class Keys(unittest.TestCase):
    def test_a_key_has_the_same_shard_in_the_command_line_c_and_python(self):
        known = known_shards()
        c = ctypes.CDLL(LIBRARY)
        for key, of_4, of_7, of_10000 in known:
            raw = key.encode()
            for shards, shard in ((1, 0), (4, of_4), (7, of_7), (10000, of_10000)):
                self.assertEqual(c.tailcast_shard_of_key(raw, ctypes.c_size_t(len(raw)), shards), shard, key)
                self.assertEqual(tailcast.shard_of_key(key, shards), shard, key)
        create("keys", SHARDS)
        lines = "".join(f"{key};{i}\n" for i, (key, *_) in enumerate(known))
        code, _, err = run("produce", "--dir", up.dir, "--stream", "keys", "--key", "1", "--delimiter", ";",
                           stdin=lines.encode())
        self.assertEqual(code, 0, err)
        with tailcast.Producer(cell, "keys") as producer:
            for key, *_ in known:
                self.assertEqual(producer.shard_of(key), tailcast.shard_of_key(key, SHARDS))
                producer.publish(f"{key};python\n".encode(), key=key)
        with tailcast.Consumer(cell, "keys") as consumer:
            got = [(m.payload.decode().split(";")[0], m.shard) for m in self.take(consumer, 2 * len(known))]
        self.assertEqual(sorted(got), sorted(2 * [(key, of_7) for key, _, of_7, _ in known]))
        with self.assertRaisesRegex(tailcast.InvalidArgument, "at least 1 shard"):
            tailcast.shard_of_key("a", 0)

    def take(self, consumer, count):
        got = []
        for message in consumer.messages(idle=20):
            got.append(message)
            if len(got) == count:
                break
        return got


class Python(unittest.TestCase):
    take = Keys.take

    def test_it_is_typed(self):
        self.assertTrue(pathlib.Path(folder.name, "tailcast", "py.typed").exists())
        for name in tailcast.__all__:
            thing = getattr(tailcast, name)
            functions = [thing] if not isinstance(thing, type) else [
                f for n, f in vars(thing).items() if callable(f) and (not n.startswith("_") or n == "__init__")]
            for function in functions:
                if getattr(function, "__module__", "").startswith("tailcast"):
                    self.assertIn("return", function.__annotations__, f"{name}: {function}")
                    if sys.version_info >= (3, 9) and not isinstance(thing, type):
                        typing.get_type_hints(function)

    def test_what_is_published_is_consumed_in_order_and_resumed_where_it_was_left(self):
        create("order", 3)
        acks = []
        with tailcast.Producer(cell, "order", low_latency=True) as producer:
            self.assertEqual(producer.shards, [0, 1, 2])
            for i in range(3000):
                producer.publish(b"%d" % i, shard=i % 3, on_ack=acks.append if i % 100 == 0 else None)
            producer.flush()
            self.assertEqual(producer.stats().durable, 3000)
            self.assertEqual(len(acks), 30)
            for ack in acks:
                self.assertEqual((ack.outcome, ack.error), (tailcast.Outcome.DURABLE, None))
            position = producer.publish_durably(b"\x00last\xff", shard=2)
            self.assertEqual((position.shard, position.number), (2, 1000))
        with tailcast.Consumer(cell, "order", low_latency=True) as consumer:
            first = self.take(consumer, 1001)
            # Behind what was handed over, though more was polled.
            kept = consumer.positions()
            for shard in range(3):
                given = [m for m in first if m.shard == shard]
                self.assertEqual(kept[shard], given[-1].next_position if given else kept[shard])
            second = self.take(consumer, 10)  # the loop goes on where it was left
        with tailcast.Consumer(cell, "order", resume=[str(p) for p in kept.values()]) as consumer:
            rest = self.take(consumer, 2000)
        for shard in range(3):
            got = [m.payload for m in first + rest if m.shard == shard]
            self.assertEqual(got, [b"%d" % i for i in range(shard, 3000, 3)] + ([b"\x00last\xff"] if shard == 2 else []))
            self.assertEqual([m.number for m in first + rest if m.shard == shard], list(range(len(got))))
            again = [m for m in second if m.shard == shard]
            self.assertEqual(again, [m for m in rest if m.shard == shard][:len(again)])
        with tailcast.Consumer(cell, "order", shards=[2], start=str(position)) as consumer:
            self.assertEqual(self.take(consumer, 1)[0].payload, b"\x00last\xff")
            self.assertEqual(consumer.poll(0), [])
            consumer.seek(2, "number:999")
            self.assertEqual([m.number for m in self.take(consumer, 2)], [999, 1000])
            self.assertEqual(consumer.shard_status(2).lag_bytes, 0)
            self.assertEqual(consumer.stats().messages, 3)
        self.assertLess(abs(first[0].time.timestamp() - time.time()), 600)

    def test_headers_come_with_their_message_the_same_in_python_c_and_the_command_line(self):
        create("headers", 2)
        pairs = (("trace", b"a-1"), ("raw", b"\x00\xff"), ("trace", b"again"))
        with tailcast.Producer(cell, "headers") as producer:
            producer.publish(b"plain")
            producer.publish(b"with", headers=pairs)
            producer.publish(b"", headers={"größe": "é", "empty": b""})
            position = producer.publish_durably(b"last", headers={"n": "4"})
            self.assertEqual(position.number, 3)
            for wrong in ({"": "x"}, {"a\nb": "x"}, {"a" * 256: "x"}, {"a": b"x" * 65535}):
                with self.assertRaisesRegex(tailcast.InvalidArgument, "header"):
                    producer.publish(b"", headers=wrong)
            for wrong in ({"a": 7}, {7: "a"}):
                with self.assertRaisesRegex(TypeError, "header"):
                    producer.publish(b"", headers=wrong)
            self.assertEqual(producer.stats().messages, 4)
        code, _, err = run("produce", "--dir", up.dir, "--stream", "headers", "--shard", "1", "--header", "trace=a=b",
                           "--header", "e=", stdin=b"line\nmore\n")
        self.assertEqual(code, 0, err)
        with tailcast.Consumer(cell, "headers") as consumer:
            got = self.take(consumer, 6)
        zero, one = ([m for m in got if m.shard == shard] for shard in (0, 1))
        self.assertEqual([(m.payload, m.headers) for m in zero],
                         [(b"plain", ()), (b"with", pairs), (b"", (("größe", "é".encode()), ("empty", b""))),
                          (b"last", (("n", b"4"),))])
        self.assertEqual([(m.payload, m.headers) for m in one],
                         [(line, (("trace", b"a=b"), ("e", b""))) for line in (b"line\n", b"more\n")])
        self.assertEqual((zero[1].header("trace"), zero[1].header("none")), (b"a-1", None))
        self.assertEqual(position, zero[3].position)
        for before, after in zip(zero, zero[1:]):  # where one ends the next begins
            self.assertEqual(before.next_position, after.position)
            with tailcast.Consumer(cell, "headers", shards=[0], resume=[before.next_position]) as consumer:
                self.assertEqual(self.take(consumer, 1), [after])
        code, out, err = run("consume", "--dir", up.dir, "--stream", "headers", "--to", "end", "--format", "json")
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in out.decode().splitlines()]
        said = {(line["shard"], line["number"]): line.get("headers") for line in lines}
        self.assertEqual(said[0, 0], None)
        self.assertEqual(said[0, 1], [{"name": "trace", "value": "a-1"}, {"name": "raw", "value_base64": "AP8="},
                                      {"name": "trace", "value": "again"}])
        self.assertEqual(said[1, 1], [{"name": "trace", "value": "a=b"}, {"name": "e", "value": ""}])
        for wrong, why in (("novalue", "write NAME=VALUE"), ("=x", "the name of header 1"),
                           ("a=" + "x" * 65533, "at most 65535 bytes")):
            code, _, err = run("produce", "--dir", up.dir, "--stream", "headers", "--header", wrong, stdin=b"")
            self.assertNotEqual(code, 0)
            self.assertIn("--header", err)
            self.assertIn(why, err)

    def test_a_consumer_is_shown_under_its_name(self):
        create("named")
        with self.assertRaisesRegex(tailcast.InvalidArgument, "report_as: the name has control characters"):
            tailcast.Consumer(cell, "named", report_as="two\nlines")
        with tailcast.Consumer(cell, "named", report_as="python") as consumer:
            end = time.monotonic() + 20 * TIME_FACTOR
            while not (users := [u for u in up.status()["cells"][0]["users"] if u["stream"] == "named"]):
                self.assertLess(time.monotonic(), end)
                consumer.poll(0.1)
        self.assertEqual([(u["kind"], u["name"], u["pid"]) for u in users], [("consumer", "python", os.getpid())])

    def test_errors_have_classes_and_say_what_to_do(self):
        create("errors")
        with self.assertRaisesRegex(tailcast.NotFound, "errorz.*did you mean 'errors'"):
            tailcast.Consumer(cell, "errorz")
        with self.assertRaisesRegex(tailcast.Unavailable, "127.0.0.1:1"):
            tailcast.Producer("127.0.0.1:1", "errors", open_timeout=0.2)
        for place in ("7400", "127.0.0.1:99999"):
            with self.assertRaisesRegex(tailcast.InvalidArgument, "is not host:port"):
                tailcast.Producer(place, "s")
        with self.assertRaisesRegex(tailcast.InvalidArgument, "no shard 5"):
            tailcast.Consumer(cell, "errors", shards=[5])
        with self.assertRaisesRegex(ValueError, "yesterday"):
            tailcast.Consumer(cell, "errors", start="yesterday")
        with self.assertRaisesRegex(tailcast.InvalidArgument, "carrier"):
            tailcast.Consumer(cell, "errors", fabric="carrier pigeons")
        with self.assertRaises(tailcast.InvalidArgument):
            tailcast.Position.parse("t1.x")
        producer = tailcast.Producer(cell, "errors")
        with self.assertRaisesRegex(TypeError, "encode"):
            producer.publish("text")
        with self.assertRaisesRegex(tailcast.InvalidArgument, "not both"):
            producer.publish(b"", key="a", shard=0)
        with self.assertRaisesRegex(tailcast.InvalidArgument, "shard"):
            producer.publish(b"", shard=1)
        with self.assertRaisesRegex(tailcast.FailedPrecondition, "take"):
            tailcast.Producer(cell, "errors")
        for none in (-1, 1e7, float("inf")):
            with self.assertRaisesRegex(tailcast.InvalidArgument, "publish_timeout"):
                tailcast.Producer(cell, "errors", publish_timeout=none)
        for option in ("flush_interval", "give_up", "open_timeout"):
            for none in (-1, -0.0001):
                with self.assertRaisesRegex(tailcast.InvalidArgument, option):
                    tailcast.Producer(cell, "errors", **{option: none})
        with self.assertRaisesRegex(tailcast.InvalidArgument, "open_timeout"):
            tailcast.Consumer(cell, "errors", open_timeout=-1)
        with tailcast.Producer(cell, "errors", takeover=True) as second:
            second.publish_durably(b"mine")
            producer.publish(b"yours")
            with self.assertRaises(tailcast.DeliveryError) as lost:
                producer.flush()
            self.assertEqual(lost.exception.failed + lost.exception.unknown, 1)
            with self.assertRaises(tailcast.Error):
                producer.status()
        with self.assertRaises(tailcast.Error):
            producer.close()
        with self.assertRaisesRegex(tailcast.FailedPrecondition, "closed"):
            producer.publish(b"")
        producer.close()
        consumer = tailcast.Consumer(cell, "errors")
        consumer.close()
        with self.assertRaisesRegex(tailcast.FailedPrecondition, "closed"):
            consumer.poll()

    def test_a_deleted_stream_ends_its_users(self):
        create("gone")
        producer = tailcast.Producer(cell, "gone")
        with tailcast.Consumer(cell, "gone") as consumer:
            producer.publish_durably(b"a")
            self.assertEqual(len(self.take(consumer, 1)), 1)
            code, _, err = run("stream", "delete", "--dir", up.dir, "--stream", "gone", "--yes")
            self.assertEqual(code, 0, err)
            with self.assertRaises(tailcast.NotFound):
                list(consumer.messages(idle=10 * TIME_FACTOR))
            self.assertEqual(consumer.shard_status().state, tailcast.ShardState.STOPPED)
            with self.assertRaises(tailcast.Error):
                producer.publish_durably(b"b")
            with self.assertRaisesRegex(tailcast.NotFound, "'gone' was deleted"):
                producer.close()

    def test_who_publishes_hears_that_a_stream_keeps_what_it_may_for_a_cell_that_is_away(self):
        two = Up(NEAR_AND_FAR)
        self.addCleanup(two.close)
        code, _, err = run("stream", "create", "--dir", two.dir, "--cluster", "near", "--stream", "s",
                           "--file-bytes", str(1 << 18), "--max-shard-bytes", str(1 << 19))
        self.assertEqual(code, 0, err)
        [near] = [c["scheduler"] for c in two.status()["cells"] if c["name"] == "near"]
        away = [*two.pids("far", "writer").values(), *two.pids("far", "scheduler").values()]
        published = 0
        with contextlib.ExitStack() as stopped:
            for pid in away:
                os.kill(pid, signal.SIGSTOP)
                stopped.callback(os.kill, pid, signal.SIGCONT)
            producer = tailcast.Producer(near, "s", buffer_bytes_max=1 << 20)
            with self.assertRaisesRegex(tailcast.ResourceExhausted, "are its limit"):
                while True:
                    producer.publish(bytes(10000), timeout=2 * TIME_FACTOR)
                    published += 1
        producer.flush()
        self.assertEqual(producer.stats().durable, published)
        producer.close()

    def test_threads_share_a_producer_and_a_consumer(self):
        create("threads")
        with tailcast.Producer(cell, "threads", low_latency=True) as producer:
            threads = [threading.Thread(target=lambda t=t: [producer.publish(b"%d %d" % (t, i)) for i in range(500)])
                       for t in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        got, lock = [], threading.Lock()
        with tailcast.Consumer(cell, "threads") as consumer:
            def read():
                while True:
                    batch = consumer.poll(0.2)
                    with lock:
                        got.extend(batch)
                        if len(got) >= 2000:
                            return
            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30 * TIME_FACTOR)
        self.assertEqual(sorted(m.number for m in got), list(range(2000)))

    def script(self, text):
        return subprocess.Popen([DEBIAN_PYTHON, "-c", text, cell], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONPATH": folder.name})

    def test_ctrl_c_ends_a_wait(self):
        create("quiet")
        process = self.script("import sys, tailcast\n"
                              "with tailcast.Consumer(sys.argv[1], 'quiet') as c:\n"
                              "  c.poll(0); print('waits', flush=True)\n"
                              "  for m in c: pass\n")
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10 * TIME_FACTOR)
        self.assertIn("KeyboardInterrupt", err)

    def test_a_program_that_closes_nothing_ends_all_the_same(self):
        create("left")
        process = self.script("import sys, tailcast\n"
                              "p = tailcast.Producer(sys.argv[1], 'left'); c = tailcast.Consumer(sys.argv[1], 'left')\n"
                              "for i in range(20000): p.publish(b'x' * 100, on_ack=lambda ack: None)\n")
        _, err = process.communicate(timeout=30 * TIME_FACTOR)
        self.assertEqual((process.returncode, err), (0, ""))

    def test_it_shows_metrics_and_says_where_the_library_is_missing(self):
        process = self.script("import urllib.request, tailcast\n"
                              "port = tailcast.serve_metrics()\n"
                              "print(urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics').status)\n"
                              "try: tailcast.serve_metrics()\n"
                              "except tailcast.FailedPrecondition as e: print(str(port) in str(e))\n")
        out, err = process.communicate(timeout=30 * TIME_FACTOR)
        self.assertEqual((out, err), ("200\nTrue\n", ""))
        done = subprocess.run([DEBIAN_PYTHON, "-c", "import tailcast"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": folder.name, "TAILCAST_LIBRARY": "/nowhere.so"})
        self.assertIn("ImportError: tailcast needs libtailcast.so.2", done.stderr)
        self.assertIn("/nowhere.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
