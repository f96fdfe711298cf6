// The steps of the posix driver, one by one, on the file system in memory.
//
//  * Crash: a script of creations, appends and takeovers is cut after every system call, and the
//    recovery from that again, with the unflushed sectors and names drawn from seeds.
//  * Takeover: a process stops before each of its system calls, another one takes the file over,
//    the first goes on.
//  * Interleaving: several processes take turns at every system call and every access to the shared
//    page, in an order drawn from a seed, with power losses in between. A model checker of the real
//    code: tla/Fencing.tla has the same steps.
//
// Each planted bug of posix::PlantedBug must be caught by one of them; see CaughtBy at the end.
#include "tailcast/storage/posix_file.h"

#include <gtest/gtest.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/storage/memory_files.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tailcast::storage::posix {
namespace {

constexpr char kFolder[] = "a/d";

// A process: its own view, its own context, and an optional hook before each call.
struct Process {
  Process(MemoryFiles& files, PlantedBug bug, FileOpsHook hook = nullptr)
      : plain(files.OpenOps()), hooked(hook ? HookFileOps(plain.get(), std::move(hook)) : nullptr) {
    context.ops = hooked ? hooked.get() : plain.get();
    context.bug = bug;
  }
  std::unique_ptr<FileOps> plain;
  std::unique_ptr<FileOps> hooked;
  Context context;
};

// What was promised to somebody, and whether the file keeps it.
class Oracle {
 public:
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  const std::string& error() const { return error_; }

  // A piece that identifies itself: no two are equal, none contains another's mark.
  std::string MakePiece(Rng& rng) {
    std::string piece = "<" + std::to_string(next_piece_++) + ":";
    const uint64_t size = rng.Chance(0.3) ? rng.Below(1500) : rng.Below(40);
    for (uint64_t i = 0; i < size; ++i) piece.push_back(static_cast<char>('a' + rng.Below(26)));
    return piece + ">";
  }
  void Appended(int64_t offset, const std::string& piece, const AppendResult& result) {
    switch (result.outcome) {
      case AppendOutcome::kApplied:
        applied_[offset] = piece;
        size_told_ = std::max(size_told_, result.committed_length);
        if (result.committed_length != offset + static_cast<int64_t>(piece.size())) {
          Fail("an applied append reports another length");
        }
        break;
      case AppendOutcome::kFenced:
        refused_.push_back(piece);
        break;
      case AppendOutcome::kWrongOffset:
        Fail("wrong offset");
        break;
      case AppendOutcome::kUnknown:
        break;
    }
  }
  int64_t size_told() const { return size_told_; }
  // A size told by a call that began when `told_before` was known.
  void Sized(int64_t told_before, int64_t size) {
    if (size < told_before) {
      Fail("a size fell from " + std::to_string(told_before) + " to " + std::to_string(size));
    }
    size_told_ = std::max(size_told_, size);
  }
  // Bytes that a reader got.
  void Read(int64_t offset, const std::string& bytes) {
    const auto at = static_cast<size_t>(offset);
    if (at > shown_.size()) return;
    const size_t common = std::min(shown_.size() - at, bytes.size());
    if (shown_.compare(at, common, bytes, 0, common) != 0) Fail("bytes that were shown changed");
    if (at + bytes.size() > shown_.size()) shown_.append(bytes, common, std::string::npos);
    size_told_ = std::max(size_told_, offset + static_cast<int64_t>(bytes.size()));
  }
  // The whole file, read at rest.
  void Final(const std::string& content) {
    Sized(size_told_, static_cast<int64_t>(content.size()));
    if (content.substr(0, shown_.size()) != shown_) Fail("bytes that were shown changed");
    for (const auto& [offset, piece] : applied_) {
      const auto at = static_cast<size_t>(offset);
      if (at > content.size() || content.compare(at, piece.size(), piece) != 0) {
        Fail("an applied append is not where it was said to be");
      }
    }
    for (const std::string& piece : refused_) {
      if (content.find(piece) != std::string::npos) Fail("a refused append is there");
    }
    // Nothing but whole pieces.
    std::set<std::string> marks;
    for (size_t i = 0; i < content.size();) {
      const size_t colon = content.find(':', i);
      const size_t end = content.find('>', i);
      if (content[i] != '<' || colon == std::string::npos || end == std::string::npos ||
          colon > end) {
        return Fail("garbage or half an append at " + std::to_string(i));
      }
      for (size_t k = i + 1; k < end; ++k) {
        const char ch = content[k];
        if (!(k < colon ? ch >= '0' && ch <= '9' : k == colon || (ch >= 'a' && ch <= 'z'))) {
          return Fail("garbage at " + std::to_string(k));
        }
      }
      if (!marks.insert(content.substr(i, colon - i)).second) Fail("an append is there twice");
      i = end + 1;
    }
  }

