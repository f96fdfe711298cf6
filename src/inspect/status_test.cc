#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/inspect/status_facts.h"
#include "tailcast/inspect/status_text.h"

namespace tailcast::inspect {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

json Process(const std::string& name, const std::string& role, const json& more = json::object()) {
  json status = {{"name", name},  {"incarnation", name},        {"uptime_s", 7000.0},
                 {"restarts", 0}, {"memory_bytes", 38'200'000}, {"cache_memory_bytes", 0}};
  status.update(more);
  return {{"name", name}, {"role", role}, {"pid", 17}, {"state", "up"}, {"status", status}};
}

json Shard(int number, int64_t messages, double per_s = 0) {
  return {{"shard", number},
          {"state", "quiet"},
          {"messages", messages},
          {"bytes", messages * 100},
          {"messages_per_s", per_s},
          {"bytes_per_s", per_s * 100},
          {"age_ms", 300}};
}

json Stream(const std::string& name, json shards) {
  return {{"stream", name}, {"source", "here"}, {"shards", shards}, {"shards_not_shown", 0}};
}

json Cell(const std::string& name, json streams) {
  return {
      {"name", name},
      {"scheduler", "10.0.0.1:7400"},
      {"scheduler_incarnation", 3},
      {"processes",
       {Process("scheduler", "scheduler"), Process("cache-1", "cache"),
        Process("reader-1", "reader", {{"data_cache_client", {{"reads", 1000}, {"hits", 995}}}})}},
      {"metadata_cache",
       {{"epoch", 1},
        {"memcached", false},
        {"replicas", {{{"name", "cache-1"}, {"there", true}, {"whole", true}}}}}},
      {"hops", json::array()},
      {"operations", json::array()},
      {"streams", streams}};
}

// `there` has `behind` messages less of stream s than its source `here`.
json TwoCells(int64_t behind = 0) {
  json cells = {Cell("here", {Stream("s", {Shard(0, 1000, 50)})}),
                Cell("there", {Stream("s", {Shard(0, 1000 - behind, 50)})})};
  CompareHeads(cells);
  return cells;
}

json Operation(const std::string& phase, int64_t written, int64_t source) {
  return {{"stream", "s"},
          {"shard", 0},
          {"file", 4},
          {"target", "there"},
          {"layer", "cache"},
          {"phase", phase},
          {"reader", "reader-1"},
          {"writer", "writer-1"},
          {"failures", 0},
          {"written_bytes", written},
          {"source_bytes", source}};
}

TEST(CompareHeads, SaysHowFarACellIsBehindTheSource) {
  const json cells = TwoCells(20);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["behind_messages"], 20);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["behind_bytes"], 2000);
  EXPECT_FALSE(cells[0]["streams"][0]["shards"][0].contains("behind_bytes")) << "the source";
}

TEST(CompareHeads, ACellThatHasNothingYetIsBehindByEverything) {
  json cells = TwoCells();
  cells[1]["streams"][0]["shards"][0] = {{"shard", 0}, {"state", "waiting"}};
  CompareHeads(cells);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["behind_messages"], 1000);
}

TEST(CompareHeads, ACellThatIsAskedLaterIsNotAheadAndOneThatIsNotKnownIsNotBehind) {
  json cells = TwoCells(-5);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["behind_messages"], 0);
  cells = TwoCells();
  cells[1]["streams"][0]["shards"][0] = {{"shard", 0}, {"state", "locating"}};
  CompareHeads(cells);
  EXPECT_FALSE(cells[1]["streams"][0]["shards"][0].contains("behind_messages"));
}

