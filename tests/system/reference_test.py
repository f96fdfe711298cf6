"""Which deployment is meant when none is named, and what is made of the tree of options: completion and man pages."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BINARY, ONE_CELL, TIME_FACTOR, SystemTest, Up, main


class Home(SystemTest):
    """Each test has a home folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.bin = self.home / "bin"
        self.bin.mkdir()
        os.symlink(pathlib.Path(BINARY).resolve(), self.bin / "tailcast")

    def run_with(self, variables, *args, code=0, stdin=b""):
        """Standard output, or standard error if it is to fail."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILCAST_")}
        environment |= {"HOME": str(self.home), "PATH": f"{self.bin}:{environment['PATH']}"} | variables
        environment.pop("XDG_CONFIG_HOME", None)
        done = subprocess.run([*args], env=environment, input=stdin, capture_output=True, timeout=60 * TIME_FACTOR)
        out, err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, code, out + err)
        return err if code else out


class Place(Home):
    @classmethod
    def setUpClass(cls):
        cls.up = Up("version: 1\nclusters: [{name: here}, {name: there}]\n", "--caches", "1", "--readers", "1",
                    "--writers", "1")

    @classmethod
    def tearDownClass(cls):
        cls.up.close()

    def tailcast(self, *args, code=0, stdin=b"", **variables):
        return self.run_with(variables, "tailcast", *args, code=code, stdin=stdin)

    def test_it_is_in_the_environment(self):
        self.assertIn("--dir DIR", self.tailcast("stream", "list", code=2))
        folder = {"TAILCAST_DIR": self.up.dir}
        self.tailcast("stream", "create", "--stream", "env", "--cell", "here", **folder)
        self.tailcast("produce", "--stream", "env", stdin=b"one\n", **folder)
        self.assertEqual(self.tailcast("consume", "--stream", "env", "--count", "1", TAILCAST_CELL="there", **folder),
                         "one\n")
        self.assertIn("which cluster", self.tailcast("consume", "--stream", "env", code=2, **folder))
        # What is typed comes first, and a cell that is a default hides no other.
        self.assertIn("no deployment in /nowhere", self.tailcast("status", "--dir", "/nowhere", code=1, **folder))
        self.assertRegex(self.tailcast("status", TAILCAST_CELL="there", **folder), r"(?m)^here ")
        self.tailcast("stream", "delete", "--stream", "env", "--yes", TAILCAST_CELL="there", **folder)
        self.assertIn("TAILCAST_CELL=h:1", self.tailcast("status", code=2, TAILCAST_CELL="h:1", **folder))

    def test_it_is_in_a_context(self):
        self.assertIn("no contexts", self.tailcast("context", "list"))
        self.tailcast("context", "set", "mine", "--dir", self.up.dir, "--cluster", "there")
        self.tailcast("context", "set", "gone", "--cell", "127.0.0.1:1")
        self.assertRegex(self.tailcast("context", "list"), rf"(?m)^  gone +--cell 127.0.0.1:1\n\* mine +--dir {self.up.dir} ")
        self.tailcast("stream", "create", "--stream", "ctx", "--cell", "here")
        self.tailcast("produce", "--stream", "ctx", stdin=b"one\n")
        self.assertEqual(self.tailcast("consume", "--stream", "ctx", "--count", "1"), "one\n")
        self.assertIn("of context 'mine'", self.tailcast("context", "show"))
        self.assertIn("of context 'gone'", self.tailcast("context", "show", TAILCAST_CONTEXT="gone"))
        self.assertIn("did you mean 'mine'", self.tailcast("context", "use", "min", code=1))
        self.tailcast("context", "use", "gone")
        self.assertIn("127.0.0.1:1", self.tailcast("status", code=1))
        self.tailcast("context", "remove", "gone")
        self.assertIn("--dir DIR", self.tailcast("status", code=2))
        self.assertIn("--dir DIR, or --cell", self.tailcast("context", "set", "bad", code=2))


class Reference(Home):
    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = ("source <(tailcast completion bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _tailcast; "
                  "echo \"${COMPREPLY[@]}\"")
        return self.run_with({}, "bash", "-c", script, "bash", *words).split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("tailcast", "con"), ["consume", "context"])
        self.assertEqual(self.complete("tailcast", "stream", "cr"), ["create"])
        self.assertEqual(self.complete("tailcast", "consume", "--stream", "s", "--fab"), ["--fabric"])
        self.assertEqual(self.complete("tailcast", "consume", "--fabric", ""), ["auto", "shm", "tcp", "verbs"])
        self.assertEqual(self.complete("tailcast", "consume", "--position-file", "x"), [])
        self.assertIn("--topology", self.complete("tailcast", "up", "--"))

    def test_zsh_takes_its_completion(self):
        if shutil.which("zsh") is None:
            self.fail("zsh is not installed; ./dev setup installs it")
        self.run_with({}, "zsh", "-f", "-c", "autoload -U compinit; compinit -D; source <(tailcast completion zsh); "
                      "[[ ${_comps[tailcast]} == _tailcast ]]")

    def test_each_command_has_a_manual_page_with_each_option_of_help(self):
        self.run_with({}, "tailcast", "man", str(self.home / "man"))
        pages = {path.name for path in (self.home / "man").iterdir()}
        for name in ("tailcast.1", "tailcast-consume.1", "tailcast-stream-create.1", "tailcast-cache-locate.1"):
            self.assertIn(name, pages)
        for page in pages:
            words = page.removesuffix(".1").split("-")
            if len(words) > 3 or words[-1] in ("pull",):
                continue
            shown = (self.home / "man" / page).read_text().replace("\\-", "-")
            for option in re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", self.run_with({}, *words, "--help")):
                self.assertIn(option, shown, page)
        self.assertIn("exists", self.run_with({}, "bash", "-c", f"touch {self.home}/f; tailcast man {self.home}/f 2>&1 "
                                              "|| echo exists"))


if __name__ == "__main__":
    main()