 private:
  std::string error_;
  int next_piece_ = 0;
  std::map<int64_t, std::string> applied_;
  std::vector<std::string> refused_;
  std::string shown_;
  int64_t size_told_ = 0;
};

Result<std::string> ReadWhole(const Context& context, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, OpenRead(context, kFolder, name));
  TAILCAST_ASSIGN_OR_RETURN(const FileSize size, reader->Size());
  std::string all;
  while (static_cast<int64_t>(all.size()) < size.committed_length) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string piece,
                              reader->Read(static_cast<int64_t>(all.size()), 1 << 20));
    if (piece.empty()) return DataLossError("a size was told that cannot be read");
    all += piece;
  }
  return all;
}

// Looks at the file twice, as readers do before and after somebody opens it for append.
void CheckAtRest(MemoryFiles& files, PlantedBug bug, Oracle& oracle) {
  Process p(files, bug);
  Result<std::string> content = ReadWhole(p.context, "f");
  if (!content.ok()) return oracle.Fail("not readable: " + content.status().ToString());
  oracle.Final(*content);
  oracle.Read(0, *content);
  Result<std::unique_ptr<Appender>> appender = OpenFencing(p.context, kFolder, "f");
  if (!appender.ok()) return oracle.Fail("not openable: " + appender.status().ToString());
  oracle.Sized(oracle.size_told(), (*appender)->committed_length());
  content = ReadWhole(p.context, "f");
  if (!content.ok()) return oracle.Fail("not readable: " + content.status().ToString());
  oracle.Final(*content);
}

// ---------------------------------------------------------------------------------------------
// Crash.

// Creates, appends, takes over. Everything that succeeds is noted.
void RunScript(const Context& context, Oracle& oracle, Rng& rng, bool create) {
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
int CrashOnce(int cut, int second_cut, uint64_t seed, PlantedBug bug, Oracle& oracle) {
  MemoryFiles files(seed);
  Rng rng(seed);
  int calls = 0;
  int limit = cut;
  const FileOpsHook hook = [&](std::string_view, const std::string&) {
    return ++calls > limit ? UnavailableError("the power is off") : OkStatus();
  };
  {
    Process p(files, bug, hook);
    RunScript(p.context, oracle, rng, true);
  }
  files.PowerLoss(rng, {seed % 2 == 0});
  if (second_cut >= 0) {
    calls = 0;
    limit = second_cut;
    Process p(files, bug, hook);
    RunScript(p.context, oracle, rng, true);  // AlreadyExists or a creation that was lost
    RunScript(p.context, oracle, rng, false);
    files.PowerLoss(rng, {seed % 3 == 0});
  }
  // Was the creation reported, the file must be there.
  Process p(files, bug);
  const bool must_exist = oracle.size_told() > 0;
  Result<std::unique_ptr<Appender>> created = CreateExclusive(p.context, kFolder, "f", "k");
  if (!created.ok() && created.status().code() != StatusCode::kAlreadyExists) {
    oracle.Fail("cannot be created or found: " + created.status().ToString());
  }
  if (created.ok() && must_exist) oracle.Fail("a file with acknowledged bytes is gone");
  if (created.ok()) created->reset();
  CheckAtRest(files, bug, oracle);
  return calls;
}

std::string CrashEverywhere(PlantedBug bug, uint64_t seeds, uint64_t second_seeds) {
  Oracle whole;
  const int calls = CrashOnce(1'000'000, -1, 1, bug, whole);
  if (!whole.error().empty()) return "without a crash: " + whole.error();
  for (int cut = 0; cut <= calls; ++cut) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      Oracle oracle;
      CrashOnce(cut, -1, seed, bug, oracle);
      if (!oracle.error().empty()) {
        return "cut after call " + std::to_string(cut) + ", seed " + std::to_string(seed) + ": " +
               oracle.error();
      }
    }
    for (uint64_t seed = 1; seed <= second_seeds; ++seed) {
      for (int second = 0; second < 60; second += 1 + static_cast<int>(seed % 3)) {
        Oracle oracle;
        CrashOnce(cut, second, seed * 1000 + static_cast<uint64_t>(second), bug, oracle);
        if (!oracle.error().empty()) {
          return "cut after calls " + std::to_string(cut) + " and " + std::to_string(second) +
                 ", seed " + std::to_string(seed) + ": " + oracle.error();
        }
      }
    }
  }
  return "";
}

