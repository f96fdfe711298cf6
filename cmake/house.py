#!/usr/bin/env python3
"""The rules of the tree that no compiler holds: what a module may include, and that names in comments and
documents are names of something. A test of ctest (`house`); ./dev check runs it, too.

  house.py [ROOT]      one line a finding, `file:line: what is wrong; what to do`. Exit code 1 if there is any

Modules, by their tailcast_module() calls:
  - what a module's files include is in its DEPS; what only its tests, fuzz targets or benches do, in TEST_DEPS or
    BENCH_DEPS
  - nothing is in them that is not included
  - other modules' headers are those of their HEADERS, in sources also those of their SOURCE_HEADERS, in tests and
    benches also those of their TEST_HEADERS; a header that is installed includes no other kind
  - no circle: a module is added in CMakeLists.txt, and listed in ARCHITECTURE.md, after all that it depends on;
    there it stands on a higher floor, too
  - each file is in a list, each module has a README.md
  - what is FUZZED is a source of the module

Names, in comments, in documents and in proto and TLA+ files (house_names.py):
  - a file that is named exists: by its path from the root, from src or from the file's own folder, or by its
    bare name if it lies in that folder or is the only one so called. A name with x or CAPITALS is an example, but
    Markdown files may be called in capitals
  - `spec NAME` is tla/NAME.tla (`spec NAME, NAME` several), and `spec NAME: Action, Action` are definitions in it
  - design rules ("committed first", ...) are rows of the table in ARCHITECTURE.md
  - events of the step logs are events of a trace spec
  - tests named `Suite.Name` or `Suite.*` exist; so do the names in the columns test, model and C++ of tables
"""
import collections
import functools
import pathlib
import re
import subprocess
import sys

from house_names import Names, tables

LISTS = ("PUBLIC_HEADERS", "HEADERS", "SOURCE_HEADERS", "TEST_HEADERS", "SOURCES", "DEPS", "EXTERNAL", "PRIVATE_EXTERNAL", "TESTS",
         "TEST_DEPS", "TEST_EXTERNAL", "FUZZERS", "FUZZED", "BENCHES", "BENCH_SOURCES", "BENCH_DEPS", "BENCH_EXTERNAL")
FLAGS = ("INTERNAL", "COMPUTES")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)


class Module:
    def __init__(self, name, path):
        self.name, self.path = name, path          # path: of its CMakeLists.txt
        self.words = collections.defaultdict(list)  # list -> words
        self.line = {}                              # (list, word) -> line

    def __getitem__(self, name):
        return self.words[name]


