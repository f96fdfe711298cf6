// Checks of the posix driver's steps on the file system in memory. Each gives "" or what went
// wrong, with what it takes to see it again.
//
//  * Crash: a script of creations, appends and takeovers is cut after every system call, and the
//    recovery from that again, with the unflushed sectors and names drawn from seeds.
//  * Takeover: a process stops before each of its system calls, another one takes the file over,
//    the first goes on.
//  * Races: several processes take turns at every system call and every access to the shared page,
//    in an order drawn from a seed, with power losses in between.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/posix_interleaver.h"
#include "tailcast/storage/posix_oracle.h"

namespace tailcast::storage::posix {

// ---------------------------------------------------------------------------------------------
// Crash.

// Creates, appends, takes over. Everything that succeeds is noted.
inline void RunScript(const Context& context, Oracle& oracle, Rng& rng, bool create) {
  std::unique_ptr<Appender> appender;
  if (create) {
    Result<std::unique_ptr<Appender>> created = CreateExclusive(context, kFolder, "f", "k");
    if (!created.ok()) return;
    appender = *std::move(created);
  }
  for (int takeover = 0; takeover < 3; ++takeover) {
    if (appender == nullptr) {
      const int64_t told = oracle.size_told();
      Result<std::unique_ptr<Appender>> opened = OpenFencing(context, kFolder, "f");
      if (!opened.ok()) return;
      appender = *std::move(opened);
      oracle.Sized(told, appender->committed_length());
    }
    for (int i = 0; i < 3; ++i) {
      const std::string piece = oracle.MakePiece(rng);
      const int64_t offset = appender->committed_length();
      const AppendResult result = appender->Append(piece);
      oracle.Appended(offset, piece, result);
      if (result.outcome != AppendOutcome::kApplied) return;
    }
    Result<std::string> content = ReadWhole(context, "f");
    if (content.ok()) oracle.Read(0, *content);
    appender.reset();
  }
}

// Runs the script until `cut` system calls were made, then loses power; then a second script until
// `second_cut`, and loses power again. Returns the number of calls of the script that was cut last.
inline int CrashOnce(int cut, int second_cut, uint64_t seed, Oracle& oracle) {
  MemoryFiles files(seed);
  Rng rng(seed);
  int calls = 0;
  int limit = cut;
  const FileOpsHook hook = [&](std::string_view, const std::string&) {
    return ++calls > limit ? UnavailableError("the power is off") : OkStatus();
  };
  {
    Process p(files, hook);
    RunScript(p.context, oracle, rng, true);
  }
  files.PowerLoss(rng, {.garble_rewritten_metadata = seed % 2 == 0, .same_boot = seed % 5 == 0});
  if (second_cut >= 0) {
    calls = 0;
    limit = second_cut;
    Process p(files, hook);
    RunScript(p.context, oracle, rng, true);  // AlreadyExists or a creation that was lost
    RunScript(p.context, oracle, rng, false);
    files.PowerLoss(rng, {.garble_rewritten_metadata = seed % 3 == 0, .same_boot = seed % 7 == 0});
  }
  // Was the creation reported, the file must be there.
  Process p(files);
  const bool must_exist = oracle.size_told() > 0;
  Result<std::unique_ptr<Appender>> created = CreateExclusive(p.context, kFolder, "f", "k");
  if (!created.ok() && created.status().code() != StatusCode::kAlreadyExists) {
    oracle.Fail("cannot be created or found: " + created.status().ToString());
  }
  if (created.ok() && must_exist) oracle.Fail("a file with acknowledged bytes is gone");
  if (created.ok()) created->reset();
  CheckAtRest(files, oracle);
  return calls;
}

inline std::string CrashEverywhere(uint64_t seeds, uint64_t second_seeds) {
  Oracle whole;
  const int calls = CrashOnce(1'000'000, -1, 1, whole);
  if (!whole.error().empty()) return "without a crash: " + whole.error();
  for (int cut = 0; cut <= calls; ++cut) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      Oracle oracle;
      CrashOnce(cut, -1, seed, oracle);
      if (!oracle.error().empty()) {
        return "cut after call " + std::to_string(cut) + ", seed " + std::to_string(seed) + ": " +
               oracle.error();
      }
    }
    for (uint64_t seed = 1; seed <= second_seeds; ++seed) {
      for (int second = 0; second < 60; second += 1 + static_cast<int>(seed % 3)) {
        Oracle oracle;
        CrashOnce(cut, second, seed * 1000 + static_cast<uint64_t>(second), oracle);
        if (!oracle.error().empty()) {
          return "cut after calls " + std::to_string(cut) + " and " + std::to_string(second) +
                 ", seed " + std::to_string(seed) + ": " + oracle.error();
        }
      }
    }
  }
  return "";
}

