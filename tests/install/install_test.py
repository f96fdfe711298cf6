"""Installs the package, builds the two examples against it alone, and runs them against a real cell.

What is installed is the build that is tested; the release preset, which README installs, has the same rules
and would cost a second build of everything.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "system"))
from harness import ONE_CELL, Up, run  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent.parent
BUILD = os.environ["TAILCAST_BUILD"]


class Install(unittest.TestCase):
    def test_the_examples_build_and_run_against_the_installed_package(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "prefix")
            self.call("cmake", "--install", BUILD, "--prefix", prefix)
            for path in ("man/man1/tailcast.1", "man/man1/tailcast-consume.1", "zsh/site-functions/_tailcast",
                         "bash-completion/completions/tailcast"):
                self.assertGreater((pathlib.Path(prefix) / "share" / path).stat().st_size, 500, path)
            self.check_headers(pathlib.Path(prefix) / "include", folder)
            for name in ("producer", "consumer"):
                self.call("cmake", "-G", "Ninja", "-S", str(ROOT / "examples" / name), "-B",
                          os.path.join(folder, name), f"-DCMAKE_PREFIX_PATH={prefix}",
                          "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_COMPILER_LAUNCHER=")
                self.call("cmake", "--build", os.path.join(folder, name))
            up = Up(ONE_CELL)
            try:
                code, _, err = run("stream", "create", "--dir", up.dir, "--stream", "prices")
                self.assertEqual(code, 0, err)
                scheduler = up.status()["cells"][0]["scheduler"]
                args = [scheduler, "prices", "1000"]
                self.call(os.path.join(folder, "producer", "example_producer"), *args)
                out = self.call(os.path.join(folder, "consumer", "example_consumer"), *args)
                self.assertIn("item-7 907\n", out)
                self.assertEqual(len(out.splitlines()), 100)
            finally:
                self.assertEqual(up.close(), 0)

    def check_headers(self, include, folder):
        """They need none that is not installed, and nothing in them plants bugs or simulates."""
        headers = sorted(path.relative_to(include) for path in include.rglob("*.h"))
        self.assertTrue(headers)
        for header in headers:
            text = (include / header).read_text()
            self.assertNotRegex(f"{header} {text}", "(?i)fault_?point", header)
            self.assertNotIn(header.parts[1], ("app", "sim", "world"), header)
        source = os.path.join(folder, "headers.cc")
        with open(source, "w") as file:
            file.writelines(f'#include "{header}"\n' for header in headers)
        self.call(os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{include}", source)

    def call(self, *args):
        done = subprocess.run(args, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout


if __name__ == "__main__":
    unittest.main()
