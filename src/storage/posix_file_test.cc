// The steps of the posix driver on the file system in memory: the checks of posix_scenarios.h, the
// log of steps, and that each planted bug is caught by one of the checks.
#include "tailcast/storage/posix_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_interleaver.h"
#include "tailcast/storage/posix_oracle.h"
#include "tailcast/storage/posix_scenarios.h"

namespace tailcast::storage::posix {
namespace {

TEST(PosixCrash, AcknowledgedBytesSurviveACutAfterEveryCall) {
  EXPECT_EQ(CrashEverywhere(20, 0), "");
}
TEST(PosixCrash, AcknowledgedBytesSurviveASecondCutInTheRecovery) {
  EXPECT_EQ(CrashEverywhere(0, 2), "");
}

TEST(PosixTakeover, AWriterStoppedBeforeAnyCallAndWokenAfterATakeoverHarmsNothing) {
  EXPECT_EQ(TakeoverEverywhere(30), "");
}

// A log of the steps of some writers and one reader over two boots, for tla/FencingTrace.tla. Empty
// if the seed is none for the model: it lets the word on disk be the newest or the first one only.
std::string LogOnce(uint64_t seed) {
  MemoryFiles files(seed);
  Rng rng(seed);
  std::string log;
  int64_t steps = 0;
  std::deque<StepLog> logs;
  const auto logger = [&](const std::string& process) {
    return &logs.emplace_back(
        "", process, [&steps] { return ++steps; }, [&log](std::string_view line) { log += line; });
  };
  // Steps that the model takes at once are not cut here: nobody else moves between reading the word
  // and the boot tag, nor while slots are read.
  const auto coarse = [](const FileOpsHook& hook) -> FileOpsHook {
    return [hook](std::string_view call, const std::string& path) {
      const bool read_only = call == "load" || call == "read" || call == "open" || call == "map";
      return read_only ? OkStatus() : hook(call, path);
    };
  };
  const uint64_t first_appends = rng.Below(3);
  for (int boot = 0; boot < 2; ++boot) {
    if (boot > 0) {
      const auto ops = files.OpenOps();
      const auto word = [&] {
        return ops->Open("a/d/f", false).value()->MapPage(false).value()->Load(kWordOffset);
      };
      const uint64_t before = word();
      files.PowerLoss(rng, {.garble_rewritten_metadata = false});
      if (word() != before && word() != Pack({Epoch::kFirst, 0})) return "";
      logger("power")->Write("PowerLoss", {});
    }
    std::vector<Interleaver::Body> bodies;
    if (boot == 0) {
      // Without a hook: the file is there when the others begin.
      auto p = std::make_shared<Process>(files);
      p->context.steps = logger("a");
      std::shared_ptr<Appender> creator = CreateExclusive(p->context, kFolder, "f", "k").value();
      for (uint64_t i = 0; i < first_appends; ++i) {
        const AppendResult result = creator->Append(std::string(1 + rng.Below(900), 'x'));
        static_cast<void>(result);
      }
    }
    for (int w = 0; w < 2; ++w) {
      const std::string name(1, static_cast<char>('b' + 2 * boot + w));
      bodies.push_back(
          [&files, &logger, &coarse, name, own_seed = rng.Next()](const FileOpsHook& hook) {
            Rng own(own_seed);
            Process p(files, coarse(hook));
            p.context.steps = logger(name);
            for (int t = 0; t < 2; ++t) {
              Result<std::unique_ptr<Appender>> file = OpenFencing(p.context, kFolder, "f");
              if (!file.ok()) continue;
              for (uint64_t i = own.Below(4); i > 0; --i) {
                const std::string piece(1 + own.Below(900), 'x');
                if ((*file)->Append(piece).outcome != AppendOutcome::kApplied) break;
              }
            }
          });
    }
    bodies.push_back([&files, &logger, &coarse, own_seed = rng.Next()](const FileOpsHook& hook) {
      Rng own(own_seed);
      Process p(files, coarse(hook));
      p.context.steps = logger("r");
      Result<std::unique_ptr<Reader>> reader = OpenRead(p.context, kFolder, "f");
      if (!reader.ok()) return;
      int64_t known = 0;
      for (int i = 0; i < 4; ++i) {
        const int64_t from =
            known == 0 ? 0 : static_cast<int64_t>(own.Below(static_cast<uint64_t>(known)));
        Result<std::string> bytes = (*reader)->Read(from, 500);
        if (!bytes.ok()) return;
        known = std::max(known, from + static_cast<int64_t>(bytes->size()));
      }
    });
    Interleaver interleaver;
    interleaver.Run(bodies, rng, static_cast<int64_t>(5 + rng.Below(60)));
  }
  return log;
}

TEST(PosixRace, WritersAndReadersInterleavedAtEveryCallHarmNothing) {
  EXPECT_EQ(Sweep(RaceOnce, 1500), "");
}
TEST(PosixRace, OpenersAtOnceAfterAPowerLossAgree) { EXPECT_EQ(Sweep(RecoveryRaceOnce, 2000), ""); }
TEST(PosixRace, CreatorsAndDeletersInterleavedAtEveryCallNeverForkAKey) {
  EXPECT_EQ(Sweep(CreateRaceOnce, 1500), "");
}

// With TAILCAST_TRACE_DIR=DIR the logs are written there; tla/run.py trace --spec Fencing --trace
// FILE then says whether the model takes them. Some are kept in tla/traces.
TEST(PosixLog, EveryKindOfStepIsLogged) {
  const char* folder = std::getenv("TAILCAST_TRACE_DIR");
  std::string all;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::string log = LogOnce(seed);
    all += log;
    if (folder != nullptr && !log.empty()) {
      std::ofstream(std::string(folder) + "/posix_" + std::to_string(seed) + ".jsonl") << log;
    }
  }
  for (const char* step : {"Create",           "Fence",          "RecoverReadWord",
                           "RecoverReadSlots", "RecoverBracket", "RecoverFence",
                           "RecoverSetBoot",   "CreateSegment",  "CreateSegmentSync",
                           "AppendRefused",    "AppendWrite",    "AppendSync",
                           "AppendCommit",     "AppendRevoke",   "AppendRevokeSync",
                           "ReadWord",         "ReadSlots",      "ReadBracket",
                           "ReadShow",         "PowerLoss"}) {
    EXPECT_NE(all.find("\"event\":\"" + std::string(step) + "\""), std::string::npos) << step;
  }
  EXPECT_NE(all.find("\"RecoverFence\",\"writer\":\"d1\",\"swapped\":false"), std::string::npos);
}

void TakeOverAndAppend(Process& p) {
  const auto file = OpenFencing(p.context, kFolder, "f");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->Append("bytes").outcome, AppendOutcome::kApplied);
}