// ---------------------------------------------------------------------------------------------
// Takeover: B runs whole between two calls of A.

// What A does. `stop_before`: before which of its calls B runs; beyond the last: after it.
enum class Victim { kAppend, kSecondAppend, kTakeover, kCreate };

inline std::string TakeoverOnce(Victim victim, int stop_before, uint64_t seed, bool& reached) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  int calls = -1;  // counting starts when armed
  std::function<void()> other;
  reached = false;
  Process a(files, [&](std::string_view, const std::string&) {
    if (calls >= 0 && calls++ == stop_before) {
      calls = -1;
      reached = true;
      other();
    }
    return OkStatus();
  });
  Process b(files);

  std::unique_ptr<Appender> a_file;
  std::unique_ptr<Appender> b_file;
  const auto append = [&](Appender& file) {
    const std::string piece = oracle.MakePiece(rng);
    const int64_t offset = file.committed_length();
    const AppendResult result = file.Append(piece);
    oracle.Appended(offset, piece, result);
    return result.outcome;
  };
  bool b_opened = false;
  other = [&] {
    Result<std::unique_ptr<Appender>> file = OpenFencing(b.context, kFolder, "f");
    if (!file.ok()) {
      // Only while A still creates it.
      if (victim != Victim::kCreate) oracle.Fail("B cannot open: " + file.status().ToString());
      Result<std::unique_ptr<Appender>> created = CreateExclusive(b.context, kFolder, "g", "k");
      if (created.ok()) {
        Result<std::string> content = ReadWhole(b.context, "g");
        if (!content.ok()) oracle.Fail("a created file is not readable");
        return;
      }
      if (created.status().code() != StatusCode::kAlreadyExists ||
          WinnerOf(created.status()) != "f") {
        return oracle.Fail("B cannot help: " + created.status().ToString());
      }
      file = OpenFencing(b.context, kFolder, "f");
      if (!file.ok()) return oracle.Fail("a claimed file is not there after helping");
    }
    b_file = *std::move(file);
    b_opened = true;
    if (append(*b_file) != AppendOutcome::kApplied) oracle.Fail("the taker cannot append");
  };

  if (victim != Victim::kCreate) {
    Result<std::unique_ptr<Appender>> created = CreateExclusive(a.context, kFolder, "f", "k");
    if (!created.ok()) return "cannot create";
    a_file = *std::move(created);
    append(*a_file);
    if (victim == Victim::kSecondAppend) append(*a_file);
  }
  calls = 0;
  AppendOutcome outcome = AppendOutcome::kUnknown;
  switch (victim) {
    case Victim::kAppend:
    case Victim::kSecondAppend:
      outcome = append(*a_file);
      if (reached && outcome == AppendOutcome::kApplied && b_opened &&
          b_file->committed_length() == 0) {
        oracle.Fail("applied behind a taker's back");
      }
      if (outcome != AppendOutcome::kApplied) a_file.reset();
      break;
    case Victim::kTakeover: {
      Result<std::unique_ptr<Appender>> taken = OpenFencing(a.context, kFolder, "f");
      a_file = taken.ok() ? std::move(*taken) : nullptr;
      if (!taken.ok() && taken.status().code() != StatusCode::kAborted) {
        oracle.Fail("A cannot take over: " + taken.status().ToString());
      }
      break;
    }
    case Victim::kCreate: {
      Result<std::unique_ptr<Appender>> created = CreateExclusive(a.context, kFolder, "f", "k");
      if (created.ok()) {
        a_file = *std::move(created);
      } else if (created.status().code() != StatusCode::kAlreadyExists) {
        oracle.Fail("A cannot create: " + created.status().ToString());
      }
      break;
    }
  }
  calls = -1;
  if (victim == Victim::kCreate) {
    // Of the key there is one file.
    Result<std::vector<std::string>> names = List(b.context, kFolder);
    if (!names.ok() || names->size() != 1) oracle.Fail("the key has not exactly one file");
    if (names.ok() && !names->empty() && names->front() == "g") return oracle.error();
  }
  // A goes on as if nothing had happened, in turns with B.
  for (int i = 0; i < 3; ++i) {
    if (a_file != nullptr) {
      const AppendOutcome a_outcome = append(*a_file);
      if (a_outcome != AppendOutcome::kApplied) a_file.reset();
    }
    if (b_file != nullptr && append(*b_file) != AppendOutcome::kApplied) b_file.reset();
  }
  if (a_file != nullptr && b_file != nullptr) oracle.Fail("two writers at once");
  if (reached && a_file == nullptr && b_file == nullptr) oracle.Fail("no writer at all");
  Result<std::string> content = ReadWhole(b.context, "f");
  if (!content.ok()) return "not readable: " + content.status().ToString();
  oracle.Final(*content);
  oracle.Read(0, *content);
  if (!oracle.error().empty()) return oracle.error();
  files.PowerLoss(rng, {.garble_rewritten_metadata = seed % 2 == 0, .same_boot = seed % 5 == 0});
  CheckAtRest(files, oracle);
  return oracle.error();
}

