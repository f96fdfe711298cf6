// The log of a process' steps, for the TLA+ models: which step is which action, and how a log is
// checked against a model, is in tla/README.md. One JSON object a line:
//
//   {"t":812,"cell":"asia-east","process":"writer-1.77","event":"ChunkWrite","file":"...","part":0,...}
//
// Who takes steps has a StepLog*; null means no log, and that question is all it costs then.
//
// Stamps. The logs of a host's processes are merged by time, and the order must be one that
// happened: an effect is stamped before anybody can see it (a request before it is sent, a commit
// before the swap), an observation after it was made.
//
//   if (steps != nullptr) steps->Write("ChunkWrite", {{"chunk", 3}, {"len", 4096}});
//
//   const int64_t at = steps->Stamp();             // an effect that may yet fail
//   if (Swap()) steps->WriteAt(at, "PrimaryAppend", {{"len", length}});
//
// Threads: any, if clock and sink are for any.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast {

// A field of a step. Views: for the duration of the call.
struct StepField {
  template <std::integral T>
  StepField(std::string_view name, T value) : name(name), number(static_cast<int64_t>(value)) {
    kind = std::same_as<T, bool> ? Kind::kFlag : Kind::kNumber;
  }
  StepField(std::string_view name, std::string_view value)
      : name(name), kind(Kind::kText), text(value) {}

  enum class Kind : uint8_t { kNumber, kFlag, kText };
  std::string_view name;
  Kind kind;
  int64_t number = 0;
  std::string_view text;
};

class StepLog {
 public:
  using Clock = std::function<int64_t()>;
  // Gets each line, with its line break.
  using Sink = std::function<void(std::string_view line)>;

  // `cell` and `process` are in each line; no two logs that are merged have the same `process`.
  StepLog(std::string_view cell, std::string process, Clock clock, Sink sink);

  // A new file FOLDER/CELL.PROCESS.PID-N.jsonl, stamped in nanoseconds of the host's monotonic
  // clock. Each line is a write of its own, so that a kill -9 loses none that came before it.
  // NotFound, PermissionDenied: the file can't be made; the message names it.
  static Result<std::unique_ptr<StepLog>> Open(const std::string& folder, std::string_view cell,
                                               std::string_view process);
  // As Open, in the folder that the environment variable TAILCAST_TRACE_DIR names; null without it.
  static Result<std::unique_ptr<StepLog>> FromEnvironment(std::string_view cell,
                                                          std::string_view process);

  int64_t Stamp() const { return clock_(); }
  void Write(std::string_view event, std::initializer_list<StepField> fields) {
    WriteAt(Stamp(), event, fields);
  }
  // `more` is the inside of a JSON object, or empty: "epoch":2,"length":4177
  void WriteAt(int64_t stamp, std::string_view event, std::initializer_list<StepField> fields,
               std::string_view more = {});

  // "<process>-<number>", each time another one: a writer or a consumer of this process.
  std::string NewName() { return process_ + "-" + std::to_string(++names_); }
  const std::string& process() const { return process_; }

 private:
  const std::string process_;
  const std::string head_;  // "cell":"asia-east","process":"writer-1.77","event":
  const Clock clock_;
  const Sink sink_;
  std::atomic<uint64_t> names_{0};
};

// Adds `fields` to the inside of a JSON object.
void AppendStepFields(std::initializer_list<StepField> fields, std::string* out);

}  // namespace tailcast
