// The one suite that every driver of the storage port passes. A driver's test registers it:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, StoreConformance, ::testing::Values(
//       ConformanceParam{"Plain", [] { return std::make_unique<FakeWorld>(...); }}),
//       ConformanceName);
//
// Only for tests (it includes gtest). What a driver cannot do it declares in its world; such tests
// are skipped with that reason printed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/conformance_world.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {

struct ConformanceParam {
  std::string name;
  std::function<std::unique_ptr<ConformanceWorld>()> make;
};
inline std::ostream& operator<<(std::ostream& os, const ConformanceParam& p) {
  return os << p.name;
}
inline std::string ConformanceName(const ::testing::TestParamInfo<ConformanceParam>& info) {
  return info.param.name;
}

class StoreConformance : public ::testing::TestWithParam<ConformanceParam> {
 protected:
  StoreConformance() : world_(GetParam().make()) {}

  SyncStore At(int process) {
    return SyncStore(&world_->store(process),
                     [this](const std::function<bool()>& done) { return world_->Turn(done); });
  }
  static std::unique_ptr<AppendFile> Must(SyncStore::Appender file) {
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static std::unique_ptr<ReadFile> Must(SyncStore::Reader file) {
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  void MustAppend(SyncStore s, AppendFile& file, const std::string& bytes) {
    const int64_t before = file.committed_length();
    const AppendResult result = s.Append(file, bytes);
    ASSERT_EQ(result.outcome, AppendOutcome::kApplied) << result.error;
    ASSERT_EQ(result.committed_length, before + static_cast<int64_t>(bytes.size()));
    ASSERT_EQ(file.committed_length(), result.committed_length);
  }
  // Sizes may lag, but not for ever.
  void ExpectSizeBecomes(SyncStore s, ReadFile& file, int64_t expected) {
    int64_t size = -1;
    for (int i = 0; i < 1000 && size != expected; ++i) {
      Result<FileSize> result = s.Size(file);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_GE(result->committed_length, size) << "a size fell";
      ASSERT_LE(result->committed_length, expected);
      size = result->committed_length;
    }
    EXPECT_EQ(size, expected);
  }
  void ExpectContent(const std::string& dir, const std::string& name, const std::string& bytes) {
    for (int process : {0, 1}) {
      Result<std::string> all = At(process).ReadAll(dir, name);
      ASSERT_TRUE(all.ok()) << all.status();
      EXPECT_EQ(*all, bytes) << "read by process " << process;
    }
  }
  static std::string Bytes(size_t size, uint64_t seed) {
    Rng rng(seed);
    std::string s(size, '\0');
    for (char& c : s) c = static_cast<char>(rng.Next());
    return s;
  }

  std::unique_ptr<ConformanceWorld> world_;
  const Scope scope_;
};

TEST_P(StoreConformance, AFileIsCreatedAppendedAndReadBack) {
  SyncStore s = At(0);
  auto file = Must(s.Create("a/b", "x.data", "x"));
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->epoch(), Epoch::kFirst);
  EXPECT_EQ(file->name(), "x.data");
  EXPECT_EQ(file->committed_length(), 0);
  MustAppend(s, *file, "hello, ");
  MustAppend(s, *file, "world");
  ExpectContent("a/b", "x.data", "hello, world");
}

TEST_P(StoreConformance, AnEmptyFileReadsAsNothing) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "empty", "k"));
  ExpectContent("d", "empty", "");
  auto reader = Must(s.Open("d", "empty"));
  EXPECT_EQ(s.Size(*reader)->committed_length, 0);
  EXPECT_EQ(s.CheckedSize(*reader)->committed_length, 0);
  EXPECT_EQ(*s.Read(*reader, 0, 10), "");
  EXPECT_EQ(*s.Read(*reader, 5, 10), "");
}

TEST_P(StoreConformance, AnEmptyAppendIsAppliedAndChangesNothing) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "");
  MustAppend(s, *file, "ab");
  MustAppend(s, *file, "");
  MustAppend(s, *file, "c");
  ExpectContent("d", "f", "abc");
  file = Must(s.Fence("d", "f"));
  MustAppend(s, *file, "d");
  auto reader = Must(s.Open("d", "f"));
  EXPECT_TRUE(s.CheckedSize(*reader).ok()) << "it is whole, also over a takeover";
}