inline std::string TakeoverEverywhere(uint64_t seeds) {
  for (const Victim victim :
       {Victim::kAppend, Victim::kSecondAppend, Victim::kTakeover, Victim::kCreate}) {
    bool reached = true;
    for (int stop = 0; reached; ++stop) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        const std::string error = TakeoverOnce(victim, stop, seed, reached);
        if (!error.empty()) {
          return "victim " + std::to_string(static_cast<int>(victim)) + " stopped before call " +
                 std::to_string(stop) + ", seed " + std::to_string(seed) + ": " + error;
        }
      }
    }
    EXPECT_FALSE(reached);
  }
  return "";
}

// ---------------------------------------------------------------------------------------------
// Races.

// Two writers that take over from each other, and a reader, over up to three boots.
inline std::string RaceOnce(uint64_t seed) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  {
    Process p(files);
    Result<std::unique_ptr<Appender>> created = CreateExclusive(p.context, kFolder, "f", "k");
    if (!created.ok()) return "cannot create: " + created.status().ToString();
    if (rng.Chance(0.7)) {
      const std::string piece = oracle.MakePiece(rng);
      oracle.Appended(0, piece, (*created)->Append(piece));
    }
  }
  const uint64_t boots = 1 + rng.Below(3);
  for (uint64_t boot = 0; boot < boots; ++boot) {
    if (boot > 0) {
      files.PowerLoss(rng, {rng.Chance(0.3)});
      // A look before anybody has opened the file for append.
      if (rng.Chance(0.5)) {
        Process p(files);
        Result<std::string> content = ReadWhole(p.context, "f");
        if (content.ok()) {
          oracle.Read(0, *content);
        } else {
          oracle.Fail("not readable: " + content.status().ToString());
        }
      }
    }
    std::vector<Interleaver::Body> bodies;
    const uint64_t writers = 1 + rng.Below(3);
    for (uint64_t w = 0; w < writers; ++w) {
      const uint64_t writer_seed = rng.Next();
      bodies.push_back([&files, &oracle, writer_seed](const FileOpsHook& hook) {
        Rng own(writer_seed);
        Process p(files, hook);
        const uint64_t takeovers = 1 + own.Below(2);
        for (uint64_t t = 0; t < takeovers; ++t) {
          const int64_t told = oracle.size_told();
          Result<std::unique_ptr<Appender>> opened = OpenFencing(p.context, kFolder, "f");
          if (!opened.ok()) continue;
          oracle.Sized(told, (*opened)->committed_length());
          const uint64_t appends = own.Below(4);
          for (uint64_t i = 0; i < appends; ++i) {
            const std::string piece = oracle.MakePiece(own);
            const int64_t offset = (*opened)->committed_length();
            const AppendResult result = (*opened)->Append(piece);
            oracle.Appended(offset, piece, result);
            if (result.outcome != AppendOutcome::kApplied) break;
          }
        }
      });
    }
    const uint64_t reader_seed = rng.Next();
    bodies.push_back([&files, &oracle, reader_seed](const FileOpsHook& hook) {
      Rng own(reader_seed);
      Process p(files, hook);
      Result<std::unique_ptr<Reader>> reader = OpenRead(p.context, kFolder, "f");
      if (!reader.ok()) return;
      const uint64_t looks = 1 + own.Below(5);
      for (uint64_t i = 0; i < looks; ++i) {
        const int64_t told = oracle.size_told();
        Result<FileSize> size = (*reader)->Size();
        if (!size.ok()) return;
        oracle.Sized(told, size->committed_length);
        const auto from = static_cast<int64_t>(own.Below(2)) * told / 2;
        Result<std::string> bytes = (*reader)->Read(from, 100'000);
        if (bytes.ok()) {
          oracle.Read(from, *bytes);
        } else if (bytes.status().code() == StatusCode::kDataLoss) {
          oracle.Fail(bytes.status().ToString());
        }
      }
    });
    Interleaver interleaver;
    const bool dies = rng.Chance(0.7);
    interleaver.Run(bodies, rng, dies ? static_cast<int64_t>(rng.Below(150)) : 1'000'000);
    if (!oracle.error().empty()) return oracle.error();
  }
  if (rng.Chance(0.6)) files.PowerLoss(rng, {rng.Chance(0.3)});
  CheckAtRest(files, oracle);
  if (!oracle.error().empty()) return oracle.error();
  files.PowerLoss(rng, {rng.Chance(0.3)});
  CheckAtRest(files, oracle);
  return oracle.error();
}

