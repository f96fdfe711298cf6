#!/usr/bin/env python3
"""Each rule of house.py finds the violation that is planted against it, and nothing else."""
import pathlib
import tempfile
import unittest

import house

# A small tree in order; a test changes some of it.
TREE = {
    "CMakeLists.txt": "add_subdirectory(src/base)\nadd_subdirectory(proto)\nadd_subdirectory(src/store)\n"
                      "add_subdirectory(src/agent)\n",
    "ARCHITECTURE.md": "| module | promises |\n|---|---|\n| `base`, `proto` | a |\n| `store` | b |\n| `agent` | c |\n\n"
                       "  3  agent    what is built\n  2  store\n  1  base   proto   on this\n\n"
                       "| | rule |\n|---|---|\n| 1 | committed first |\n",
    "proto/CMakeLists.txt": "",
    "proto/copy.proto": "// The copies.\n",
    "src/base/CMakeLists.txt": "tailcast_module(base\n  HEADERS time.h\n  SOURCES time.cc)\n",
    "src/base/README.md": "Start reading at `time.h`.\n",
    "src/base/time.h": "",
    "src/base/time.cc": '#include "tailcast/base/time.h"\n',
    "src/store/CMakeLists.txt": "tailcast_module(store\n  HEADERS store.h\n  TEST_HEADERS conformance.h\n"
                                "  SOURCES store.cc\n  DEPS base\n  TESTS store_test.cc)\n",
    "src/store/README.md": "",
    "src/store/store.h": '#include "tailcast/base/time.h"\n',
    "src/store/inner.h": "",
    "src/store/conformance.h": "",
    "src/store/store.cc": '#include "tailcast/store/inner.h"\n#include "tailcast/store/store.h"\n',
    "src/store/store_test.cc": '#include "tailcast/store/conformance.h"\nTEST(StoreTest, KeepsWhatItTook) {}\n',
    "src/agent/CMakeLists.txt": "tailcast_module(agent INTERNAL\n  HEADERS agent.h  # the one\n  SOURCES agent.cc\n"
                                "  DEPS base proto\n  TESTS agent_test.cc\n  TEST_DEPS store\n"
                                "  BENCHES agent_bench.cc\n  BENCH_SOURCES agent_rows.cc\n  BENCH_DEPS store)\n",
    "src/agent/README.md": "",
    "src/agent/agent.h": '#include <vector>\n#include "tailcast/base/time.h"\n#include "tailcast/proto/copy.pb.h"\n',
    "src/agent/agent.cc": '#include "tailcast/agent/agent.h"\nvoid F() { steps_.Write("Append", {{"len", 3}}); }\n',
    "src/agent/agent_test.cc": '#include "tailcast/store/conformance.h"\n',
    "src/agent/agent_bench.cc": '#include "tailcast/store/store.h"\n',
    "src/agent/agent_rows.cc": '#include "tailcast/store/conformance.h"\n',
    "tla/Store.tla": "---- MODULE Store ----\nEXTENDS Naturals\nAppend(w) ==\n  /\\ TRUE\nKept == TRUE\n====\n",
    "tla/StoreTrace.tla": '---- MODULE StoreTrace ----\nEXTENDS Store\nNext == Is("Append") /\\ Append(w)\n====\n',
    "docs/paper_map.md": "| paper | code | test | model |\n|---|---|---|---|\n"
                         "| a | `store/store.h` | `StoreTest.*`, `.KeepsWhatItTook`, `store_store_test` | Store: Append |\n",
}