// A writer on a full disk opens its file again and again.
TEST(PosixFile, TakeoversThatAppendNothingLeaveOneSegmentBehind) {
  MemoryFiles files(1);
  Process p(files);
  ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
  TakeOverAndAppend(p);
  EXPECT_EQ(files.inodes(), 2u);
  for (int k = 0; k < 100; ++k) {
    const auto file = OpenFencing(p.context, kFolder, "f");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->committed_length(), 5);
    EXPECT_EQ(files.inodes(), 3u);
  }
  TakeOverAndAppend(p);
  TakeOverAndAppend(p);
  EXPECT_EQ(files.inodes(), 4u) << "what is in a segment stays";
  const auto file = OpenRead(p.context, kFolder, "f");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Read(0, 100).value(), "bytesbytesbytes");
}

// Some of them find no room for their own segment either.
TEST(PosixFile, EpochsWithoutASegmentDoNotHideThoseOfTakeoversBefore) {
  MemoryFiles files(1);
  bool full = false;
  Process p(files, [&](std::string_view call, const std::string&) {
    return full && call == "create" ? ResourceExhaustedError("full") : OkStatus();
  });
  ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
  for (int round = 0; round < 5; ++round) {
    full = false;
    ASSERT_TRUE(OpenFencing(p.context, kFolder, "f").ok());
    EXPECT_EQ(files.inodes(), 2u);
    full = true;
    for (int k = 0; k < 5; ++k) ASSERT_FALSE(OpenFencing(p.context, kFolder, "f").ok());
  }
}

TEST(PosixFile, ADeletedFileLeavesNoInodeBehind) {
  MemoryFiles files(1);
  Process p(files);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
    for (int k = 0; k < 3; ++k) TakeOverAndAppend(p);
    EXPECT_EQ(files.inodes(), 4u);
    ASSERT_TRUE(Delete(p.context, kFolder, "f").ok());
    EXPECT_EQ(files.inodes(), 0u);
  }
}