// Two openers at once after a power loss: the race that the second look at the boot tag is for.
inline std::string RecoveryRaceOnce(uint64_t seed) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  {
    Process p(files);
    Result<std::unique_ptr<Appender>> created = CreateExclusive(p.context, kFolder, "f", "k");
    if (!created.ok()) return "cannot create: " + created.status().ToString();
    const std::string piece = oracle.MakePiece(rng);
    oracle.Appended(0, piece, (*created)->Append(piece));
  }
  files.PowerLoss(rng, {});
  std::vector<Interleaver::Body> bodies;
  bodies.reserve(2);
  for (int w = 0; w < 2; ++w) {
    bodies.push_back([&, own_seed = rng.Next()](const FileOpsHook& hook) {
      Rng own(own_seed);
      Process p(files, hook);
      const int64_t told = oracle.size_told();
      Result<std::unique_ptr<Appender>> opened = OpenFencing(p.context, kFolder, "f");
      if (!opened.ok()) return;
      oracle.Sized(told, (*opened)->committed_length());
      const std::string piece = oracle.MakePiece(own);
      const int64_t offset = (*opened)->committed_length();
      oracle.Appended(offset, piece, (*opened)->Append(piece));
    });
  }
  Interleaver interleaver;
  interleaver.Run(bodies, rng,
                  rng.Chance(0.5) ? static_cast<int64_t>(20 + rng.Below(60)) : 1'000'000);
  CheckAtRest(files, oracle);
  files.PowerLoss(rng, {});
  CheckAtRest(files, oracle);
  return oracle.error();
}