TEST(PosixCrash, AcknowledgedBytesSurviveACutAfterEveryCall) {
  EXPECT_EQ(CrashEverywhere(PlantedBug::kNone, 20, 0), "");
}
TEST(PosixCrash, AcknowledgedBytesSurviveASecondCutInTheRecovery) {
  EXPECT_EQ(CrashEverywhere(PlantedBug::kNone, 0, 2), "");
}

// ---------------------------------------------------------------------------------------------
// Takeover: B runs whole between two calls of A.

// What A does. `stop_before`: before which of its calls B runs; beyond the last: after it.
enum class Victim { kAppend, kSecondAppend, kTakeover, kCreate };

std::string TakeoverOnce(Victim victim, int stop_before, uint64_t seed, PlantedBug bug,
                         bool& reached) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  int calls = -1;  // counting starts when armed
  std::function<void()> other;
  reached = false;
  Process a(files, bug, [&](std::string_view, const std::string&) {
    if (calls >= 0 && calls++ == stop_before) {
      calls = -1;
      reached = true;
      other();
    }
    return OkStatus();
  });
  Process b(files, bug);

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
  files.PowerLoss(rng, {seed % 2 == 0});
  CheckAtRest(files, bug, oracle);
  return oracle.error();
}

std::string TakeoverEverywhere(PlantedBug bug, uint64_t seeds) {
  for (const Victim victim :
       {Victim::kAppend, Victim::kSecondAppend, Victim::kTakeover, Victim::kCreate}) {
    bool reached = true;
    for (int stop = 0; reached; ++stop) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        const std::string error = TakeoverOnce(victim, stop, seed, bug, reached);
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

TEST(PosixTakeover, AWriterStoppedBeforeAnyCallAndWokenAfterATakeoverHarmsNothing) {
  EXPECT_EQ(TakeoverEverywhere(PlantedBug::kNone, 30), "");
}

// ---------------------------------------------------------------------------------------------
// Interleaving.

// Processes of which one moves at a time, from one call to its next; who is drawn from a seed. They
// are coroutines on stacks of their own (ucontext), all on the test's thread: a switch costs less
// than a microsecond and the operating system has no part in the order.
class Interleaver {
 public:
  // The body of a process. All its calls go through the hook that it is given.
  using Body = std::function<void(const FileOpsHook& hook)>;

  // Runs the bodies until all have ended or `calls_max` calls were made; then each further call of
  // anybody fails, as for a process that is dead.
  void Run(const std::vector<Body>& bodies, Rng& rng, int64_t calls_max) {
    rng_ = &rng;
    calls_left_ = calls_max;
    // Swarm: some seeds let one process run for long, some switch at each call.
    stay_ = rng.Chance(0.5) ? rng.Unit() : 0;
    fibers_.clear();
    for (const Body& body : bodies) fibers_.push_back(MakeFiber(body, fibers_.size()));
#if defined(__SANITIZE_THREAD__)
    main_.tsan = __tsan_get_current_fiber();
#endif
    running_ = this;
    Switch(main_, Next());
    running_ = nullptr;
#if defined(__SANITIZE_THREAD__)
    for (const auto& fiber : fibers_) __tsan_destroy_fiber(fiber->tsan);
#endif
  }

 private:
  static constexpr size_t kStackBytes = 512 << 10;
  struct Fiber {
    ucontext_t context;
    char* stack = nullptr;
    const Body* body = nullptr;
    bool ended = false;
    // For the sanitizers, which want to know of switches.
    const void* stack_bottom = nullptr;
    size_t stack_size = 0;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
  };

  static std::unique_ptr<Fiber> MakeFiber(const Body& body, size_t number) {
    auto fiber = std::make_unique<Fiber>();
    fiber->body = &body;
    // Stacks are kept: making them anew would be most of the time.
    static std::vector<std::unique_ptr<char[]>> stacks;
    if (number == stacks.size()) {
      stacks.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
    }
    fiber->stack = stacks[number].get();
    TAILCAST_CHECK(getcontext(&fiber->context) == 0, "getcontext");
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, &Interleaver::Entry, 0);
#if defined(__SANITIZE_THREAD__)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return fiber;
  }

  static void Entry() {
    Interleaver& self = *running_;
    Fiber& fiber = *self.current_;
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (self.main_.stack_bottom == nullptr) {  // only the test's own stack comes in unknown
      self.main_.stack_bottom = bottom;
      self.main_.stack_size = size;
    }
#endif
    const FileOpsHook hook = [&](std::string_view, const std::string&) {
      if (!self.rng_->Chance(self.stay_)) self.Switch(fiber, self.Next());
      return self.calls_left_-- > 0 ? OkStatus() : UnavailableError("the process is dead");
    };
    (*fiber.body)(hook);
    fiber.ended = true;
    self.Switch(fiber, self.Next());
    TAILCAST_CHECK(false, "an ended process was woken");
  }

  // One of those that have not ended, or the test.
  Fiber& Next() {
    std::vector<Fiber*> waiting;
    for (const auto& fiber : fibers_) {
      if (!fiber->ended) waiting.push_back(fiber.get());
    }
    return waiting.empty() ? main_ : *waiting[rng_->Below(waiting.size())];
  }

  void Switch(Fiber& from, Fiber& to) {
    if (&from == &to) return;
    current_ = &to;
#if defined(__SANITIZE_ADDRESS__)
    const bool to_main = &to == &main_;
    __sanitizer_start_switch_fiber(from.ended ? nullptr : &from.fake_stack,
                                   to_main ? main_.stack_bottom : to.stack,
                                   to_main ? main_.stack_size : kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
    TAILCAST_CHECK(swapcontext(&from.context, &to.context) == 0, "swapcontext");
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
  }

  static inline Interleaver* running_ = nullptr;
  Rng* rng_ = nullptr;
  int64_t calls_left_ = 0;
  double stay_ = 0;
  Fiber main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

// Two writers that take over from each other, and a reader, over up to three boots.
std::string RaceOnce(uint64_t seed, PlantedBug bug) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  {
    Process p(files, bug);
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
        Process p(files, bug);
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
      bodies.push_back([&files, &oracle, writer_seed, bug](const FileOpsHook& hook) {
        Rng own(writer_seed);
        Process p(files, bug, hook);
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
    bodies.push_back([&files, &oracle, reader_seed, bug](const FileOpsHook& hook) {
      Rng own(reader_seed);
      Process p(files, bug, hook);
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
  CheckAtRest(files, bug, oracle);
  if (!oracle.error().empty()) return oracle.error();
  files.PowerLoss(rng, {rng.Chance(0.3)});
  CheckAtRest(files, bug, oracle);
  return oracle.error();
}

// Two openers at once after a power loss: the race that the second look at the boot tag is for.
std::string RecoveryRaceOnce(uint64_t seed, PlantedBug bug) {
  MemoryFiles files(seed);
  Rng rng(seed);
  Oracle oracle;
  {
    Process p(files, bug);
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
      Process p(files, bug, hook);
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
  CheckAtRest(files, bug, oracle);
  files.PowerLoss(rng, {});
  CheckAtRest(files, bug, oracle);
  return oracle.error();
}

// Creators of one key, each with its own name, and deleters, over boots.
std::string CreateRaceOnce(uint64_t seed, PlantedBug bug) {
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
        Process p(files, bug, hook);
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
              p.context.ops->BootTag() != 0 && hook("", "").ok()) {
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
        Process p(files, bug, hook);
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
  Process p(files, bug);
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
      files.PowerLoss(rng, {});
      if (word() != before && word() != Pack({1, 0})) return "";
      logger("power")->Write("PowerLoss", {});
    }
    std::vector<Interleaver::Body> bodies;
    if (boot == 0) {
      // Without a hook: the file is there when the others begin.
      auto p = std::make_shared<Process>(files, PlantedBug::kNone);
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
            Process p(files, PlantedBug::kNone, coarse(hook));
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
      Process p(files, PlantedBug::kNone, coarse(hook));
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

std::string Sweep(std::string (*run)(uint64_t, PlantedBug), uint64_t seeds, PlantedBug bug) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string error = run(seed, bug);
    if (!error.empty()) return "seed " + std::to_string(seed) + ": " + error;
  }
  return "";
}

TEST(PosixRace, WritersAndReadersInterleavedAtEveryCallHarmNothing) {
  EXPECT_EQ(Sweep(RaceOnce, 1500, PlantedBug::kNone), "");
}
TEST(PosixRace, OpenersAtOnceAfterAPowerLossAgree) {
  EXPECT_EQ(Sweep(RecoveryRaceOnce, 2000, PlantedBug::kNone), "");
}
TEST(PosixRace, CreatorsAndDeletersInterleavedAtEveryCallNeverForkAKey) {
  EXPECT_EQ(Sweep(CreateRaceOnce, 1500, PlantedBug::kNone), "");
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

TEST(PosixFile, ADeletedFileLeavesNoInodeBehind) {
  MemoryFiles files(1);
  Process p(files, PlantedBug::kNone);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
    for (int k = 0; k < 3; ++k) ASSERT_TRUE(OpenFencing(p.context, kFolder, "f").ok());
    EXPECT_EQ(files.inodes(), 4u);
    ASSERT_TRUE(Delete(p.context, kFolder, "f").ok());
    EXPECT_EQ(files.inodes(), 0u);
  }
}

TEST(PosixFile, ANameThatAnotherKeyHasIsRefusedAndLeavesNothing) {
  MemoryFiles files(1);
  Process p(files, PlantedBug::kNone);
  ASSERT_TRUE(CreateExclusive(p.context, kFolder, "f", "k").ok());
  Result<std::unique_ptr<Appender>> other = CreateExclusive(p.context, kFolder, "f", "other");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files.inodes(), 1u);
  EXPECT_TRUE(CreateExclusive(p.context, kFolder, "g", "other").ok());
}

// ---------------------------------------------------------------------------------------------
// Planted bugs: who catches which.

struct CaughtBy {
  PlantedBug bug;
  const char* name;
  std::function<std::string(PlantedBug)> check;
};
void PrintTo(const CaughtBy& c, std::ostream* os) { *os << c.name; }

std::string Crash(PlantedBug bug) { return CrashEverywhere(bug, 20, 0); }
std::string Takeover(PlantedBug bug) { return TakeoverEverywhere(bug, 30); }
std::string Race(PlantedBug bug) { return Sweep(RaceOnce, 20'000, bug); }
std::string RecoveryRace(PlantedBug bug) { return Sweep(RecoveryRaceOnce, 20'000, bug); }
std::string CreateRace(PlantedBug bug) { return Sweep(CreateRaceOnce, 20'000, bug); }

class PosixPlantedBug : public ::testing::TestWithParam<CaughtBy> {};
TEST_P(PosixPlantedBug, IsCaught) {
  const std::string error = GetParam().check(GetParam().bug);
  EXPECT_NE(error, "") << "nobody noticed " << GetParam().name;
  printf("%s: %s\n", GetParam().name, error.c_str());
}
INSTANTIATE_TEST_SUITE_P(
    Bugs, PosixPlantedBug,
    ::testing::Values(CaughtBy{PlantedBug::kNoCommitCheck, "NoCommitCheck", Takeover},
                      CaughtBy{PlantedBug::kNoSlot, "NoSlot", Crash},
                      CaughtBy{PlantedBug::kOneSlot, "OneSlot", Crash},
                      CaughtBy{PlantedBug::kAckBeforeFlush, "AckBeforeFlush", Crash},
                      CaughtBy{PlantedBug::kNoRangeChecksum, "NoRangeChecksum", Crash},
                      CaughtBy{PlantedBug::kTrustWord, "TrustWord", Crash},
                      CaughtBy{PlantedBug::kSlotsOfAnySegment, "SlotsOfAnySegment", Race},
                      CaughtBy{PlantedBug::kSameInode, "SameInode", Takeover},
                      CaughtBy{PlantedBug::kSegmentNotDurable, "SegmentNotDurable", Crash},
                      CaughtBy{PlantedBug::kFencedNotRevoked, "FencedNotRevoked", Race},
                      CaughtBy{PlantedBug::kWordReadLate, "WordReadLate", RecoveryRace},
                      CaughtBy{PlantedBug::kNoBracket, "NoBracket", RecoveryRace},
                      CaughtBy{PlantedBug::kListingKept, "ListingKept", Race},
                      CaughtBy{PlantedBug::kClaimNotDurable, "ClaimNotDurable", CreateRace},
                      CaughtBy{PlantedBug::kNoTombstone, "NoTombstone", CreateRace}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tailcast::storage::posix
