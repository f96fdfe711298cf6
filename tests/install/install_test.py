"""Installs the package, looks at what is in it, builds the examples in C++ and C against it alone, and runs them and
those in Python against a real cell.

What is installed is the build that is tested; the release preset, which README installs, has the same rules
and would cost a second build of everything.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "system"))
from harness import ONE_CELL, Up, run  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent.parent
BUILD = os.environ["TAILCAST_BUILD"]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tc-install-")
        cls.prefix = os.path.join(cls.folder.name, "prefix")
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        cls.up = Up(ONE_CELL)
        cls.cell = cls.up.status()["cells"][0]["scheduler"]

    @classmethod
    def tearDownClass(cls):
        code = cls.up.close()
        cls.folder.cleanup()
        assert code == 0

    def test_the_package_holds_what_users_need_and_nothing_else(self):
        prefix = pathlib.Path(self.prefix)
        for path in ("man/man1/tailcast.1", "man/man1/tailcast-consume.1", "zsh/site-functions/_tailcast",
                     "bash-completion/completions/tailcast"):
            self.assertGreater((prefix / "share" / path).stat().st_size, 500, path)
        files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
        headers = {path for path in files if path.startswith("include/")}
        self.assertEqual(headers, {f"include/tailcast/{name}.h" for name in (
            "base/callback", "base/check", "base/hash", "base/log", "base/metrics", "base/metrics_http", "base/status",
            "base/time", "base/unique_function", "capi/tailcast", "consumer/consumer", "consumer/counters", "consumer/end_point",
            "consumer/message", "consumer/shard_status", "consumer/start_point", "producer/ack", "producer/producer",
            "stream/message_headers", "stream/names", "stream/position", "stream/shard_of_key")})
        # The rooms that the two libraries are made of.
        self.assertEqual({path for path in files if path.endswith(".a")}, {f"lib/libtailcast_{room}.a" for room in (
            "base", "cache", "cell", "consumer", "fabric", "memcached", "producer", "proto", "rpc", "session", "storage",
            "stream")})
        self.assertEqual({re.sub(r"\.so\.2\.[\d.]+$", ".so.2.VERSION", path) for path in files if ".so" in path},
                         {"lib/libtailcast.so", "lib/libtailcast.so.2", "lib/libtailcast.so.2.VERSION"})
        self.assertEqual({path for path in files if path.startswith("bin/")}, {"bin/tailcast"})
        self.check_headers(prefix / "include")

    def check_headers(self, include):
        """Each compiles alone; none needs what is not installed, an agent, or what is behind the libraries."""
        headers = sorted(path.relative_to(include) for path in include.rglob("*.h"))
        for header in headers:
            text = (include / header).read_text()
            self.assertNotRegex(f"{header} {text}", "(?i)fault_?point|ProducerAgent|ConsumerAgent", header)
            seen = self.call(os.environ.get("CXX", "c++"), "-std=c++20", "-M", "-x", "c++", f"-I{include}",
                             str(include / header))
            self.assertNotRegex(seen, "(?i)agent|absl|grpc|protobuf|prometheus|spdlog", header)
        source = os.path.join(self.folder.name, "headers.cc")
        with open(source, "w") as file:
            file.writelines(f'#include "{header}"\n' for header in headers)
        self.call(os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{include}", source)

    def build(self, name):
        """The programs of examples/NAME; where they are."""
        folder = os.path.join(self.folder.name, name)
        self.call("cmake", "-G", "Ninja", "-S", str(ROOT / "examples" / name), "-B", folder,
                  f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_COMPILER_LAUNCHER=")
        self.call("cmake", "--build", folder)
        return folder

    def create(self, stream, shards):
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", stream, "--shards", str(shards))
        self.assertEqual(code, 0, err)

    def test_the_examples_in_c_plus_plus(self):
        folders = {name: self.build(name) for name in ("producer", "consumer")}
        self.create("prices", 1)
        self.call(os.path.join(folders["producer"], "example_producer"), self.cell, "prices", "1000")
        out = self.call(os.path.join(folders["consumer"], "example_consumer"), self.cell, "prices", "1000")
        self.assertIn("item-7 907\n", out)
        self.assertEqual(len(out.splitlines()), 100)

    def check_clients(self, stream, producer, consumer):
        """Two programs with the arguments CELL STREAM COUNT [POSITION...], over four shards."""
        self.create(stream, 4)
        self.assertEqual(self.call(*producer, self.cell, stream, "1000"), "1000 of 1000 durable\n")
        first = self.run_(*consumer, self.cell, stream, "1000")
        positions = [word for word in first.stderr.split() if word.startswith("t1.")]
        self.assertEqual(len(positions), 4)
        self.call(*producer, self.cell, stream, "10")
        again = self.run_(*consumer, self.cell, stream, "10", *positions)
        for text, count in ((first.stdout, 1000), (again.stdout, 10)):
            numbers = collections.defaultdict(list)
            for line in text.splitlines():
                item, number = line.split()
                numbers[item].append(int(number))
            for item, got in numbers.items():
                self.assertEqual(got, list(range(int(item[len("item-"):]), count, 100)))
            self.assertEqual(sum(map(len, numbers.values())), count)
        return first.stderr

    def test_the_examples_in_c(self):
        folder = self.build("c")
        said = self.check_clients("in-c", [os.path.join(folder, "c_producer")], [os.path.join(folder, "c_consumer")])
        self.assertIn("the last one has producer=example\n", said)
        # And without CMake, as pkg-config says.
        flags = self.call("pkg-config", "--cflags", "--libs", os.path.join(self.prefix, "lib/pkgconfig/tailcast.pc"))
        self.call("cc", str(ROOT / "examples/c/producer.c"), *flags.split(), "-o", os.path.join(folder, "by_hand"))

    def test_the_examples_in_python(self):
        target = os.path.join(self.folder.name, "python")
        self.call("/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--target", target,
                  str(ROOT / "clients" / "python"))
        # It finds the library beside the installed program.
        self.environment = {**os.environ, "PYTHONPATH": target, "PATH": f"{self.prefix}/bin:{os.environ['PATH']}"}
        examples = ROOT / "examples" / "python"
        self.check_clients("in-python", ["/usr/bin/python3", str(examples / "producer.py")],
                           ["/usr/bin/python3", str(examples / "consumer.py")])

    environment = None

    def run_(self, *args):
        done = subprocess.run(args, capture_output=True, text=True, timeout=200, env=self.environment)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    def call(self, *args):
        return self.run_(*args).stdout


if __name__ == "__main__":
    unittest.main()
