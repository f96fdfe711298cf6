#include "tailcast/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace tailcast {
namespace {

std::optional<LogLevel> ParseLevel(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return std::nullopt;
}

struct Levels {
  LogLevel standard = LogLevel::kInfo;
  std::map<std::string, LogLevel, std::less<>> by_component;
};

Result<Levels> ParseLevels(std::string_view spec) {
  Levels levels;
  while (!spec.empty()) {
    const size_t comma = spec.find(',');
    const std::string_view part = spec.substr(0, comma);
    spec = comma == std::string_view::npos ? "" : spec.substr(comma + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    const std::string_view name = equals == std::string_view::npos ? part : part.substr(equals + 1);
    const std::optional<LogLevel> level = ParseLevel(name);
    if (!level.has_value() || equals == 0) {
      return InvalidArgumentError("log level '" + std::string(part) +
                                  "': use debug, info, warn, error or off, alone or as "
                                  "COMPONENT=LEVEL, separated by commas");
    }
    if (equals == std::string_view::npos) {
      levels.standard = *level;
    } else {
      levels.by_component[std::string(part.substr(0, equals))] = *level;
    }
  }
  return levels;
}

// Never destroyed: loggers of static objects write until the very end.
class Hub {
 public:
  static Hub& Get() {
    static Hub* hub = new Hub;
    return *hub;
  }

  const std::atomic<uint8_t>* LevelOf(std::string_view component) {
    std::lock_guard lock(mutex_);
    auto [it, inserted] = words_.try_emplace(std::string(component));
    if (inserted) {
      it->second = std::make_unique<std::atomic<uint8_t>>(LevelFor(component));
    }
    return it->second.get();
  }
  void SetLevels(Levels levels) {
    std::lock_guard lock(mutex_);
    levels_ = std::move(levels);
    for (auto& [component, word] : words_) word->store(LevelFor(component));
  }
  void SetSink(LogSink sink) {
    std::lock_guard lock(sink_mutex_);
    sink_ = std::move(sink);
  }
  void Write(LogLevel level, std::string_view component, std::string_view message) {
    std::lock_guard lock(sink_mutex_);
    if (sink_ != nullptr) {
      sink_(level, component, message);
      return;
    }
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    constexpr char kLetters[] = {'D', 'I', 'W', 'E'};
    const auto i = static_cast<size_t>(level);
    logger_.log(kLevels[i], "{} {:<9} {}", kLetters[i], component, message);
  }

 private:
  Hub() : logger_("tailcast", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    logger_.set_level(spdlog::level::debug);
    logger_.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%fZ %v", spdlog::pattern_time_type::utc));
    logger_.flush_on(spdlog::level::debug);
    if (const char* spec = std::getenv("TAILCAST_LOG"); spec != nullptr) {
      Result<Levels> levels = ParseLevels(spec);
      if (levels.ok()) {
        levels_ = *std::move(levels);
      } else {
        std::fprintf(stderr, "TAILCAST_LOG is ignored: %s\n", levels.status().message().c_str());
      }
    }
  }
  uint8_t LevelFor(std::string_view component) const {
    const auto it = levels_.by_component.find(component);
    return static_cast<uint8_t>(it == levels_.by_component.end() ? levels_.standard : it->second);
  }

  std::mutex mutex_;
  Levels levels_;
  std::map<std::string, std::unique_ptr<std::atomic<uint8_t>>, std::less<>> words_;
  std::mutex sink_mutex_;
  LogSink sink_;
  spdlog::logger logger_;
};

std::string OneLine(std::string message) {
  bool clean = true;
  for (const char c : message)
    clean = clean && (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  if (clean) return message;
  std::string escaped;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      escaped += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      char text[8];
      std::snprintf(text, sizeof text, "\\x%02x", byte);
      escaped += text;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

Status SetLogLevels(std::string_view spec) {
  Result<Levels> levels = ParseLevels(spec);
  if (!levels.ok()) return levels.status();
  Hub::Get().SetLevels(*std::move(levels));
  return OkStatus();
}

void SetLogSink(LogSink sink) { Hub::Get().SetSink(std::move(sink)); }

Logger::Logger(std::string_view component)
    : component_(component), level_(Hub::Get().LevelOf(component)) {}

void Logger::Write(LogLevel level, std::string message) const {
  Hub::Get().Write(level, component_, OneLine(std::move(message)));
}

}  // namespace tailcast
