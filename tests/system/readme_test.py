"""Runs the commands of README.md as they are written, block after block, against one fresh deployment.

A block of commands is one that begins with ```sh, and is a script: it ends at the first command that fails. Only
the folder of the deployment is another one, so that nobody's /tmp/tc is touched. What README says of `./dev` is what
runs this test, and left out; its C++ is held by tests/install.
"""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, TIME_FACTOR, main

ROOT = pathlib.Path(__file__).parent.parent.parent
FOLDER = "/tmp/tc"


def blocks():
    """[(number of the first line, script)]"""
    found = []
    for match in re.finditer(r"(?ms)^```sh\n(.*?)^```$", (ROOT / "README.md").read_text()):
        line = match.string.count("\n", 0, match.start()) + 2
        found.append((line, match.group(1)))
    return found


class Readme(unittest.TestCase):
    def test_the_commands_do_what_is_written(self):
        scripts = blocks()
        self.assertGreaterEqual(len(scripts), 6)
        self.assertIn("stream create", "".join(script for _, script in scripts))
        with tempfile.TemporaryDirectory(prefix="tc-readme-") as folder:
            # As in a clone: the program in build, and what the commands name of the tree.
            pathlib.Path(folder, "build").mkdir()
            os.symlink(pathlib.Path(BINARY).resolve(), pathlib.Path(folder, "build", "tailcast"))
            os.symlink(ROOT / "bench", pathlib.Path(folder, "bench"))
            self.environment = os.environ | {"XDG_CONFIG_HOME": folder}
            # Where the sample was fetched to stays what it is.
            self.environment.setdefault("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
            up = None
            try:
                for line, script in scripts:
                    script = script.replace(FOLDER, os.path.join(folder, "tc"))
                    if script.startswith("./dev"):
                        continue
                    if "tailcast up " in script:
                        self.assertIsNone(up, "one deployment")
                        up = self.start(folder, script)
                        continue
                    self.run_block(folder, line, script)
            finally:
                if up is not None:
                    os.killpg(up.pid, signal.SIGINT)
                    self.assertEqual(up.wait(timeout=60 * TIME_FACTOR), 0)
                    up.stdout.close()

    def start(self, folder, script):
        up = subprocess.Popen(["bash", "-c", "exec " + script], cwd=folder, env=self.environment,
                              stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.assertEqual(up.stdout.readline(), "ready\n")
        return up

    def run_block(self, folder, line, script):
        begin = time.monotonic()
        # Ends with who fails, and shows what was run.
        done = subprocess.run(["bash", "-x", "-e", "-o", "pipefail", "-c", script], cwd=folder, env=self.environment,
                              capture_output=True, text=True, errors="replace", timeout=60 * TIME_FACTOR)
        print(f"README.md:{line}: {time.monotonic() - begin:.1f} s")
        self.assertEqual(done.returncode, 0, f"README.md:{line}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()