// Its consumers read the caches, which have the end: the head says nothing of what the disk lacks.
TEST(CompareHeads, ACellWhoseDiskLacksFilesIsBehindThoughItsCachesAreNot) {
  json cells = TwoCells();
  const auto copy = [&](int64_t file, const std::string& phase, int64_t written, int64_t source) {
    json operation = Operation(phase, written, source);
    operation["layer"] = "primary";
    operation["file"] = file;
    cells[0]["operations"].push_back(operation);
  };
  copy(1, "done", 0, 5000);
  copy(5, "running", 100, 900);  // it grows
  CompareHeads(cells);
  EXPECT_FALSE(cells[1]["streams"][0]["shards"][0].contains("disk_behind_bytes"));
  copy(2, "wanted", 0, 3000);
  copy(3, "running", 1000, 2000);
  CompareHeads(cells);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["behind_bytes"], 0);
  EXPECT_EQ(cells[1]["streams"][0]["shards"][0]["disk_behind_bytes"], 4000);
  EXPECT_THAT(StatusText(cells, {}),
              AllOf(HasSubstr("4.0 KB on disk\n"), HasSubstr("4.0 KB on disk, there\n")));
  EXPECT_THAT(StatusText(cells, {.stream = "s"}), HasSubstr("4.0 KB on disk"));
}

TEST(StatusText, ALineForEachCellAndEachStream) {
  EXPECT_EQ(StatusText(TwoCells(20), {}),
            "cell   state       up  processes  caches  restarts    hits       new  behind\n"
            "here   well   117 min     3 of 3  1 of 1         0  99.5 %  5.0 KB/s       -\n"
            "there  well   117 min     3 of 3  1 of 1         0  99.5 %  5.0 KB/s  2.0 KB\n"
            "\n"
            "stream  source  shards  messages     bytes       new         behind\n"
            "s       here         1      1000  100.0 KB  5.0 KB/s  2.0 KB, there\n");
}

TEST(StatusText, WhatIsNotWellComesBeforeTheStreams) {
  json cells = TwoCells();
  cells[0]["processes"][1] = {
      {"name", "cache-1"}, {"role", "cache"}, {"pid", 0}, {"state", "down"}};
  cells[1] = {{"name", "there"}, {"error", "no scheduler answers"}, {"processes", json::array()}};
  const std::string text = StatusText(cells, {});
  EXPECT_THAT(text, HasSubstr("\nhere   1 problem "));
  EXPECT_THAT(text, HasSubstr("\nthere  silent "));
  EXPECT_THAT(text, HasSubstr("\n\nhere: process cache-1 is down\n"
                              "there: no scheduler answers\n\nstream "));
}

TEST(StatusText, WhereNobodyAnswersNobodySaysThatThereAreNoStreams) {
  json cells = {{{"name", "here"}, {"error", "no answer"}, {"processes", json::array()}},
                {{"name", "there"}, {"error", "no answer"}, {"processes", json::array()}}};
  EXPECT_THAT(StatusText(cells, {}),
              HasSubstr("no cell answers: what streams there are is not known"));
  EXPECT_THAT(StatusText({Cell("here", json::array()), cells[1]}, {}),
              HasSubstr("no streams; make one"));
}

TEST(StatusText, OfManyStreamsTheIdleOnesAreNamesOnly) {
  json streams = json::array();
  for (int i = 0; i < 20; ++i) {
    streams.push_back(Stream("s" + std::to_string(i), {Shard(0, 10, i == 7 ? 2 : 0)}));
  }
  json cells = {Cell("here", streams)};
  std::string text = StatusText(cells, {});
  EXPECT_THAT(text, HasSubstr("\ns7      here         1        10  1.0 KB  200 B/s       -\n"
                              "19 idle streams (--all shows them): s0, s1, s10,"));
  EXPECT_THAT(text, Not(HasSubstr("\ns8 ")));
  text = StatusText(cells, {.all = true});
  EXPECT_THAT(text, AllOf(HasSubstr("\ns8 "), Not(HasSubstr("idle"))));
}

TEST(StatusText, OfOneStreamEachShardInEachCell) {
  json cells = {Cell("here", {Stream("s", {Shard(0, 1000), Shard(1, 5)})}),
                Cell("there", {Stream("s", {Shard(0, 900), Shard(1, 5)})})};
  CompareHeads(cells);
  cells[1]["operations"] = {Operation("running", 100, 2000), Operation("running", 50, 50)};
  EXPECT_THAT(StatusText(cells, {.stream = "s"}),
              HasSubstr("\nstream s\n"
                        "  shard  cell   messages     bytes  new   behind       heard\n"
                        "  0      here       1000  100.0 KB    0   source  300 ms ago\n"
                        "  0      there       900   90.0 KB    0  10.0 KB  300 ms ago\n"
                        "  1      here          5     500 B    0   source  300 ms ago\n"
                        "  1      there         5     500 B    0  nothing  300 ms ago\n"
                        "cell there\n"
                        "  operation  to     layer  phase    reader    writer             copied\n"
                        "  s/0 #4     there  cache  running  reader-1  writer-1  100 B of 2.0 KB\n"
                        "  1 idle operation; --all shows them\n"));
}