TEST_P(StoreConformance, ReadsEndAtTheCommittedLength) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "0123456789");
  auto reader = Must(s.Open("d", "f"));
  EXPECT_EQ(*s.ReadFully(*reader, 0, 4), "0123");
  EXPECT_EQ(*s.ReadFully(*reader, 4, 3), "456");
  EXPECT_EQ(*s.ReadFully(*reader, 7, 100), "789");
  EXPECT_EQ(*s.Read(*reader, 10, 1), "");
  EXPECT_EQ(*s.Read(*reader, 1'000'000, 1), "");
  EXPECT_EQ(*s.Read(*reader, 0, 0), "");
  EXPECT_EQ(s.Read(*reader, -1, 5).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(s.Read(*reader, 0, -5).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(StoreConformance, AReaderSeesTheFileGrow) {
  SyncStore writer = At(0);
  SyncStore s = At(1);
  auto file = Must(writer.Create("d", "f", "k"));
  auto reader = Must(s.Open("d", "f"));
  std::string all;
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string piece = Bytes(1 + i * 97, i);
    MustAppend(writer, *file, piece);
    all += piece;
    ExpectSizeBecomes(s, *reader, static_cast<int64_t>(all.size()));
    Result<std::string> got = s.ReadFully(*reader, 0, static_cast<int64_t>(all.size()));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(*got, all);
  }
}

TEST_P(StoreConformance, AKeyHasOneWinnerAndLosersLearnItsName) {
  auto file = Must(At(0).Create("d", "7-first", "7"));
  MustAppend(At(0), *file, "x");
  for (int process : {0, 1}) {
    for (const char* name : {"7-second", "7-first"}) {
      SyncStore::Appender loser = At(process).Create("d", name, "7");
      ASSERT_FALSE(loser.ok());
      EXPECT_EQ(loser.status().code(), StatusCode::kAlreadyExists);
      EXPECT_EQ(WinnerOf(loser.status()), "7-first");
    }
  }
  EXPECT_EQ(*At(0).List("d"), (std::vector<std::string>{"7-first"}));
  // The same key in another folder is another key.
  EXPECT_NE(Must(At(0).Create("e", "7-second", "7")), nullptr);
}

TEST_P(StoreConformance, OfManyCreatorsAtOnceExactlyOneWins) {
  for (int round = 0; round < 5; ++round) {
    const std::string key = std::to_string(round);
    std::vector<std::string> winners;
    std::vector<std::string> told;
    std::vector<std::unique_ptr<AppendFile>> files;
    int answers = 0;
    for (int process = 0; process < 4; ++process) {
      const std::string name = key + "-by-" + std::to_string(process);
      world_->store(process).CreateExclusive(
          "d", name, key, scope_.Bind([&, name](Result<std::unique_ptr<AppendFile>> result) {
            ++answers;
            if (result.ok()) {
              winners.push_back(name);
              files.push_back(*std::move(result));
            } else {
              ASSERT_EQ(result.status().code(), StatusCode::kAlreadyExists) << result.status();
              told.push_back(WinnerOf(result.status()));
            }
          }));
    }
    ASSERT_TRUE(world_->Turn([&] { return answers == 4; }));
    ASSERT_EQ(winners.size(), 1u);
    for (const std::string& name : told) EXPECT_EQ(name, winners[0]);
    EXPECT_EQ(files[0]->epoch(), Epoch::kFirst);
  }
  EXPECT_EQ(At(1).List("d")->size(), 5u);
}

TEST_P(StoreConformance, AWrongOffsetWritesNothingAndLeavesTheHandleAlive) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "abc");
  for (int64_t offset : {0, 2, 4, 1000}) {
    const AppendResult result = s.Append(*file, offset, "zzz");
    EXPECT_EQ(result.outcome, AppendOutcome::kWrongOffset) << offset;
    EXPECT_EQ(result.committed_length, 3);
  }
  MustAppend(s, *file, "def");
  ExpectContent("d", "f", "abcdef");
}

