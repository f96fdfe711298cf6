// Where a cell's primary layer is, as text: in process configurations, in the registry, on command
// lines. docs/ops/storage.md has the forms; open_store.h opens what is named.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::storage {

struct StoreUrl {
  enum class Kind : uint8_t { kPosix, kCeph };
  Kind kind = Kind::kPosix;
  // posix:/folder, posix+page-cache:/folder
  std::string folder;
  bool durable = true;
  // ceph:[/path/ceph.conf]?pool=P[&user=U][&namespace=N][&deadline_s=S][&roll_bytes=B]
  std::string conf;
  std::string pool;
  std::string user = "admin";
  std::string name_space;
  Duration deadline = Duration::Seconds(30);  // of each call
  int64_t roll_bytes = int64_t{32} << 20;     // of an object of a file, 1 to 64 MB

  // What ParseStoreUrl reads back as this.
  std::string ToString() const;
};

// InvalidArgument, with what was expected instead.
Result<StoreUrl> ParseStoreUrl(std::string_view text);

}  // namespace tailcast::storage
