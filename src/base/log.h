// Log lines for people: one line each on stderr, with time, level and component:
//   2026-11-21T11:10:02.123456Z W storage   europe-west/x.data: flush failed: Input/output error
//
//   const Logger kLog("storage");
//   kLog.Warn(name, ": flush failed: ", status.message());
//
// Levels are set for the whole process and per component, by SetLogLevels or by the environment
// variable TAILCAST_LOG, both in the form "info,storage=debug,rpc=off". Default: info. A line below
// its level costs one relaxed load; its arguments are still evaluated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3, kOff = 4 };

// InvalidArgument names the part that was not understood; levels stay as they were.
Status SetLogLevels(std::string_view spec);

// Receives every line instead of stderr, from any thread, one call at a time; null restores stderr.
// For tests and for programs that embed tailcast. It must not log.
using LogSink = std::function<void(LogLevel, std::string_view component, std::string_view message)>;
void SetLogSink(LogSink sink);

// Copyable, cheap, any thread. Component names are short lower-case words.
class Logger {
 public:
  explicit Logger(std::string_view component);

  bool Enabled(LogLevel level) const {
    return static_cast<uint8_t>(level) >= level_->load(std::memory_order_relaxed);
  }
  template <typename... Args>
  void Debug(const Args&... args) const {
    Log(LogLevel::kDebug, args...);
  }
  template <typename... Args>
  void Info(const Args&... args) const {
    Log(LogLevel::kInfo, args...);
  }
  template <typename... Args>
  void Warn(const Args&... args) const {
    Log(LogLevel::kWarn, args...);
  }
  template <typename... Args>
  void Error(const Args&... args) const {
    Log(LogLevel::kError, args...);
  }

  // Anything that can be written to a std::ostream; the pieces are joined without separator. Line
  // breaks become "\n" and other control characters "\xNN", so that a line stays a line.
  template <typename... Args>
  void Log(LogLevel level, const Args&... args) const {
    if (!Enabled(level)) return;
    std::ostringstream text;
    (text << ... << args);
    Write(level, std::move(text).str());
  }

 private:
  void Write(LogLevel level, std::string message) const;

  std::string component_;
  const std::atomic<uint8_t>* level_;
};

}  // namespace tailcast