// Back-pressure.
TEST(StatusText, WhoeverWaitsSaysForWhichEndAndHowLong) {
  json cells = {Cell("here", {Stream("s", {Shard(0, 1000)})})};
  cells[0]["operations"] = {Operation("running", 100, 2000), Operation("running", 100, 2000)};
  cells[0]["operations"][1]["waits_for"] = "writer";
  cells[0]["operations"][1]["waits_ms"] = 12'300.0;
  EXPECT_THAT(StatusText(cells, {.stream = "s", .columns = 120}),
              HasSubstr("copied  waits for\n"
                        "  s/0 #4     there  cache  running  reader-1  writer-1  100 B of 2.0 KB  "
                        "-\n"
                        "  s/0 #4     there  cache  running  reader-1  writer-1  100 B of 2.0 KB  "
                        "writer, 12 s\n"));
  cells[0]["users"] = {{{"kind", "producer"},
                        {"stream", "s"},
                        {"host", "h"},
                        {"pid", 7},
                        {"state", "waiting"},
                        {"behind_bytes", 32'000'000},
                        {"waits_for", "primary"},
                        {"waits_ms", 9000.0}}};
  EXPECT_THAT(StatusText(cells, {.stream = "s", .columns = 120}),
              HasSubstr("  waiting for primary, 9 s  "));
}

TEST(Troubles, AHopThatWaitsForLongSaysWhichEndIsTheSlowOne) {
  json cell = Cell("here", {Stream("s", {Shard(0, 1000)})});
  const auto hop = [](const std::string& layer, const std::string& end, double ms) {
    return json({{"to", "there"},
                 {"layer", layer},
                 {"operations", 9},
                 {"behind_bytes", 40'000'000},
                 {"waiting", 3},
                 {"waits_for", end},
                 {"waits_ms", ms},
                 {"waits_stream", "s"}});
  };
  cell["hops"] = {hop("primary", "writer", 12'000), hop("cache", "writer", 60'000),
                  hop("cache", "link", 6000), hop("primary", "source", 6000),
                  hop("primary", "source", 4000)};
  EXPECT_THAT(
      Troubles(cell),
      ElementsAre("hop to there, layer primary: waits for the writer for 12 s, with 3 operations, "
                  "longest stream s; 40.0 MB behind: the disk of there (or its writer) is slower "
                  "than what comes",
                  HasSubstr("the caches of there (or its writer) is slower"),
                  HasSubstr("waits for the link for 6 s, with 3 operations, longest stream s; 40.0 "
                            "MB behind: the link from here to there is slower than what comes"),
                  HasSubstr("reading in here is slower than what comes")));
}

TEST(StatusText, OfACellItsProcessesAndOperations) {
  json cells = {TwoCells()[0]};
  cells[0]["operations"] = {Operation("wanted", 0, 0), Operation("done", 9, 9),
                            Operation("running", 0, 0)};
  cells[0]["hops"] = {{{"to", "there"},
                       {"layer", "cache"},
                       {"operations", 2},
                       {"behind_bytes", 4096},
                       {"behind_ms", 12.0},
                       {"confirmed_after_ms", 140.0}}};
  const std::string text = StatusText(cells, {.details = true, .all = true});
  EXPECT_THAT(text, HasSubstr("\ncell here, scheduler 10.0.0.1:7400, incarnation 3\n"));
  EXPECT_THAT(text,
              HasSubstr("reader-1   reader      17  117 min         0  38.2 MB    0 B  up\n"));
  EXPECT_THAT(text, HasSubstr("  cache reads: 1000, 995 hits, 0 short"));
  EXPECT_THAT(text, HasSubstr("  there   cache           2  4.1 KB  12 ms        140 ms\n"));
  EXPECT_THAT(text, HasSubstr("wanted"));
  EXPECT_THAT(text, HasSubstr("nothing cached\n"));
  EXPECT_THAT(text, Not(HasSubstr("done")));
}