// Segments and claims that no listing shows would stay for ever.
TEST(PosixFile, ADeleteThatDiedAfterAnyCallIsSeenInAListingAndFinishedByDeletingAgain) {
  for (const bool power_loss : {false, true}) {
    bool died = true;
    for (int cut = 0; died; ++cut) {
      MemoryFiles files(static_cast<uint64_t>(cut) + 1);
      {
        Process p(files);
        ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
        for (int k = 0; k < 3; ++k) TakeOverAndAppend(p);
      }
      {
        int calls = 0;
        Process p(files, [&](std::string_view, const std::string&) {
          return ++calls > cut ? UnavailableError("killed") : OkStatus();
        });
        died = !Delete(p.context, kFolder, "f").ok();
      }
      Rng rng(static_cast<uint64_t>(cut));
      if (power_loss) files.PowerLoss(rng, {.garble_rewritten_metadata = false});
      Process p(files);
      const std::vector<std::string> left = List(p.context, kFolder).value();
      for (const std::string& name : left) {
        const Status deleted = Delete(p.context, kFolder, name);
        ASSERT_TRUE(deleted.ok() || IsNotFound(deleted)) << deleted;
      }
      EXPECT_EQ(files.inodes(), 0u) << "killed after call " << cut;
    }
  }
}

TEST(PosixFile, ANameThatAnotherKeyHasIsRefusedAndLeavesNothing) {
  MemoryFiles files(1);
  Process p(files);
  ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
  Result<std::unique_ptr<Appender>> other = CreateExclusive(p.context, kFolder, "f", "other");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files.inodes(), 1u);
  EXPECT_TRUE(CreateExclusive(p.context, kFolder, "g", "other").ok());
}

CommitWord Word(uint64_t epoch, int64_t length) { return {Epoch{epoch}, length}; }

// Positions [0, 100) in epoch 1, from 100 on in epoch 3, from 250 on in epochs 4 and 6; epoch 5 has
// no segment, and nobody appended in epoch 4.
Segments FourSegments() {
  Segments segments;
  for (const auto& [epoch, start] : {Word(1, 0), Word(3, 100), Word(4, 250), Word(6, 250)}) {
    Segment segment;
    segment.header.epoch = epoch;
    segment.header.start = start;
    segments.by_epoch.push_back(std::move(segment));
  }
  return segments;
}

TEST(Segments, APositionIsInTheNewestSegmentThatBeginsAtItOrBefore) {
  const Segments segments = FourSegments();
  const auto epoch_at = [&](int64_t position) {
    return segments.by_epoch[PieceAt(segments, position, position + 1).segment].header.epoch;
  };
  EXPECT_EQ(epoch_at(0), Epoch{1});
  EXPECT_EQ(epoch_at(99), Epoch{1});
  EXPECT_EQ(epoch_at(100), Epoch{3});
  EXPECT_EQ(epoch_at(249), Epoch{3});
  EXPECT_EQ(epoch_at(250), Epoch{6});
  EXPECT_EQ(epoch_at(1'000'000), Epoch{6});
}

TEST(Segments, APieceEndsWhereALaterSegmentBeginsOrTheReadEnds) {
  const Segments segments = FourSegments();
  EXPECT_EQ(PieceAt(segments, 0, 1000).stop, 100);
  EXPECT_EQ(PieceAt(segments, 0, 60).stop, 60);
  EXPECT_EQ(PieceAt(segments, 100, 1000).stop, 250);
  EXPECT_EQ(PieceAt(segments, 250, 1000).stop, 1000);
}

TEST(Segments, AListIsCompleteForItsEpochOrForWhatWasCommittedWhenItWasMade) {
  Segments never = FourSegments();
  EXPECT_FALSE(never.CompleteFor(Word(1, 0)));
  // With the segment of the epoch: whatever that epoch appends.
  Segments with = FourSegments();
  with.MarkListedAt(Word(6, 260));
  EXPECT_TRUE(with.CompleteFor(Word(6, 260)));
  EXPECT_TRUE(with.CompleteFor(Word(6, 900)));
  EXPECT_FALSE(with.CompleteFor(Word(7, 260))) << "another epoch may begin anywhere";
  // Without it: only what earlier epochs appended.
  Segments without = FourSegments();
  without.MarkListedAt(Word(7, 260));
  EXPECT_TRUE(without.CompleteFor(Word(7, 260)));
  EXPECT_FALSE(without.CompleteFor(Word(7, 261)));
}

TEST(Recovery, AfterARestartTheEpochIsTheHighestSeenAndTheLengthThatOfTheSlots) {
  EXPECT_EQ(WordAfterRestart(Word(5, 900), true, Word(3, 700)), Word(5, 700));
  EXPECT_EQ(WordAfterRestart(Word(2, 900), true, Word(3, 700)), Word(3, 700));
  EXPECT_EQ(WordAfterRestart(Word(5, 900), false, Word(3, 700)), Word(3, 700)) << "a torn sector";
}

