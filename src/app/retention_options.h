// The options of commands that say what a stream keeps (v1::Retention).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "tailcast/base/status.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::app {

struct RetentionFlags {
  std::optional<int64_t> max_age_s, away_max_s, shard_bytes, file_bytes;
  std::optional<std::string> when_full;

  // --max-age, --max-shard-bytes, --when-full, --away-max, --file-bytes.
  void Add(CLI::App* command);
  bool given() const { return max_age_s || away_max_s || shard_bytes || file_bytes || when_full; }
  // `before` with what was given; 0 takes a limit away. InvalidArgument in the words of the
  // options.
  Result<v1::Retention> Apply(v1::Retention before) const;
};

// What is kept: "7 d, and 10 GB of each shard (then ...)"; "everything".
std::string RetentionText(const v1::Retention& retention);

}  // namespace tailcast::app
