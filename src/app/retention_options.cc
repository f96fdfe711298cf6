#include "tailcast/app/retention_options.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <map>

namespace tailcast::app {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kDay = 86400;  // s
constexpr int64_t kAwayMaxDefault = kDay * kSecond;
constexpr int64_t kTimeMax = 36500 * kDay;  // s
// Less is a unit that was forgotten.
constexpr int64_t kFileBytesMin = 1000, kShardBytesMin = 64'000;

// "0", or a number and its unit: a 7 that means days must not be taken for seconds.
CLI::Validator TimeWithUnit() {
  const CLI::AsNumberWithUnit with_unit(
      std::map<std::string, int64_t>{{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", kDay}},
      static_cast<CLI::AsNumberWithUnit::Options>(CLI::AsNumberWithUnit::CASE_INSENSITIVE |
                                                  CLI::AsNumberWithUnit::UNIT_REQUIRED),
      "TIME");
  return {[with_unit](std::string& text) -> std::string {
            if (text == "0") return "";
            if (text.find_first_not_of("0123456789") == std::string::npos) {
              return "'" + text + "' has no unit: say " + text + "d, " + text + "h, " + text +
                     "min or " + text + "s";
            }
            return with_unit(text);
          },
          "TIME"};
}

CLI::Validator ZeroOrAtLeast(int64_t least) {
  return {[least](std::string& text) -> std::string {
            int64_t bytes = 0;
            if (!CLI::detail::lexical_cast(text, bytes) || bytes < 0) {
              return "'" + text + "' is no number of bytes";
            }
            if (bytes == 0 || bytes >= least) return "";
            return text + " bytes is less than " + std::to_string(least) + ": say 10MB or 10GB, " +
                   "or 0";
          },
          ""};
}

// "7 d", "90 min".
std::string TimeText(int64_t us) {
  const int64_t s = us / kSecond;
  for (const auto& [unit, name] :
       {std::pair<int64_t, const char*>{86400, "d"}, {3600, "h"}, {60, "min"}}) {
    if (s >= unit && s % unit == 0) return std::to_string(s / unit) + " " + name;
  }
  return std::to_string(s) + " s";
}

std::string BytesText(int64_t bytes) {
  char text[32];
  const auto b = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000)
    std::snprintf(text, sizeof text, "%.4g GB", b / 1e9);
  else if (bytes >= 1'000'000)
    std::snprintf(text, sizeof text, "%.4g MB", b / 1e6);
  else
    std::snprintf(text, sizeof text, "%" PRId64 " bytes", bytes);
  return text;
}

}  // namespace

void RetentionFlags::Add(CLI::App* command) {
  const auto time = [&](const char* name, std::optional<int64_t>& value, const char* about) {
    command->add_option(name, value, about)
        ->transform(TimeWithUnit())
        ->check([](const std::string& text) -> std::string {
          int64_t seconds = 0;
          const bool is = CLI::detail::lexical_cast(text, seconds);
          return is && seconds >= 0 && seconds <= kTimeMax ? "" : "it is at most 36500d";
        })
        ->type_name("TIME");
  };
  time("--max-age", max_age_s,
       "Files go when they are older, as 36h or 7d: counted from their end, or from when they got "
       "such a limit first, while the source's scheduler runs; 0: however old");
  const auto size = [&](const char* name, std::optional<int64_t>& value, int64_t least,
                        const char* about) {
    command->add_option(name, value, about)
        ->transform(CLI::AsSizeValue(true))
        ->check(ZeroOrAtLeast(least))
        ->type_name("BYTES");
  };
  size("--max-shard-bytes", shard_bytes, kShardBytesMin,
       "Closed files of each shard, data and index, as 10GB; 0: any number");
  command
      ->add_option("--when-full", when_full,
                   "When a cell lacks what --max-shard-bytes wants away. block: the producer waits "
                   "for it (default); drop: it gets a gap, also if it does not answer for 2 s")
      ->check(CLI::IsMember({"block", "drop"}));
  time(
      "--away-max", away_max_s,
      "Nothing is kept any more for a cell that has kept old files from going for so long, because "
      "it could not be reached or did not get on; default: 1d; 0: however long");
  size("--file-bytes", file_bytes, kFileBytesMin,
       "Size of a message file, data and index (32 bytes a message): only whole files go; default: "
       "a "
       "quarter of --max-shard-bytes, and at most what the producer is set to");
}

Result<v1::Retention> RetentionFlags::Apply(v1::Retention retention) const {
  if (max_age_s) retention.set_age_max_us(*max_age_s * kSecond);
  if (shard_bytes) retention.set_shard_bytes_max(*shard_bytes);
  if (when_full) retention.set_drop(*when_full == "drop");
  if (retention.shard_bytes_max() == 0 && retention.drop()) {
    if (when_full) {
      return InvalidArgumentError(
          "--when-full drop says what happens when --max-shard-bytes is reached: give that, too");
    }
    retention.set_drop(false);
  }
  if (file_bytes) retention.set_file_bytes(*file_bytes);
  if (away_max_s) {
    retention.set_away_max_us(*away_max_s * kSecond);
  } else if (!retention.has_away_max_us()) {
    retention.set_away_max_us(kAwayMaxDefault);
  }
  return retention;
}

std::string RetentionText(const v1::Retention& retention) {
  std::string text;
  if (retention.age_max_us() == 0 && retention.shard_bytes_max() == 0) text = "everything";
  if (retention.age_max_us() > 0) text = TimeText(retention.age_max_us());
  if (retention.shard_bytes_max() > 0) {
    if (!text.empty()) text += ", and ";
    text += BytesText(retention.shard_bytes_max()) + " of each shard (then " +
            (retention.drop() ? "cells that lag get a gap)" : "the producer waits for all cells)");
  }
  if (retention.away_max_us() > 0) {
    text += "; a cell may be away for " + TimeText(retention.away_max_us());
  }
  if (retention.file_bytes() > 0) text += "; files of " + BytesText(retention.file_bytes());
  return text;
}

}  // namespace tailcast::app
