#include "tailcast/base/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "tailcast/base/log.h"

namespace tailcast {
namespace {

const Logger kLog("steps");

void AppendText(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
      out->append(escaped);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

int64_t ReadMonotonicNanos() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

struct File {
  int fd = -1;
  std::string path;
  std::atomic<bool> failed{false};
  ~File() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

void AppendStepFields(std::initializer_list<StepField> fields, std::string* out) {
  for (const StepField& field : fields) {
    if (!out->empty() && out->back() != '{') out->push_back(',');
    AppendText(field.name, out);
    out->push_back(':');
    switch (field.kind) {
      case StepField::Kind::kNumber:
        out->append(std::to_string(field.number));
        break;
      case StepField::Kind::kFlag:
        out->append(field.number != 0 ? "true" : "false");
        break;
      case StepField::Kind::kText:
        AppendText(field.text, out);
        break;
    }
  }
}

StepLog::StepLog(std::string_view cell, std::string process, Clock clock, Sink sink)
    : process_(std::move(process)),
      head_([&] {
        std::string head;
        AppendStepFields({{"cell", cell}, {"process", std::string_view(process_)}}, &head);
        return head;
      }()),
      clock_(std::move(clock)),
      sink_(std::move(sink)) {}

Result<std::unique_ptr<StepLog>> StepLog::Open(const std::string& folder, std::string_view cell,
                                               std::string_view process) {
  static std::atomic<int> opened{0};
  const std::string unique =
      std::string(process) + "." + std::to_string(getpid()) + "-" + std::to_string(++opened);
  auto file = std::make_shared<File>();
  file->path = folder + "/" + std::string(cell) + "." + unique + ".jsonl";
  file->fd = open(file->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file->fd < 0) return ErrnoStatus(errno, "make the step log " + file->path);
  const auto sink = [file](std::string_view line) {
    // One call for a line, so that lines of several threads do not mix.
    if (write(file->fd, line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
    if (!file->failed.exchange(true)) {
      kLog.Error(file->path, ": a step could not be written; the log is worthless");
    }
  };
  return std::make_unique<StepLog>(cell, unique, ReadMonotonicNanos, sink);
}

Result<std::unique_ptr<StepLog>> StepLog::FromEnvironment(std::string_view cell,
                                                          std::string_view process) {
  const char* folder = std::getenv("TAILCAST_TRACE_DIR");
  if (folder == nullptr || *folder == '\0') return std::unique_ptr<StepLog>();
  return Open(folder, cell, process);
}

void StepLog::WriteAt(int64_t stamp, std::string_view event,
                      std::initializer_list<StepField> fields, std::string_view more) {
  std::string line = "{";
  AppendStepFields({{"t", stamp}}, &line);
  line.push_back(',');
  line += head_;
  AppendStepFields({{"event", event}}, &line);
  if (!more.empty()) {
    line.push_back(',');
    line += more;
  }
  AppendStepFields(fields, &line);
  line += "}\n";
  sink_(line);
}

}  // namespace tailcast