TEST(StatusText, SaysOverWhatCachesAreReadAndWrittenAndWhy) {
  json cells = {TwoCells()[0]};
  const json shm = {{"over", "shm"}, {"why", "the fastest that the server offers"}};
  const json tcp = {{"over", "tcp"}, {"why", "verbs: the server offers no RDMA"}};
  cells[0]["processes"][1]["status"]["metadata_cache_client"]["connections"] = {
      {{"replica", "cache-1"}, {"reads", shm}, {"writes", tcp}}};
  cells[0]["processes"][2]["status"]["data_cache_client"]["connections"] = {
      {{"replica", "cache-1"}, {"reads", shm}, {"writes", shm}},
      {{"replica", "cache-2"}, {"reads", nullptr}, {"writes", tcp}}};
  const std::string text = StatusText(cells, {.details = true, .all = true, .columns = 200});
  EXPECT_THAT(text, HasSubstr("  cache-1 and reader-1 read cache-1 over shm (the fastest that the "
                              "server offers)\n"));
  EXPECT_THAT(text, HasSubstr("  cache-1 writes cache-1 over tcp (verbs: the server offers no "
                              "RDMA)\n"));
  EXPECT_THAT(text, HasSubstr("  reader-1 writes cache-1 over shm (the fastest that the server "
                              "offers)\n"));
  EXPECT_THAT(text, HasSubstr("  reader-1 writes cache-2 over tcp (verbs: the server offers no "
                              "RDMA)\n"));
}

