#include "tailcast/app/retention_options.h"

#include <cinttypes>
#include <cstdio>
#include <map>

namespace tailcast::app {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kAwayMaxDefault = 86400 * kSecond;

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
        ->transform(CLI::AsNumberWithUnit(
            std::map<std::string, int64_t>{
                {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}},
            CLI::AsNumberWithUnit::CASE_INSENSITIVE, "TIME"))
        ->check(CLI::NonNegativeNumber)
        ->type_name("TIME");
  };
  time("--max-age", max_age_s,
       "Files go when they are older, as 36h or 7d: counted from their end, or from when they got "
       "such a limit first, while the source's scheduler runs; 0: however old");
  const auto size = [&](const char* name, std::optional<int64_t>& value, const char* about) {
    command->add_option(name, value, about)
        ->transform(CLI::AsSizeValue(true))
        ->check(CLI::NonNegativeNumber)
        ->type_name("BYTES");
  };
  size("--max-shard-bytes", shard_bytes,
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
  size("--file-bytes", file_bytes,
       "Size of a message file, data and index (32 bytes a message): only whole files go; default: "
       "a "
       "quarter of --max-shard-bytes, and at most what the producer is set to");
}

Result<v1::Retention> RetentionFlags::Apply(v1::Retention retention) const {
  // Nobody has said anything yet.
  const bool first = retention.version() <= 1 && retention.away_max_us() == 0;
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
  } else if (first) {
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