TEST_P(StoreConformance, ASecondOpenerFencesTheFirst) {
  auto first = Must(At(0).Create("d", "f", "k"));
  MustAppend(At(0), *first, "one");
  for (int process : {0, 1}) {
    auto second = Must(At(process).Fence("d", "f"));
    ASSERT_NE(second, nullptr);
    EXPECT_GT(second->epoch(), first->epoch());
    EXPECT_EQ(second->committed_length(), first->committed_length());
    for (int i = 0; i < 2; ++i) {
      const AppendResult result = At(0).Append(*first, "never seen");
      EXPECT_EQ(result.outcome, AppendOutcome::kFenced);
      EXPECT_FALSE(result.error.ok());
    }
    MustAppend(At(process), *second, "more");
    first = std::move(second);
    if (process == 0) continue;
    ExpectContent("d", "f", "onemoremore");
  }
}

TEST_P(StoreConformance, ATakeoverContinuesAtTheCommittedLength) {
  std::string all;
  auto file = Must(At(0).Create("d", "f", "k"));
  Epoch epoch = Epoch::kNone;
  for (uint64_t i = 0; i < 12; ++i) {
    const int process = static_cast<int>(i % 3);
    if (i > 0) file = Must(At(process).Fence("d", "f"));
    ASSERT_NE(file, nullptr);
    ASSERT_GT(file->epoch(), epoch);
    epoch = file->epoch();
    ASSERT_EQ(file->committed_length(), static_cast<int64_t>(all.size()));
    if (i % 4 == 2) continue;  // a takeover that appends nothing
    for (uint64_t k = 0; k < i % 3 + 1; ++k) {
      const std::string piece = Bytes(1 + (i * 700 + k * 31) % 5000, i * 10 + k);
      MustAppend(At(process), *file, piece);
      all += piece;
    }
  }
  ExpectContent("d", "f", all);
}

TEST_P(StoreConformance, AReaderKeepsReadingAcrossTakeovers) {
  auto file = Must(At(0).Create("d", "f", "k"));
  auto reader = Must(At(1).Open("d", "f"));
  std::string all;
  for (uint64_t i = 0; i < 8; ++i) {
    const std::string piece = Bytes(3000, i);
    MustAppend(At(0), *file, piece);
    all += piece;
    ExpectSizeBecomes(At(1), *reader, static_cast<int64_t>(all.size()));
    // The whole and a piece across each border of writers.
    ASSERT_EQ(*At(1).ReadFully(*reader, 0, static_cast<int64_t>(all.size())), all);
    if (i > 0) {
      const auto border = static_cast<int64_t>(all.size()) - 3000;
      ASSERT_EQ(*At(1).ReadFully(*reader, border - 10, 20),
                all.substr(static_cast<size_t>(border) - 10, 20));
    }
    file = Must(At(0).Fence("d", "f"));
  }
}

TEST_P(StoreConformance, ADeletedFileIsGoneAndItsKeyIsFree) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "abc");
  file = Must(At(1).Fence("d", "f"));
  MustAppend(At(1), *file, "def");
  EXPECT_TRUE(s.Delete("d", "f").ok());
  EXPECT_TRUE(s.List("d")->empty());
  EXPECT_EQ(s.Open("d", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(s.Fence("d", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(s.Delete("d", "f").code(), StatusCode::kNotFound);
  EXPECT_NE(At(1).Append(*file, "ghi").outcome, AppendOutcome::kApplied);
  auto again = Must(s.Create("d", "g", "k"));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->committed_length(), 0);
  ExpectContent("d", "g", "");
}

TEST_P(StoreConformance, WhoDeletesOneFileLeavesItsSuccessorsNameAlone) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "abc");
  const auto first = s.Identify("d", "f");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_NE(*first, "");
  EXPECT_EQ(*At(1).Identify("d", "f"), *first);
  EXPECT_TRUE(Must(At(1).Fence("d", "f")) != nullptr);
  EXPECT_EQ(*s.Identify("d", "f"), *first) << "whoever appends to it";
  ASSERT_TRUE(s.Delete("d", "f").ok());
  EXPECT_EQ(s.Identify("d", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(s.DeleteExactly("d", "f", *first).code(), StatusCode::kNotFound);

  file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "def");
  const auto second = s.Identify("d", "f");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*second, *first);
  EXPECT_EQ(At(1).DeleteExactly("d", "f", *first).code(), StatusCode::kNotFound);
  EXPECT_EQ(At(1).DeleteExactly("d", "f", "").code(), StatusCode::kNotFound) << "it is not damaged";
  ExpectContent("d", "f", "def");
  MustAppend(s, *file, "ghi");
  EXPECT_TRUE(At(1).DeleteExactly("d", "f", *second).ok());
  EXPECT_NE(s.Append(*file, "jkl").outcome, AppendOutcome::kApplied);
  EXPECT_TRUE(s.List("d")->empty());
  EXPECT_TRUE(s.Create("d", "g", "k").ok());
}