class Planted(unittest.TestCase):
    def findings(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (TREE | changes).items():
                if text is None:
                    continue
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return house.House(folder).check()

    def plant(self, finding, changes):
        """`finding`: how the only finding begins, and what else it says. `changes`: file -> text, None: no such file."""
        found = self.findings(changes)
        self.assertEqual(len(found), 1, found)
        for part in finding:
            self.assertIn(part, found[0])
        self.assertTrue(found[0].startswith(finding[0]), found[0])

    @staticmethod
    def with_more(name, text):
        return {name: TREE[name] + text}

    @staticmethod
    def replaced(name, old, new):
        assert old in TREE[name], old
        return {name: TREE[name].replace(old, new)}

    @staticmethod
    def agent_on_store():
        """The library agent depends on store, not only its test and bench."""
        return {"src/agent/CMakeLists.txt": TREE["src/agent/CMakeLists.txt"]
                .replace("DEPS base proto", "DEPS base proto store").replace("  TEST_DEPS store\n", "")
                .replace("\n  BENCH_DEPS store", "")}

    def test_nothing_is_found_in_a_tree_in_order(self):
        self.assertEqual(self.findings({}), [])

    # --- modules ---

    def test_a_fuzzed_source_that_is_none_of_the_module(self):
        self.plant(["src/store/CMakeLists.txt:6", "other.cc is not in SOURCES; mend FUZZED"],
                   self.replaced("src/store/CMakeLists.txt", "DEPS base\n", "DEPS base\n  FUZZED store.cc other.cc\n"))

    def test_an_undeclared_include(self):
        self.plant(("src/agent/agent.cc:3: includes store undeclared", "add store to DEPS of src/agent/CMakeLists.txt"),
                   self.with_more("src/agent/agent.cc", '#include "tailcast/store/store.h"\n'))

    def test_an_undeclared_include_of_a_test_and_of_a_bench(self):
        self.plant(("src/base/time_test.cc:1: includes store undeclared", "TEST_DEPS"),
                   self.replaced("src/base/CMakeLists.txt", "time.cc)", "time.cc\n  TESTS time_test.cc)") |
                   {"src/base/time_test.cc": '#include "tailcast/store/store.h"\n'})
        self.plant(("src/base/time_bench.cc:1: includes store undeclared", "BENCH_DEPS"),
                   self.replaced("src/base/CMakeLists.txt", "time.cc)", "time.cc\n  BENCHES time_bench.cc)") |
                   {"src/base/time_bench.cc": '#include "tailcast/store/store.h"\n'})

    def test_what_a_bench_declares_is_not_declared_for_tests(self):
        self.plant(("src/agent/agent_test.cc:1: includes store undeclared",),
                   self.replaced("src/agent/CMakeLists.txt", "  TEST_DEPS store\n", ""))

    def test_an_unused_dependency(self):
        self.plant(("src/store/CMakeLists.txt:5: DEPS has proto",),
                   self.replaced("src/store/CMakeLists.txt", "DEPS base", "DEPS base proto"))

    def test_a_dependency_that_only_a_test_uses(self):
        self.plant(("src/agent/CMakeLists.txt:4: DEPS has store",),
                   self.agent_on_store())

    def test_an_unused_dependency_of_tests_and_of_benches(self):
        self.plant(("src/agent/CMakeLists.txt:6: TEST_DEPS has store",), {"src/agent/agent_test.cc": ""})
        self.plant(("src/agent/CMakeLists.txt:9: BENCH_DEPS has store",),
                   {"src/agent/agent_bench.cc": "", "src/agent/agent_rows.cc": ""})

    def test_a_dependency_that_is_declared_twice(self):
        self.plant(("src/agent/CMakeLists.txt:6: base is in DEPS already",),
                   self.replaced("src/agent/CMakeLists.txt", "TEST_DEPS store", "TEST_DEPS store base"))

    def test_a_private_header_of_another_module(self):
        self.plant(("src/agent/agent_test.cc:2: inner.h is a private header of store",),
                   self.with_more("src/agent/agent_test.cc", '#include "tailcast/store/inner.h"\n'))

    def test_a_header_for_tests_in_a_library(self):
        self.plant(("src/store/store.cc:3: conformance.h is for tests",),
                   self.with_more("src/store/store.cc", '#include "tailcast/store/conformance.h"\n'))

    def test_a_header_for_sources_is_included_by_sources_of_all_modules_and_by_no_header(self):
        offered = self.replaced("src/base/CMakeLists.txt", "HEADERS time.h", "HEADERS time.h\n  SOURCE_HEADERS fault.h") | {
            "src/base/fault.h": ""}
        self.assertEqual(self.findings(offered | self.with_more(
            "src/store/store.cc", '#include "tailcast/base/fault.h"\n')), [])
        self.plant(("src/store/store.h:2: fault.h is for sources", "SOURCE_HEADERS of base"),
                   offered | self.with_more("src/store/store.h", '#include "tailcast/base/fault.h"\n'))

    def test_a_header_for_users_includes_what_users_get(self):
        for_users = self.replaced("src/store/CMakeLists.txt", "  HEADERS store.h", "  PUBLIC_HEADERS store.h")
        self.plant(("src/store/store.h:1: users include this header, and do not get time.h", "PUBLIC_HEADERS of src/base"),
                   for_users)
        self.assertEqual(self.findings(for_users | self.replaced(
            "src/base/CMakeLists.txt", "  HEADERS time.h", "  PUBLIC_HEADERS time.h")), [])

    def test_a_public_header_that_includes_a_private_one(self):
        self.plant(("src/store/store.h:2: a public header includes the private inner.h",),
                   self.with_more("src/store/store.h", '#include "tailcast/store/inner.h"\n'))

    def test_a_header_that_is_not_there(self):
        self.plant(("src/agent/agent.cc:3: module store has no file.h",),
                   self.with_more("src/agent/agent.cc", '#include "tailcast/store/file.h"\n') | self.agent_on_store())
        self.plant(("src/store/CMakeLists.txt:2: there is no file.h",),
                   self.replaced("src/store/CMakeLists.txt", "HEADERS store.h", "HEADERS store.h file.h"))

    def test_an_include_by_the_bare_name_and_of_no_module(self):
        self.plant(("src/store/store_test.cc:3: store.h is included by its bare name",),
                   self.with_more("src/store/store_test.cc", '#include "store.h"\n'))
        self.plant(("src/store/store_test.cc:3: no module has tailcast/shop/shop.h",),
                   self.with_more("src/store/store_test.cc", '#include "tailcast/shop/shop.h"\n'))

    def test_a_test_of_the_whole_that_links_too_little(self):
        self.plant(("tests/all/all_test.cc:1: includes store undeclared",),
                   {"tests/all/CMakeLists.txt": "target_link_libraries(all PRIVATE tailcast::base)\n",
                    "tests/all/all_test.cc": '#include "tailcast/store/store.h"\n'})

    def test_a_circle(self):
        found = self.findings(
            self.replaced("src/base/CMakeLists.txt", "time.cc)", "time.cc\n  DEPS store)") |
            self.with_more("src/base/time.cc", '#include "tailcast/store/store.h"\n'))
        self.assertIn("src/base/CMakeLists.txt:4: modules in a circle: base -> store -> base; one of these must not "
                      "depend on the next", found)

    def test_a_module_that_is_added_before_its_dependency(self):
        self.plant(("CMakeLists.txt:4: base is added after store",),
                   {"CMakeLists.txt": "add_subdirectory(proto)\n\nadd_subdirectory(src/store)\n"
                                      "add_subdirectory(src/base)\nadd_subdirectory(src/agent)\n"})

    def test_a_module_that_is_not_added_or_does_not_exist(self):
        self.plant(("src/agent/CMakeLists.txt:1: module agent is not added",),
                   self.replaced("CMakeLists.txt", "add_subdirectory(src/agent)\n", ""))
        self.plant(("src/agent/CMakeLists.txt:6: TEST_DEPS has shop",),
                   self.replaced("src/agent/CMakeLists.txt", "TEST_DEPS store", "TEST_DEPS store shop"))

    def test_a_table_of_modules_that_lacks_one_or_is_out_of_order(self):
        self.plant(("ARCHITECTURE.md:1: module store is missing",),
                   self.replaced("ARCHITECTURE.md", "| `store` | b |\n", ""))
        self.plant(("ARCHITECTURE.md:5: `base` stands below `store`",),
                   {"ARCHITECTURE.md": "| module | promises |\n|---|---|\n| `proto` | a |\n| `store` | b |\n"
                                       "| `base` | a |\n| `agent` | c |\n"})

    def test_a_floor_that_lacks_a_module_or_stands_on_none(self):
        self.plant(("ARCHITECTURE.md:1: module proto stands on no floor",),
                   self.replaced("ARCHITECTURE.md", "base   proto ", "base "))
        self.plant(("ARCHITECTURE.md:8: store stands on floor 2 and depends on base on floor 2",),
                   self.replaced("ARCHITECTURE.md", "  2  store\n  1  base ", "  2  store  base\n  1  "))

    def test_a_source_that_nothing_compiles(self):
        self.plant(("src/agent/old.cc:1: nothing compiles it",), {"src/agent/old.cc": ""})

    def test_a_module_without_a_readme(self):
        self.plant(("src/agent/CMakeLists.txt:1: module agent has no README.md",), {"src/agent/README.md": None})

    def test_a_list_that_only_cmake_can_read(self):
        self.plant(("src/base/CMakeLists.txt:3: can't tell what ${sources} is",),
                   self.replaced("src/base/CMakeLists.txt", "time.cc)", "time.cc ${sources})"))

    # --- names ---

    def test_a_file_that_does_not_exist(self):
        for text in ("// See store/shop.h for more.\n", "/* docs/shop.md */\n", "// Model: `tla/Shop.tla`.\n",
                     "// ../store/shop.cc\n", "// tests/shop\n"):
            self.plant(("src/agent/agent.h:4: there is no ",), self.with_more("src/agent/agent.h", text))
        self.plant(("cmake/run.py:2: there is no docs/shop.md",),
                   {"cmake/run.py": 'PATH = "docs/none.md"\n"""As in docs/shop.md."""\n'})
        self.plant(("src/base/CMakeLists.txt:4: there is no shop.h",),
                   self.with_more("src/base/CMakeLists.txt", "# as in shop.h\n"))
        self.plant(("src/base/README.md:2: there is no shop.h",), self.with_more("src/base/README.md", "`shop.h`\n"))
        self.plant(("src/base/time.h:1: there is no SHOP.md",), {"src/base/time.h": "// As in SHOP.md.\n"})

    def test_a_bare_name_that_could_be_two_files(self):
        self.plant(("docs/notes.md:1: store.h could be src/agent/store.h or src/store/store.h",),
                   {"docs/notes.md": "`store.h`\n", "src/agent/store.h": ""})

    def test_files_may_be_named_from_root_src_or_their_folder_or_be_examples(self):
        self.assertEqual(self.findings(self.with_more(
            "src/agent/agent.h", "// src/store/store.h, store/store.h, ../store/store.h, agent.cc, tailcast/base/time.h,\n"
            "// <sys/mman.h> x.h, x_core.h, NAME.cc, src/store/*.h, https://example.org/a.h\n"
            'const char* f = "no/such.h";  // tailcast/proto/copy.pb.h\n')), [])

    def test_a_link_to_nothing(self):
        self.plant(("docs/notes.md:1: the link's shop",), {"docs/notes.md": "[the shop](shop)\n"})

    def test_a_citation_of_no_spec_or_no_action(self):
        self.plant(("src/agent/agent.h:4: there is no spec Shop",),
                   self.with_more("src/agent/agent.h", "// Sells (spec Shop).\n"))
        self.plant(("src/agent/agent.h:4: there is no spec Shop",),
                   self.with_more("src/agent/agent.h", "// Sells (spec Store, Shop).\n"))
        self.plant(("src/agent/agent.h:5: spec Store defines no Sell",),
                   self.with_more("src/agent/agent.h", "// Then\n  // spec Store: Append, Kept,\n  // Sell. Then more.\n"))
        self.plant(("src/agent/agent.h:4: names no spec",),
                   self.with_more("src/agent/agent.h", "// TLA: Append.\n"))
        self.plant(("proto/copy.proto:2: there is no spec Shop",), self.with_more("proto/copy.proto", "// spec Shop\n"))

    def test_a_citation_of_a_spec_and_of_what_it_extends(self):
        self.assertEqual(self.findings(self.with_more(
            "src/agent/agent.h", "// spec Store; spec StoreTrace: Append, Next. And, as ever, spec Store: Kept.\n")), [])

    def test_a_rule_that_nobody_wrote(self):
        self.plant(('src/agent/agent.h:4: there is no design rule "ask first"',),
                   self.with_more("src/agent/agent.h", '// As ever (design rules "committed first",\n// "ask first").\n'))

    def test_a_step_that_no_model_knows(self):
        self.plant(("src/agent/agent.cc:3: no trace spec has the event Sell",),
                   self.with_more("src/agent/agent.cc", 'void G() { steps->WriteAt(at, ok ? "Append" : "Sell", {}); }\n'))

    def test_a_test_that_does_not_exist(self):
        for test in ("`StoreTest.Sells`", "`ShopTest`", "`ShopTest.*`", "`StoreTest.*`, `.Sells`"):
            self.plant(("docs/paper_map.md:3: there is no test",),
                       self.replaced("docs/paper_map.md", "`store_store_test`", test))
        self.plant(("docs/paper_map.md:3: ctest has no test store_shop_test",),
                   self.replaced("docs/paper_map.md", "`store_store_test`", "`store_shop_test`"))
        self.plant(("src/base/README.md:2: there is no test StoreTest.Sells",),
                   self.with_more("src/base/README.md", "Shown by `StoreTest.Sells`.\n"))

    def test_a_model_in_a_table(self):
        self.plant(("docs/paper_map.md:3: spec Store defines no Sell",),
                   self.replaced("docs/paper_map.md", "Store: Append", "Store: Append, Sell"))
        self.plant(("docs/paper_map.md:3: there is no spec Shop",),
                   self.replaced("docs/paper_map.md", "Store: Append", "Store, Shop"))

    def test_the_tables_of_actions_and_of_members(self):
        head = "| spec | action and trace event | C++ |\n|---|---|---|\n"
        self.plant(("tla/README.md:4: spec Store defines no Sell",),
                   {"tla/README.md": head + "| Store | Append | `F` |\n| | Append, Sell | |\n"})
        self.plant(("tla/README.md:3: nothing in src is called Shop",),
                   {"tla/README.md": head + "| Store | Append | `Shop::F` |\n"})
        self.plant(("tla/README.md:3: no trace spec has the event Sell",),
                   {"tla/README.md": "| event | meaning |\n|---|---|\n| `Append`, `Sell` | a |\n"})


if __name__ == "__main__":
    unittest.main()
