"""The part of house.py about names in comments, documents and models."""
import collections
import fnmatch
import functools
import pathlib
import re

TEXT_SUFFIXES = (".md", ".tla")
CODE_SUFFIXES = (".h", ".cc", ".proto")
SCRIPT_SUFFIXES = (".py", ".cmake", "CMakeLists.txt", "dev", "run", ".clang-tidy", ".clang-format")
FOLDERS = "src|proto|tla|docs|tests|bench|cmake|examples|include"

Table = collections.namedtuple("Table", "line header rows")  # rows: (line, cells)


def tables(text):
    """The tables of a Markdown text."""
    found, rows = [], []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("|"):
            rows.append((number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]))
            continue
        if len(rows) > 2:
            found.append(Table(rows[0][0], rows[0][1], rows[2:]))
        rows = []
    return found


CODE_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[^/"\'R]+|.', re.S)
SCRIPT_TOKEN = re.compile(r'""".*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[^#"\']+|.', re.S)


def comments(text):
    """`text` of a C++ or proto file with all but its comments blanked out, every line where it was."""
    kept = []
    for match in CODE_TOKEN.finditer(text):
        comment = match[0].startswith(("//", "/*"))
        kept.append(re.sub(r"^(\s*)/[/*]+", lambda m: " " * len(m[0]), match[0]) if comment
                    else re.sub(r"[^\n]", " ", match[0]))
    return "".join(kept)


def script_comments(text):
    """The same of a script: what follows a #, and docstrings."""
    return "".join(match[0] if match[0].startswith(("#", '"""')) else re.sub(r"[^\n]", " ", match[0])
                   for match in SCRIPT_TOKEN.finditer(text))


class Names:
    def __init__(self, house):
        self.house = house
        self.specs = {pathlib.PurePath(file).stem: file for file in house.files
                      if re.fullmatch(r"tla/\w+\.tla", file)}
        self.events = {event for name, file in self.specs.items() if name.endswith("Trace")
                       for event in re.findall(r'"([A-Z]\w*)"', house.text(file))}
        architecture = house.text("ARCHITECTURE.md") if "ARCHITECTURE.md" in house.known else ""
        self.rules = {dict(zip(table.header, cells))["rule"] for table in tables(architecture)
                      if "rule" in table.header for _, cells in table.rows}
        self.tests = set()
        self.words = set()
        for file in house.files:
            if file.endswith((".h", ".cc")):
                text = house.text(file)
                self.tests.update(re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text))
                if file.startswith("src/"):
                    self.words.update(re.findall(r"\w+", text))
        self.suites = {suite for suite, _ in self.tests}

    def check(self):
        for file in self.house.files:
            if file.endswith(TEXT_SUFFIXES):
                text = self.house.text(file)
            elif file.endswith(CODE_SUFFIXES):
                text = comments(self.house.text(file))
                self.check_events(file)
            elif file.endswith(SCRIPT_SUFFIXES):
                text = script_comments(self.house.text(file))
            else:
                continue
            self.check_files(file, text)
            self.check_specs(file, text)
            self.check_rules(file, text)
            if file.endswith(".md"):
                self.check_links(file, text)
                self.check_tests(file, text)
                for table in tables(text):
                    self.check_table(file, table)

    # Files.

    def exists(self, file, name):
        house, own = self.house, file.rpartition("/")[0]
        for base in ("", "src", "include", own):
            path = self.normal(f"{base}/{name}" if base else name)
            path = re.sub(r"^include/tailcast/", "src/", path)
            if path in house.known or path in house.folders or "*" in path and fnmatch.filter(house.files, path):
                return True
            if re.fullmatch(r"src/proto/\w+\.pb\.h", path) and path[4:-5] + ".proto" in house.known:
                return True
        return "/" not in name and len(house.by_name[name]) == 1

    @staticmethod
    def normal(path):
        parts = []
        for part in path.split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part not in (".", ""):
                parts.append(part)
        return "/".join(parts)

    @staticmethod
    def is_example(name):
        folder, _, own = name.rpartition("/")
        document = re.fullmatch(r"[A-Z_]{2,}\.md", own)
        return any(part in ("x", "y", "z", "X") or part.startswith("x_") or re.search(r"[A-Z]{2,}", part)
                   for part in re.split(r"[/.]", folder if document else name))

    def check_files(self, file, text):
        text = re.sub(r"\w+://\S+", lambda m: " " * len(m[0]), text)
        named = re.compile(r"(?<![\w/.<*~-])((?:\.\./)*[\w*-]+(?:/[\w.*-]+)*\.(?:h|cc|md|tla|proto|py|cmake))(?![\w*/])"
                           rf"|(?<![\w/.<~-])((?:{FOLDERS})/[\w./*-]*[\w*])")
        for match in named.finditer(text):
            name = match[1] or match[2]
            if self.is_example(name) or self.exists(file, name):
                continue
            same = self.house.by_name[name]
            what = (f"{name} could be {' or '.join(same)}; write its path" if "/" not in name and same else
                    f"there is no {name}; name what is there")
            self.house.say(file, (match.start(),), what)

    def check_links(self, file, text):
        for match in re.finditer(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" in match[1]:
                continue
            path = self.normal(f"{file.rpartition('/')[0]}/{match[1]}")
            if path not in self.house.known and path not in self.house.folders:
                self.house.say(file, (match.start(1),), f"the link's {match[1]} does not exist; mend it")

    # Specs.

    @functools.lru_cache(maxsize=None)
    def definitions(self, spec):
        text = self.house.text(self.specs[spec])
        found = set(re.findall(r"^\s*(?:LOCAL\s+)?(\w+)(?:\([^)]*\))?\s*==", text, re.M))
        for line in re.findall(r"^\s*EXTENDS\s+(.*)", text, re.M):
            for other in re.findall(r"\w+", line):
                if other in self.specs:
                    found |= self.definitions(other)
        return found

    def check_actions(self, file, at, spec, actions):
        if spec not in self.specs:
            self.house.say(file, at, f"there is no spec {spec} (tla/{spec}.tla); name one that decides this, or none")
            return
        for action in actions:
            if action not in self.definitions(spec):
                self.house.say(file, at, f"spec {spec} defines no {action}; name an action of {self.specs[spec]}")

    def check_specs(self, file, text):
        names = r"[A-Z]\w*(?:,\s*[A-Z]\w*)*"
        for match in re.finditer(rf"\bspec\s+(?:([A-Z]\w*):\s*({names})|({names}))", text):
            specs = [match[1]] if match[1] else re.findall(r"\w+", match[3])
            for spec in specs if not self.is_example(specs[0]) else ():
                self.check_actions(file, (match.start(),), spec, re.findall(r"\w+", match[2] or ""))
        for match in re.finditer(r"\bTLA:", text):
            self.house.say(file, (match.start(),), "names no spec; write `spec NAME: Action, Action`")

    def check_rules(self, file, text):
        for match in re.finditer(r'\bdesign\s+rules?\s+("[^"]+"(?:,\s*"[^"]+")*)', text):
            for rule in re.findall(r'"([^"]+)"', match[1]):
                if " ".join(rule.split()) not in self.rules:
                    self.house.say(file, (match.start(),), f'there is no design rule "{rule}"; name one of the table '
                                   "in ARCHITECTURE.md")

    def check_events(self, file):
        """String literals before the fields in calls that log a step."""
        text = self.house.text(file)
        if file.endswith("_test.cc") or not self.events:
            return
        for call in re.finditer(r"\b(?:steps_?(?:\.|->)Write(?:At)?|TAILCAST_LOG_STEP)\(([^{;]*)", text):
            for event in re.finditer(r'"([A-Z]\w*)"', call[1]):
                if event[1] not in self.events:
                    self.house.say(file, (call.start(1) + event.start(),), f"no trace spec has the event {event[1]}; add "
                                   "it to tla/*Trace.tla, or mend the name")

    # Tests, and the columns of tables.

    def has_test(self, suite, name):
        return (suite in self.suites if name == "*" else
                (suite, name) in self.tests or (suite, name.partition("/")[0]) in self.tests)

    def check_tests(self, file, text):
        for match in re.finditer(r"`(?:\w+/)?([A-Z]\w+)\.(\*|[A-Z]\w+)`", text):
            if not self.has_test(match[1], match[2]):
                self.house.say(file, (match.start(),), f"there is no test {match[1]}.{match[2]}; name one that is there")

    @functools.lru_cache(maxsize=None)
    def programs(self):
        """What ctest calls its tests."""
        names = {f"{name}_{pathlib.PurePath(test).stem}" for name, module in self.house.modules.items()
                 for test in module["TESTS"]}
        for file in self.house.files:
            if file.endswith("CMakeLists.txt"):
                names.update(re.findall(r"\b(?:add_test\(NAME |tailcast_(?:computing|full)_test\()(\w+)", self.house.text(file)))
                names.update("system_" + name for name in re.findall(r"\btailcast_system_test\((\w+)", self.house.text(file)))
        return names

    def check_table(self, file, table):
        spec = ""
        for line, cells in table.rows:
            row = dict(zip(table.header, cells))
            if "test" in row:
                self.check_test_cell(file, line, row["test"])
            if "model" in row and "test" in row:
                for cell in filter(None, map(str.strip, row["model"].split(";"))):
                    names = re.findall(r"\w+", cell)
                    if ":" in cell:
                        self.check_actions(file, line, names[0], names[1:])
                    else:
                        for name in names:
                            self.check_actions(file, line, name, ())
            if "action and trace event" in row:
                spec = row["spec"] or spec
                self.check_actions(file, line, spec, re.findall(r"\b[A-Z]\w+", row["action and trace event"]))
            if "event" in row:
                for event in re.findall(r"`([A-Z]\w+)`", row["event"]):
                    if event not in self.events:
                        self.house.say(file, line, f"no trace spec has the event {event}; mend the name")
            for column in ("C++", "C++ member"):
                for name in re.findall(r"`([^`]+)`", row.get(column, "")):
                    for word in re.findall(r"[A-Za-z_]\w*", name) if "/" not in name else ():
                        if word not in self.words:
                            self.house.say(file, line, f"nothing in src is called {word}; name what is there")

    def check_test_cell(self, file, line, cell):
        suite = ""
        for name in re.findall(r"`([^`]+)`", cell):
            parts = re.fullmatch(r"([A-Z]\w*)?(?:\.(\*|\w+))?", name)
            if parts and (parts[1] or suite):
                suite = parts[1] or suite
                if not self.has_test(suite, parts[2] or "*"):
                    self.house.say(file, line, f"there is no test {suite}.{parts[2] or '*'}; name one that is there")
            elif re.fullmatch(r"[a-z]\w*", name) and name not in self.programs():
                self.house.say(file, line, f"ctest has no test {name}; name one that is there")