class House:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.findings = []
        self.files = self.list_files()
        self.known = set(self.files)
        self.folders = {str(parent) for file in self.files for parent in pathlib.PurePath(file).parents}
        self.folders.add("include/tailcast")
        self.by_name = collections.defaultdict(list)
        for file in self.files:
            self.by_name[file.rpartition("/")[2]].append(file)
        self.modules = {}

    def list_files(self):
        """What git has or would add, the root's link to src left out; all files if this is no repository."""
        listed = subprocess.run(["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
                                capture_output=True, text=True)
        names = listed.stdout.splitlines() if listed.returncode == 0 and (self.root / ".git").exists() else [
            str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        return sorted(name for name in names
                      if (self.root / name).is_file() and not (self.root / name).is_symlink())

    @functools.lru_cache(maxsize=None)
    def text(self, file):
        return (self.root / file).read_text(encoding="utf-8", errors="replace")

    def say(self, file, at, what):
        """`at`: a line, or an offset in the file's text as (offset,)."""
        line = self.text(file).count("\n", 0, at[0]) + 1 if isinstance(at, tuple) else at
        self.findings.append((file, line, what))

    def check(self):
        self.read_modules()
        self.check_order()
        self.check_lists()
        self.check_includes()
        Names(self).check()
        return [f"{file}:{line}: {what}" for file, line, what in sorted(set(self.findings))]

    # --- modules ---

    def read_modules(self):
        for file in self.files:
            if not file.endswith("CMakeLists.txt"):
                continue
            text = re.sub(r"#.*", lambda m: " " * len(m[0]), self.text(file))
            for call in re.finditer(r"\btailcast_module\(\s*(\w+)([^)]*)\)", text):
                self.read_module(Module(call[1], file), text, call)
        if "proto/CMakeLists.txt" in self.known:
            proto = Module("proto", "proto/CMakeLists.txt")
            proto["HEADERS"].extend(pathlib.PurePath(file).stem + ".pb.h" for file in self.files
                                    if re.fullmatch(r"proto/\w+\.proto", file))
            self.modules["proto"] = proto

    def read_module(self, module, text, call):
        current = None
        for word in re.finditer(r"\S+", call[2]):
            line = text.count("\n", 0, call.start(2) + word.start()) + 1
            if word[0] in LISTS:
                current = word[0]
            elif word[0] in FLAGS:
                current = None
            elif current is None or not re.fullmatch(r"[\w.:+-]+", word[0]):
                self.say(module.path, line, f"can't tell what {word[0]} is; use plain words after one of the lists "
                         "of cmake/TailcastModule.cmake")
            else:
                module[current].append(word[0])
                module.line[current, word[0]] = line
        module["HEADERS"].extend(module["PUBLIC_HEADERS"])
        for header in module["PUBLIC_HEADERS"]:
            module.line["HEADERS", header] = module.line["PUBLIC_HEADERS", header]
        self.modules[module.name] = module

    def check_order(self):
        if "CMakeLists.txt" not in self.known:
            return
        order = []
        for call in re.finditer(r"^\s*add_subdirectory\((?:src/)?([\w/]+)\)", self.text("CMakeLists.txt"), re.M):
            order.append((call[1], call.span()))
        place = {name: i for i, (name, _) in enumerate(order)}
        for name, module in self.modules.items():
            if name not in place:
                self.say(module.path, 1, f"module {name} is not added; add_subdirectory it in CMakeLists.txt")
            for dep in module["DEPS"]:
                if dep not in self.modules:
                    self.say(module.path, module.line["DEPS", dep], f"there is no module {dep}; mend DEPS")
                elif name in place and place.get(dep, -1) > place[name]:
                    self.say("CMakeLists.txt", (order[place[dep]][1][0],),
                             f"{dep} is added after {name}, which depends on it; move it before {name}")
        for circle in self.circles():
            module = self.modules[circle[0]]
            self.say(module.path, module.line["DEPS", circle[1]],
                     f"modules in a circle: {' -> '.join(circle)}; one of these must not depend on the next")
        if "ARCHITECTURE.md" in self.known:
            self.check_architecture()

    def circles(self):
        found, state = [], {}

        def walk(name, path):
            state[name] = "open"
            for dep in self.modules[name]["DEPS"]:
                if state.get(dep) == "open":
                    found.append(path[path.index(dep):] + [dep])
                elif dep in self.modules and dep not in state:
                    walk(dep, path + [dep])
            state[name] = "done"

        for name in self.modules:
            if name not in state:
                walk(name, [name])
        return found

    def check_architecture(self):
        """The table of modules has each once, after what it depends on."""
        file = "ARCHITECTURE.md"
        line, row_of = 0, {}
        for table in tables(self.text(file)):
            if table.header[0] == "module":
                line = table.line
                for at, cells in table.rows:
                    row_of |= {name: at for name in re.findall(r"`(\w+)`", cells[0])}
        if not line:
            self.say(file, 1, "has no table with a column `module`; list the modules in order of dependency")
            return
        for name, module in self.modules.items():
            if name not in row_of:
                self.say(file, line, f"module {name} is missing; add a row with what it promises")
            for dep in module["DEPS"]:
                if row_of.get(dep, 0) > row_of.get(name, len(self.text(file))):
                    self.say(file, row_of[dep], f"`{dep}` stands below `{name}`, which depends on it; move it up")
        for name in row_of.keys() - self.modules.keys():
            self.say(file, row_of[name], f"there is no module `{name}`; take the row out")
        self.check_floors(file)

    def check_floors(self, file):
        """Lines `  4  stream  ...   words on them`: what a module depends on stands on lower floors."""
        floor, line_of = {}, {}
        for match in re.finditer(r"^ +(\d+)  +(\w+(?: +\w+)*)", self.text(file), re.M):
            for name in match[2].split():
                if name not in self.modules:
                    break
                floor[name], line_of[name] = int(match[1]), (match.start(1),)
        for name, module in self.modules.items() if floor else ():
            if name not in floor:
                self.say(file, 1, f"module {name} stands on no floor; put it above all that it depends on")
            for dep in module["DEPS"]:
                if name in floor and dep in floor and floor[dep] >= floor[name]:
                    self.say(file, line_of[name], f"{name} stands on floor {floor[name]} and depends on {dep} on floor "
                             f"{floor[dep]}; move it up")

    def check_lists(self):
        for name, module in self.modules.items():
            folder = module.path.rpartition("/")[0]
            if f"{folder}/README.md" not in self.known and name != "proto":
                self.say(module.path, 1, f"module {name} has no README.md; write what it is for, what it promises "
                         "and where to start reading")
            cmake = set(re.findall(r"[\w.]+", self.text(module.path)))
            for file in self.files:
                if file.startswith(folder + "/") and file.endswith(".cc") and file.rpartition("/")[2] not in cmake:
                    self.say(file, 1, f"nothing compiles it; put it in a list of {module.path}")
            if name == "proto":
                continue
            for source in module["FUZZED"]:
                if source not in module["SOURCES"]:
                    self.say(module.path, module.line["FUZZED", source], f"{source} is not in SOURCES; mend FUZZED")
            for kind in ("HEADERS", "SOURCE_HEADERS", "TEST_HEADERS"):
                for header in module[kind]:
                    if f"{folder}/{header}" not in self.known:
                        self.say(module.path, module.line[kind, header], f"there is no {header}; mend {kind}")

    # --- includes ---

    def kind_of(self, module, file):
        name = file.rpartition("/")[2]
        if name in module["TESTS"] or name in module["FUZZERS"]:
            return "test"
        if name in module["BENCHES"] or name in module["BENCH_SOURCES"]:
            return "bench"
        return "test header" if name in module["TEST_HEADERS"] else "library"

    def check_includes(self):
        homes = {module.path.rpartition("/")[0]: module for module in self.modules.values()}
        includes = collections.defaultdict(set)  # module's name -> (kind of file, included module)
        for file in self.files:
            if not file.endswith((".h", ".cc")):
                continue
            module = homes.get(file.rpartition("/")[0])
            kind = self.kind_of(module, file) if module else "test"
            for match in INCLUDE.finditer(self.text(file)):
                path = match[1].split("/")
                if path[0] != "tailcast":
                    if f"{file.rpartition('/')[0]}/{match[1]}" in self.known:
                        self.say(file, (match.start(1),), f"{match[1]} is included by its bare name; include it as "
                                 "tailcast/MODULE/x.h")
                    continue
                other = self.modules.get(path[1])
                if other is None or len(path) != 3:
                    self.say(file, (match.start(1),), f"no module has {match[1]}; mend the path")
                    continue
                self.check_header(file, match, module, kind, other, path[2])
                if module is None:
                    self.check_stranger(file, match, other)
                elif other is not module:
                    includes[module.name].add((kind, other.name))
                    self.check_declared(file, match, module, kind, other)
        for name, module in self.modules.items():
            if name != "proto":
                self.check_used(module, includes[name])

    def check_header(self, file, match, module, kind, other, header):
        """May `file` include this header at all?"""
        public, for_tests = header in other["HEADERS"], header in other["TEST_HEADERS"]
        for_sources = header in other["SOURCE_HEADERS"]
        if f"{other.path.rpartition('/')[0]}/{header}" not in self.known and other.name != "proto":
            self.say(file, (match.start(1),), f"module {other.name} has no {header}; mend the include")
        elif for_tests and kind == "library":
            self.say(file, (match.start(1),), f"{header} is for tests (TEST_HEADERS of {other.name}); only tests and "
                     "benches may include it")
        elif for_sources and not file.endswith(".cc"):
            self.say(file, (match.start(1),), f"{header} is for sources (SOURCE_HEADERS of {other.name}); move what "
                     "needs it to a source")
        elif other is not module and not public and not for_tests and not for_sources:
            self.say(file, (match.start(1),), f"{header} is a private header of {other.name}; do without it, or list it "
                     f"in HEADERS of {other.path} if {other.name} means to offer it")
        elif (other is module and not public and kind == "library"
              and file.rpartition("/")[2] in module["HEADERS"]):
            self.say(file, (match.start(1),), f"a public header includes the private {header}; hide what it is "
                     f"needed for, or list it in HEADERS of {module.path}")
        if (module and file.rpartition("/")[2] in module["PUBLIC_HEADERS"] and kind == "library"
                and header not in other["PUBLIC_HEADERS"]):
            self.say(file, (match.start(1),), f"users include this header, and do not get {header}; hide what it is "
                     f"needed for, or list it in PUBLIC_HEADERS of {other.path}")

    def check_stranger(self, file, match, other):
        """Files of no module: tests of the whole, which name their libraries, and examples."""
        folder = pathlib.PurePath(file).parent
        while str(folder) != "." and f"{folder}/CMakeLists.txt" not in self.known:
            folder = folder.parent
        cmake = f"{folder}/CMakeLists.txt"
        if cmake in self.known and f"tailcast::{other.name}" not in self.text(cmake):
            self.say(file, (match.start(1),), f"includes {other.name} undeclared; link tailcast::{other.name} in {cmake}")

    def check_declared(self, file, match, module, kind, other):
        lists = {"library": ["DEPS"], "test": ["DEPS", "TEST_DEPS"], "bench": ["DEPS", "BENCH_DEPS"],
                 "test header": ["DEPS", "TEST_DEPS", "BENCH_DEPS"]}[kind]
        if not any(other.name in module[name] for name in lists):
            self.say(file, (match.start(1),), f"includes {other.name} undeclared; add {other.name} to "
                     f"{lists[min(1, len(lists) - 1)]} of {module.path}, or do without it")

    def check_used(self, module, includes):
        for dep in module["DEPS"]:
            if ("library", dep) not in includes:
                self.say(module.path, module.line["DEPS", dep], f"DEPS has {dep}, which no library file includes; take "
                         "it out (if tests or benches do: to TEST_DEPS or BENCH_DEPS)")
        for name, kinds in (("TEST_DEPS", ("test", "test header")), ("BENCH_DEPS", ("bench", "test header"))):
            for dep in module[name]:
                if dep in module["DEPS"]:
                    self.say(module.path, module.line[name, dep], f"{dep} is in DEPS already; take it out of {name}")
                elif not any((kind, dep) in includes for kind in kinds):
                    self.say(module.path, module.line[name, dep], f"{name} has {dep}, which no such file includes; take "
                             "it out")


def main(root):
    findings = House(root).check()
    print("\n".join(findings) if findings else "the house is in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