// Creators of one key, each with its own name, and deleters, over boots.
inline std::string CreateRaceOnce(uint64_t seed) {
  MemoryFiles files(seed);
  Rng rng(seed);
  std::string error;
  const auto fail = [&](const std::string& what) {
    if (error.empty()) error = what;
  };
  const bool with_deletes = rng.Chance(0.5);
  std::set<std::string> winners;  // told to anybody
  std::set<std::string> deleted;  // acknowledged
  std::set<std::string> delete_tried;
  std::map<std::string, std::string> content;  // applied to a name, if anything
  int next_name = 0;
  const uint64_t boots = 1 + rng.Below(3);
  for (uint64_t boot = 0; boot < boots; ++boot) {
    std::vector<Interleaver::Body> bodies;
    const uint64_t creators = 1 + rng.Below(3);
    for (uint64_t i = 0; i < creators; ++i) {
      const std::string name = "f" + std::to_string(next_name++);
      bodies.push_back([&, name](const FileOpsHook& hook) {
        Process p(files, hook);
        Result<std::unique_ptr<Appender>> file = CreateExclusive(p.context, kFolder, name, "k");
        if (file.ok()) {
          winners.insert(name);
          if ((*file)->Append("from " + name).outcome == AppendOutcome::kApplied) {
            content[name] = "from " + name;
          }
        } else if (file.status().code() == StatusCode::kAlreadyExists) {
          const std::string winner = WinnerOf(file.status());
          winners.insert(winner);
          if (!with_deletes && !OpenRead(p.context, kFolder, winner).ok() &&
              p.context.ops->AttachTag() != 0 && hook("", "").ok()) {
            fail("the winner's file is not there when it is reported");
          }
        } else if (file.status().code() == StatusCode::kDataLoss ||
                   file.status().code() == StatusCode::kFailedPrecondition) {
          fail(file.status().ToString());
        }
      });
    }
    if (with_deletes && rng.Chance(0.8)) {
      bodies.push_back([&](const FileOpsHook& hook) {
        Process p(files, hook);
        for (int i = 0; i < 3; ++i) {
          Result<std::vector<std::string>> names = List(p.context, kFolder);
          if (!names.ok()) return;
          for (const std::string& name : *names) {
            delete_tried.insert(name);
            if (Delete(p.context, kFolder, name).ok()) deleted.insert(name);
          }
        }
      });
    }
    Interleaver interleaver;
    interleaver.Run(bodies, rng, rng.Chance(0.7) ? static_cast<int64_t>(rng.Below(80)) : 1'000'000);
    if (rng.Chance(0.7)) files.PowerLoss(rng, {rng.Chance(0.3)});
  }
  // At rest: somebody comes by with the key, which completes what was left half done.
  Process p(files);
  Result<std::unique_ptr<Appender>> last = CreateExclusive(p.context, kFolder, "last", "k");
  std::string owner = "last";
  if (!last.ok()) {
    if (last.status().code() != StatusCode::kAlreadyExists) {
      return "the key is stuck: " + last.status().ToString();
    }
    owner = WinnerOf(last.status());
  }
  std::vector<std::string> open;
  const std::vector<std::string> names = List(p.context, kFolder).value();
  for (const std::string& name : names) {
    // A name whose tombstone is set is no file.
    if (OpenFencing(p.context, kFolder, name).ok()) open.push_back(name);
  }
  if (open != std::vector<std::string>{owner}) {
    std::string text = "the key has the files";
    for (const std::string& name : open) text += " " + name;
    return text + ", its owner is " + owner;
  }
  if (deleted.contains(owner)) fail("a deleted file came back");
  for (const std::string& name : winners) {
    if (name != owner && !delete_tried.contains(name)) fail("a winner lost its key: " + name);
  }
  if (content.contains(owner) && !delete_tried.contains(owner)) {
    Result<std::string> bytes = ReadWhole(p.context, owner);
    if (!bytes.ok() || *bytes != content[owner]) fail("a winner lost its bytes");
  }
  // Deleting all leaves nothing behind.
  if (Status status = Delete(p.context, kFolder, owner); !status.ok()) fail(status.ToString());
  return error;
}

inline std::string Sweep(std::string (*run)(uint64_t), uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string error = run(seed);
    if (!error.empty()) return "seed " + std::to_string(seed) + ": " + error;
  }
  return "";
}

}  // namespace tailcast::storage::posix