TEST(StatusText, LinesAreNoLongerThanTheScreen) {
  json cells = TwoCells(7);
  const std::string name(60, 'x');
  cells[0]["streams"][0]["stream"] = name;
  cells[0]["name"] = "a-cell-with-a-name-that-takes-a-lot-of-room-on-a-line";
  cells[0]["streams"][0]["shards"][0]["error"] = std::string(30, 'e') + " " + std::string(30, 'f');
  for (const StatusView& view :
       {StatusView{}, StatusView{.details = true, .all = true}, StatusView{.stream = "s"}}) {
    std::string line;
    for (std::istringstream lines(StatusText(cells, view)); std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  EXPECT_THAT(StatusText(cells, {.columns = 200}), HasSubstr(name));
}

TEST(Troubles, ThereAreNoneWhereAllIsWell) { EXPECT_THAT(Troubles(TwoCells(20)[1]), IsEmpty()); }

TEST(Troubles, AWorkerThatWasAskedToEndIsNone) {
  json cell = TwoCells(20)[1];
  cell["processes"][1]["state"] = "leaving";
  EXPECT_THAT(Troubles(cell), IsEmpty());
}

TEST(Troubles, AProducerThatCannotWriteIsNamed) {
  json cell = TwoCells(20)[1];
  cell["users"] = {
      {{"kind", "producer"}, {"stream", "s"}, {"host", "h1"}, {"pid", 17}, {"state", "waiting"}}};
  EXPECT_THAT(Troubles(cell), IsEmpty());
  cell["users"][0]["state"] = "failing";
  EXPECT_THAT(
      Troubles(cell),
      ElementsAre(
          "stream s: its producer on h1, process 17, can't write; its own output says why"));
}

TEST(Troubles, AFileThatCanNotBeReadIsSaid) {
  json cell = TwoCells(20)[1];
  cell["disk"] = {{"unread", {"file 3 of s/0 can't be read: Input/output error"}}};
  EXPECT_THAT(Troubles(cell),
              ElementsAre("file 3 of s/0 can't be read: Input/output error; it is tried again, "
                          "others are copied"));
}

TEST(Troubles, AFullDiskIsSaidBeforeAllElseAndWhatItHoldsUp) {
  json cell = TwoCells(20)[1];
  cell["disk"] = {{"text", "9 MiB of 32 MiB are free at /d"}, {"full", false}, {"failing", {}}};
  EXPECT_THAT(Troubles(cell), IsEmpty());
  cell["processes"][0]["status"]["restarts"] = 1;
  cell["processes"][0]["status"]["uptime_s"] = 12.0;
  cell["disk"] = {{"text", "0 MiB of 32 MiB are free at /d"},
                  {"full", true},
                  {"no_room", "registry/0000000001.log: No space left on device"},
                  {"failing", {"retention of s/0: its floor is not written: No space left"}}};
  EXPECT_THAT(Troubles(cell),
              ElementsAre("the disk is full: 0 MiB of 32 MiB are free at /d; what is to be kept "
                          "for less long goes with `tailcast stream trim`, `retain` or `delete`",
                          "nothing can be changed until there is room for the registry: "
                          "registry/0000000001.log: No space left on device",
                          "old files stay: retention of s/0: its floor is not written: No space "
                          "left",
                          "process scheduler was started again 12 s ago"));
}

TEST(Troubles, ADiskThatCantBeLookedAtIsSaidAndSinceWhen) {
  json cell = TwoCells(20)[1];
  cell["disk"] = {{"unseen_ms", 63'200}, {"unseen_why", "it does not answer"}};
  EXPECT_THAT(Troubles(cell),
              ElementsAre("the disk can't be looked at since 63 s: it does not answer"));
  cell["disk"]["text"] = "0 MiB of 32 MiB are free at /d";
  cell["disk"]["full"] = true;
  EXPECT_THAT(Troubles(cell),
              ElementsAre("the disk can't be looked at since 63 s: it does not answer; what is "
                          "said of it is from before",
                          HasSubstr("the disk is full: 0 MiB of 32 MiB")));
}

TEST(Troubles, NameTheProcessTheShardAndTheCopy) {
  json cell = TwoCells()[1];
  cell["processes"][0]["status"]["restarts"] = 3;
  cell["processes"][0]["status"]["uptime_s"] = 12.0;
  cell["processes"][1]["state"] = "silent";
  cell["processes"][1]["error"] = "no answer in 2 s";
  cell["metadata_cache"]["replicas"][0]["whole"] = false;
  cell["processes"][1]["status"]["metadata_cache"] = {{"repair", "copies from cache-2"}};
  json& shards = cell["streams"][0]["shards"];
  shards[0]["lacking"] = {{{"file", 3}, {"kind", "absent"}}, {{"file", 7}, {"kind", "damaged"}}};
  shards.push_back({{"shard", 1}, {"state", "locating"}});
  shards.push_back({{"shard", 2}, {"state", "stuck"}, {"messages", 1}, {"age_ms", 90'000}});
  cell["operations"] = {Operation("given up", 0, 0)};
  cell["operations"][0]["message"] = "the disk is full";
  cell["retention_waits"] = {
      {{"stream", "s"}, {"shard", 0}, {"cell", "far"}, {"lacking_file", 4}, {"for_ms", 5000.0}}};
  cell["stamps"] = {{{"stream", "s"}, {"shard", 0}, {"file", 9}, {"ahead_ms", 7'200'000}},
                    {{"stream", "s"}, {"shard", 1}, {"file", 8}, {"ahead_ms", -120'000}}};
  cell["left_out"] = {{{"stream", "s"}, {"cell", "away"}}};
  cell["slow_workers"] = {{{"role", "writer"},
                           {"cell", "there"},
                           {"name", "writer-1"},
                           {"state", "avoided"},
                           {"took_ms", 340},
                           {"peers_ms", 41},
                           {"remaining_ms", 29'000}},
                          {{"role", "reader"},
                           {"cell", "here"},
                           {"name", "reader-2"},
                           {"state", "on trial"},
                           {"took_ms", 900},
                           {"peers_ms", 1},
                           {"remaining_ms", 60'000}}};
  EXPECT_THAT(
      Troubles(cell),
      ElementsAre("process scheduler was started again 12 s ago, 3 times in all",
                  "process cache-1 is silent: no answer in 2 s",
                  "stream s/0 lacks files 3, 7 (damaged): the cell above copies what it has of it",
                  "stream s/1: its head was not found in time",
                  "stream s/2: nothing heard of its producer for 90 s: it ended without closing "
                  "the stream, or the way to this cell is cut",
                  "metadata cache: cache-1 copies from cache-2",
                  "copy of s/0 #4 to there (cache) was given up: the disk is full",
                  "writer writer-1 of there is slow: 340 ms for what takes the others 41 ms; it "
                  "gets no work for 29 s more",
                  "reader reader-2 of here is slow: 900 ms for what takes the others 1 ms; it gets "
                  "little until it is as fast as they are",
                  "stream s, shard 0: old files stay for cell far, which lacks file 4, for 5 s",
                  "stream s, shard 0: file 9 is stamped 2.0 h ahead of the scheduler's clock: "
                  "one of that and the producer's is wrong, or was; consumers that begin at a "
                  "time go by the stamps",
                  "stream s, shard 1: file 8 is stamped 2 min behind the scheduler's clock: one of "
                  "that and the producer's is wrong, or was; consumers that begin at a time go by "
                  "the stamps",
                  "stream s: nothing is kept for cell away until it answers, and gets on"));
}

TEST(Troubles, WhoWaitsForAFileThatTheSourceHasLostIsToldWhatToDo) {
  json cell = TwoCells()[0];
  cell["streams"][0]["shards"][0]["lacking"] = {{{"file", 4}, {"kind", "absent"}}};
  cell["retention_waits"] = {
      {{"stream", "s"}, {"shard", 0}, {"cell", "there"}, {"lacking_file", 4}, {"for_ms", 5000.0}},
      {{"stream", "s"}, {"shard", 0}, {"cell", "far"}, {"lacking_file", 5}, {"for_ms", 5000.0}},
      {{"stream", "s"}, {"shard", 0}, {"cell", "near"}, {"lacking_file", 3}, {"for_ms", 5000.0}}};
  EXPECT_THAT(
      Troubles(cell),
      ElementsAre(HasSubstr("lacks file 4: removed or damaged at the source"),
                  "stream s, shard 0: old files stay for cell there, which lacks file 4, for 5 s. "
                  "The source has lost file 4: put it back, or go on without it with `tailcast "
                  "stream retain --stream s --away-max 1m`, after which that cell's consumers miss "
                  "it; then set --away-max back to what `tailcast stream describe` says now, or "
                  "every cell that is away for a minute misses messages",
                  "stream s, shard 0: old files stay for cell far, which lacks file 5, for 5 s",
                  HasSubstr("cell near, which lacks file 3, for 5 s. The source has lost file 4")));
}

TEST(Troubles, ACellThatLeftAndHasTheLastCopyIsNamed) {
  json cell = TwoCells()[0];
  cell["leaving"] = {
      {{"stream", "s"}, {"cell", "there"}, {"phase", "resting"}},
      {{"stream", "s"}, {"cell", "far"}, {"phase", "keeping"}, {"shard", 1}, {"lacking_file", 7}}};
  EXPECT_THAT(Troubles(cell),
              ElementsAre("stream s, shard 1: cell far, which has left the copy tree, keeps its "
                          "copies: this cell, the source, lacks file 7, which it has; put that "
                          "back from there"));
  cell["leaving"][1]["unread"] = "there";
  EXPECT_THAT(Troubles(cell),
              ElementsAre("stream s, shard 1: cell far, which has left the copy tree, keeps its "
                          "copies: its file 7 can't be read, so that nobody knows whether this "
                          "cell, the source, has all of it; its status says why"));
  cell["leaving"][1]["unread"] = "source";
  EXPECT_THAT(Troubles(cell),
              ElementsAre("stream s, shard 1: cell far, which has left the copy tree, keeps its "
                          "copies: this cell, the source, can't read its file 7, which that cell "
                          "has; mend the disk, or put it back from there"));
}

TEST(Troubles, AProcessThatRunsForLongAgainIsForgotten) {
  json cell = TwoCells()[0];
  cell["processes"][0]["status"]["restarts"] = 3;
  EXPECT_THAT(Troubles(cell), IsEmpty());
}

TEST(SumStreams, NobodyIsBehindASourceThatDoesNotAnswer) {
  json cells = {Cell("there", {Stream("s", {Shard(0, 9)})})};
  CompareHeads(cells);
  EXPECT_FALSE(SumStreams(cells)[0].compared);
  EXPECT_TRUE(SumStreams(TwoCells())[0].compared);
}

TEST(SumStreams, ACellThatDoesNotKnowItsHeadMakesItUnknown) {
  json cells = TwoCells();
  cells[1]["streams"][0]["shards"][0] = {{"shard", 0}, {"state", "locating"}};
  const std::vector<StreamSum> sums = SumStreams(cells);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_TRUE(sums[0].unknown);
  EXPECT_FALSE(sums[0].idle());
  EXPECT_EQ(sums[0].messages, 1000);
}

TEST(StatusTextTest, WhatAUserMayNotSeeIsSaidOnceAndIsNoProblemOfTheCell) {
  json cell = Cell("here", {Stream("s", {}), Stream("t", {})});
  for (json& stream : cell["streams"]) stream["unknown"] = true;
  cell["heads_error"] = "the key file can't be read";
  cell["heads_denied"] = true;
  std::string text = StatusText(json::array({cell}), {});
  EXPECT_THAT(text, AllOf(HasSubstr("\nhere  well "),
                          HasSubstr("\nhere: how far its streams are can't be seen: the key file "
                                    "can't be read\n")));
  EXPECT_EQ(text.find("key file"), text.rfind("key file"));
  cell["heads_denied"] = false;
  text = StatusText(json::array({cell}), {});
  EXPECT_THAT(text, AllOf(HasSubstr("\nhere  1 problem "),
                          HasSubstr("\nhere: how far its streams are is not known: the key")));
}

TEST(StatusTextTest, UsersAreListedWhereSomebodyLooksForThemAndCountedElsewhere) {
  json cell = Cell("here", {Stream("s", {Shard(0, 10)})});
  cell["users"] = {{{"kind", "producer"},
                    {"stream", "s"},
                    {"name", ""},
                    {"host", "a.example.org"},
                    {"pid", 7},
                    {"state", "producing"},
                    {"messages", 10},
                    {"heard_ms", 2000}},
                   {{"kind", "consumer"},
                    {"stream", "s"},
                    {"name", "prices"},
                    {"host", "b"},
                    {"pid", 8},
                    {"state", "tailing"},
                    {"messages", 4},
                    {"behind_bytes", 600},
                    {"behind_ms", 9000},
                    {"heard_ms", 100}}};
  EXPECT_THAT(StatusText(json::array({cell}), {}),
              AllOf(HasSubstr("1 producer and 1 consumer that report"), Not(HasSubstr("prices"))));
  EXPECT_THAT(
      StatusText(json::array({cell}), {.stream = "s"}),
      HasSubstr("-       producer  here  a/7      producing        10     nothing     2 s ago\n"
                "prices  consumer  here  b/8      tailing           4  600 B, 9 s  100 ms ago\n"));
  json& users = cell["users"];
  while (users.size() < 30) users.push_back(users.back());
  EXPECT_THAT(StatusText(json::array({cell}), {.stream = "s"}),
              HasSubstr("10 more users; --all shows them"));
  EXPECT_THAT(StatusText(json::array({cell}), {.stream = "s", .all = true}),
              Not(HasSubstr("more users")));
  users = json::array();
  EXPECT_THAT(StatusText(json::array({cell}), {}), Not(HasSubstr("report")));
  cell["users_full"] = true;
  EXPECT_THAT(StatusText(json::array({cell}), {}),
              HasSubstr("\nhere: as many producers and consumers report as are kept"));
  cell["users_error"] = "no answer within 1 s";
  EXPECT_THAT(StatusText(json::array({cell}), {.stream = "s"}),
              HasSubstr("\nhere: who produces and consumes is not known: no answer within 1 s"));
}

}  // namespace
}  // namespace tailcast::inspect