// The state in which each system call of an append is made.
TEST(Appender, EachCallIsMadeInTheStateThatTheDiagramSays) {
  MemoryFiles files(1);
  Appender* watched = nullptr;
  std::vector<std::pair<std::string, AppenderState>> calls;
  Process p(files, [&](std::string_view call, const std::string&) {
    if (watched != nullptr) calls.emplace_back(call, watched->state());
    return OkStatus();
  });
  std::unique_ptr<Appender> file = *CreateExclusive(p.context, kFolder, "f", "k");
  watched = file.get();
  using S = AppenderState;
  EXPECT_EQ(file->Append("abc").outcome, AppendOutcome::kApplied);
  EXPECT_EQ(calls, (decltype(calls){{"load", S::kReady},
                                    {"write", S::kReady},
                                    {"write", S::kReady},
                                    {"flush", S::kWritten},
                                    {"swap", S::kFlushed}}));
  EXPECT_EQ(file->state(), S::kReady);
  watched = nullptr;

  // Fenced between flush and swap.
  Process other(files);
  bool armed = true;
  Process slow(files, [&](std::string_view call, const std::string&) {
    if (watched != nullptr && armed && call == "swap") {
      armed = false;
      EXPECT_TRUE(OpenFencing(other.context, kFolder, "f").ok());
      calls.clear();
    }
    if (watched != nullptr) calls.emplace_back(call, watched->state());
    return OkStatus();
  });
  std::unique_ptr<Appender> slow_file = *OpenFencing(slow.context, kFolder, "f");
  watched = slow_file.get();
  EXPECT_EQ(slow_file->Append("def").outcome, AppendOutcome::kFenced);
  EXPECT_EQ(calls, (decltype(calls){{"swap", S::kFlushed},
                                    {"write", S::kFenced},
                                    {"flush", S::kRevoked},
                                    {"load", S::kRevoked}}));
  EXPECT_EQ(slow_file->state(), S::kDead);
}

// ---------------------------------------------------------------------------------------------
// Planted bugs: who catches which.

struct CaughtBy {
  const char* fault;
  std::string (*check)();
};
void PrintTo(const CaughtBy& c, std::ostream* os) { *os << c.fault; }

std::string Crash() { return CrashEverywhere(20, 0); }
std::string Takeover() { return TakeoverEverywhere(30); }
std::string Race() { return Sweep(RaceOnce, 20'000); }
std::string RecoveryRace() { return Sweep(RecoveryRaceOnce, 20'000); }
std::string CreateRace() { return Sweep(CreateRaceOnce, 20'000); }

constexpr CaughtBy kCaughtBy[] = {
    {"storage.no_commit_check", Takeover},
    {"storage.no_slot", Crash},
    {"storage.one_slot", Crash},
    {"storage.ack_before_flush", Crash},
    {"storage.no_range_checksum", Crash},
    {"storage.trust_word", Crash},
    {"storage.slots_of_any_segment", Race},
    {"storage.same_inode", Takeover},
    {"storage.segment_not_durable", Crash},
    {"storage.fenced_not_revoked", Race},
    {"storage.word_read_late", RecoveryRace},
    {"storage.no_bracket", RecoveryRace},
    {"storage.listing_kept", Race},
    {"storage.claim_not_durable", CreateRace},
    {"storage.no_tombstone", CreateRace},
};

class PosixPlantedBug : public ::testing::TestWithParam<CaughtBy> {};
TEST_P(PosixPlantedBug, IsCaught) {
  const PlantedFault fault(GetParam().fault);
  const std::string error = GetParam().check();
  EXPECT_NE(error, "") << "nobody noticed " << GetParam().fault;
  printf("%s: %s\n", GetParam().fault, error.c_str());
}
INSTANTIATE_TEST_SUITE_P(Bugs, PosixPlantedBug, ::testing::ValuesIn(kCaughtBy),
                         [](const auto& info) {
                           return std::string(info.param.fault).substr(sizeof "storage." - 1);
                         });

TEST(PosixPlantedBugs, AllThatAreLinkedInAreTried) {
  for (const FaultPoint* point : FaultPoints()) {
    // Those of the rolled driver are rolled_store_test.cc's, of the reserve
    // posix_reserve_test.cc's.
    if (!point->name().starts_with("storage.") || point->name().starts_with("storage.fake_") ||
        point->name().starts_with("storage.rolled_") ||
        point->name().starts_with("storage.reserve_")) {
      continue;
    }
    EXPECT_TRUE(std::any_of(std::begin(kCaughtBy), std::end(kCaughtBy), [&](const CaughtBy& c) {
      return point->name() == c.fault;
    })) << point->name();
  }
}

}  // namespace
}  // namespace tailcast::storage::posix