TEST_P(StoreConformance, AFileThatIsTakenAsideFreesItsNameAndItsKeyAndFencesItsWriters) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  MustAppend(s, *file, "abc");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(At(1).Quarantine("d", "f").ok());
    EXPECT_TRUE(s.List("d")->empty());
    EXPECT_TRUE(s.ListDirs("d")->empty());
    EXPECT_EQ(s.Open("d", "f").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(s.Fence("d", "f").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(s.Quarantine("d", "f").code(), StatusCode::kNotFound);
    EXPECT_NE(s.Append(*file, "ghi").outcome, AppendOutcome::kApplied);
    file = Must(s.Create("d", "f", "k"));
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->committed_length(), 0);
    MustAppend(s, *file, "de");
    file = Must(At(1).Fence("d", "f"));
    MustAppend(At(1), *file, "fgh");
    ExpectContent("d", "f", "defgh");
  }
  ASSERT_TRUE(s.Delete("d", "f").ok());
  EXPECT_TRUE(s.List("d")->empty());
  EXPECT_TRUE(s.Create("d", "g", "k").ok());
}

TEST_P(StoreConformance, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(At(0).Open("no", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(At(0).Fence("no", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(At(0).Delete("no", "f").code(), StatusCode::kNotFound);
  EXPECT_EQ(At(0).Identify("no", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(At(0).DeleteExactly("no", "f", "1").code(), StatusCode::kNotFound);
  EXPECT_EQ(At(0).Quarantine("no", "f").code(), StatusCode::kNotFound);
  EXPECT_TRUE(At(0).List("no")->empty());
  EXPECT_TRUE(At(0).ListDirs("no")->empty());
}

TEST_P(StoreConformance, ListingsAreSortedAndShowFilesOnly) {
  SyncStore s = At(0);
  for (const char* name : {"c", "a", "b.x", "B"}) {
    auto file = Must(s.Create("top/in", name, std::string("key-of-") + name));
    MustAppend(s, *file, name);
    Must(At(1).Fence("top/in", name));  // what a takeover leaves behind stays hidden
  }
  Must(s.Create("top/in/deep", "z", "z"));
  Must(s.Create("top/other", "y", "y"));
  EXPECT_EQ(*At(1).List("top/in"), (std::vector<std::string>{"B", "a", "b.x", "c"}));
  EXPECT_TRUE(At(1).List("top")->empty());
  EXPECT_EQ(*At(1).ListDirs("top"), (std::vector<std::string>{"in", "other"}));
  EXPECT_EQ(*At(1).ListDirs(""), (std::vector<std::string>{"top"}));
}

TEST_P(StoreConformance, BadNamesAreRefused) {
  SyncStore s = At(0);
  const std::string long_name(300, 'x');
  for (const std::string& bad :
       {std::string(""), std::string("a/b"), std::string(".hidden"), std::string("."),
        std::string(".."), std::string("/"), std::string("a\nb"), long_name}) {
    EXPECT_EQ(s.Create("d", bad, "k").status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(s.Create("d", "n", bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  for (const char* bad : {"/d", "d/", "d//e", "../d", "d/../e", "d/.e"}) {
    EXPECT_EQ(s.Create(bad, "n", "k").status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST_P(StoreConformance, LargeAppendsArriveWhole) {
  SyncStore s = At(0);
  auto file = Must(s.Create("d", "f", "k"));
  std::string all;
  for (size_t size : {size_t{5} << 20, size_t{1}, size_t{4096}, size_t{3} << 20}) {
    const std::string piece = Bytes(size, size);
    MustAppend(s, *file, piece);
    all += piece;
  }
  Result<std::string> got = At(1).ReadAll("d", "f");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(*got == all);
}

TEST_P(StoreConformance, ManyFilesAreWrittenSideBySide) {
  constexpr size_t kFiles = 100;
  SyncStore s = At(0);
  std::vector<std::unique_ptr<AppendFile>> files;
  for (size_t i = 0; i < kFiles; ++i) {
    files.push_back(Must(s.Create("d", "f" + std::to_string(i), std::to_string(i))));
    ASSERT_NE(files.back(), nullptr);
  }
  for (int round = 0; round < 3; ++round) {
    size_t applied = 0;
    for (size_t i = 0; i < kFiles; ++i) {
      files[i]->AppendAt(files[i]->committed_length(), Bytes(100, i),
                         scope_.Bind([&](AppendResult result) {
                           EXPECT_EQ(result.outcome, AppendOutcome::kApplied) << result.error;
                           ++applied;
                         }));
    }
    ASSERT_TRUE(world_->Turn([&] { return applied == kFiles; }));
  }
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string piece = Bytes(100, i);
    ASSERT_EQ(*At(1).ReadAll("d", "f" + std::to_string(i)), piece + piece + piece);
  }
}

TEST_P(StoreConformance, ManyReadsOfOneHandleAreAllAnswered) {
  auto file = Must(At(0).Create("d", "f", "k"));
  const std::string all = Bytes(20'000, 1);
  MustAppend(At(0), *file, all);
  auto reader = Must(At(1).Open("d", "f"));
  int answers = 0;
  for (int64_t i = 0; i < 200; ++i) {
    reader->Read(i * 100, 100, scope_.Bind([&, i](Result<std::string> piece) {
      ++answers;
      ASSERT_TRUE(piece.ok()) << piece.status();
      EXPECT_EQ(*piece, all.substr(static_cast<size_t>(i) * 100, piece->size()));
      EXPECT_FALSE(piece->empty());
    }));
    reader->Size(scope_.Bind([&](Result<FileSize> size) {
      ++answers;
      EXPECT_TRUE(size.ok());
    }));
  }
  EXPECT_EQ(answers, 0) << "a callback ran inside the call";
  EXPECT_TRUE(world_->Turn([&] { return answers == 400; }));
}

TEST_P(StoreConformance, ClosingAHandleAnswersWhatIsOutstanding) {
  auto file = Must(At(0).Create("d", "f", "k"));
  auto reader = Must(At(0).Open("d", "f"));
  int answers = 0;
  file->AppendAt(0, "abc", scope_.Bind([&](AppendResult result) {
    EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
    ++answers;
  }));
  reader->Size(scope_.Bind([&](Result<FileSize> size) {
    EXPECT_EQ(size.status().code(), StatusCode::kCancelled);
    ++answers;
  }));
  reader->Read(0, 10, scope_.Bind([&](Result<std::string> bytes) {
    EXPECT_EQ(bytes.status().code(), StatusCode::kCancelled);
    ++answers;
  }));
  file.reset();
  reader.reset();
  EXPECT_EQ(answers, 0);
  ASSERT_TRUE(world_->Turn([&] { return answers == 3; }));
  // The append is there whole or not at all, and a fence tells.
  file = Must(At(1).Fence("d", "f"));
  const int64_t length = file->committed_length();
  EXPECT_TRUE(length == 0 || length == 3) << length;
  ExpectContent("d", "f", std::string("abc").substr(0, static_cast<size_t>(length)));
}

TEST_P(StoreConformance, CallbacksMayDestroyTheirHandleOrAppendAgain) {
  auto file = Must(At(0).Create("d", "f", "k"));
  int appended = 0;
  std::function<void()> next = [&] {
    file->AppendAt(file->committed_length(), "x", scope_.Bind([&](AppendResult result) {
      ASSERT_EQ(result.outcome, AppendOutcome::kApplied) << result.error;
      if (++appended < 10) {
        next();
      } else {
        file.reset();
      }
    }));
  };
  next();
  ASSERT_TRUE(world_->Turn([&] { return appended == 10 && file == nullptr; }));
  ExpectContent("d", "f", "xxxxxxxxxx");
}

TEST_P(StoreConformance, TellsHowMuchRoomThereIsOrThatItDoesNotKnow) {
  const Result<StoreRoom> room = At(0).Room();
  if (!room.ok()) {
    EXPECT_EQ(room.status().code(), StatusCode::kUnimplemented) << room.status();
    return;
  }
  EXPECT_GT(room->total_bytes, 0);
  EXPECT_GE(room->free_bytes, 0);
  EXPECT_LE(room->free_bytes, room->total_bytes);
  EXPECT_NE(room->text, "");
}

TEST_P(StoreConformance, ANewProcessFindsWhatAKilledOneCommitted) {
  std::string all;
  for (uint64_t i = 0; i < 4; ++i) {
    auto file = i == 0 ? Must(At(0).Create("d", "f", "k")) : Must(At(0).Fence("d", "f"));
    ASSERT_NE(file, nullptr);
    const std::string piece = Bytes(5000, i);
    MustAppend(At(0), *file, piece);
    all += piece;
    file.reset();
    world_->Restart(0);
    ExpectContent("d", "f", all);
  }
}

TEST_P(StoreConformance, PowerLossKeepsWhatWasAcknowledgedAndShowsNoGarbage) {
  if (!world_->can_lose_power()) GTEST_SKIP() << GetParam().name << " cannot lose power in a test";
  std::string all;
  auto file = Must(At(0).Create("d", "f", "k"));
  for (uint64_t i = 0; i < 30; ++i) {
    const std::string acked = Bytes(1 + i * 211 % 3000, 2 * i);
    MustAppend(At(0), *file, acked);
    all += acked;
    // One more is under way at the cut.
    const std::string open = Bytes(1 + i * 173 % 9000, 2 * i + 1);
    bool answered = false;
    file->AppendAt(file->committed_length(), open,
                   scope_.Bind([&](AppendResult) { answered = true; }));
    file.reset();
    ASSERT_TRUE(world_->Turn([&] { return answered; }));
    world_->PowerLoss();
    Result<std::string> got = At(1).ReadAll("d", "f");
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(*got == all || *got == all + open)
        << "read " << got->size() << " bytes, acknowledged were " << all.size();
    file = Must(At(0).Fence("d", "f"));
    ASSERT_NE(file, nullptr);
    ASSERT_GE(file->committed_length(), static_cast<int64_t>(got->size())) << "a shown size fell";
    Result<std::string> fenced = At(1).ReadAll("d", "f");
    ASSERT_TRUE(fenced.ok()) << fenced.status();
    ASSERT_TRUE(*fenced == all || *fenced == all + open);
    ASSERT_EQ(fenced->substr(0, got->size()), *got);
    all = *fenced;
    ASSERT_EQ(file->committed_length(), static_cast<int64_t>(all.size()));
  }
}

TEST_P(StoreConformance, RandomWritersTakingOverFromEachOtherNeverDiffer) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Rng rng(seed);
    const std::string name = "f" + std::to_string(seed);
    std::string all;
    std::vector<std::unique_ptr<AppendFile>> handles(3);
    handles[0] = Must(At(0).Create("d", name, name));
    size_t owner = 0;
    auto reader = Must(At(3).Open("d", name));
    for (int step = 0; step < 60; ++step) {
      const size_t who = rng.Below(3);
      SyncStore s = At(static_cast<int>(who));
      if (rng.Chance(0.2)) {
        handles[who] = Must(s.Fence("d", name));
        ASSERT_NE(handles[who], nullptr);
        ASSERT_EQ(handles[who]->committed_length(), static_cast<int64_t>(all.size()));
        owner = who;
      } else if (handles[who] != nullptr) {
        const std::string piece = Bytes(rng.Below(4000), rng.Next());
        const AppendResult result = s.Append(*handles[who], piece);
        ASSERT_EQ(result.outcome, who == owner ? AppendOutcome::kApplied : AppendOutcome::kFenced)
            << "seed " << seed << " step " << step << " " << result.error;
        if (who == owner) all += piece;
      }
      if (rng.Chance(0.3)) {
        ExpectSizeBecomes(At(3), *reader, static_cast<int64_t>(all.size()));
        const auto from = static_cast<int64_t>(rng.Below(all.size() + 1));
        ASSERT_EQ(*At(3).ReadFully(*reader, from, 5000),
                  all.substr(static_cast<size_t>(from), 5000));
      }
    }
    ExpectContent("d", name, all);
  }
}

}  // namespace tailcast::storage
