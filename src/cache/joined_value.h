// The join of what replicas have of one value, while a client reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tailcast/cache/client_context.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// Threads: the loop's.
class JoinedValue {
 public:
  // What a replica of that name, which outlives this, has. Bytes that contradict those of another
  // one are counted, and said; those that came first stay.
  void Take(ClientContext& context, const Key& key, MergeRule rule, const std::string& replica,
            std::string_view bytes);
  // No more replicas are asked: joins what this client was given before, and remembers the join.
  void Finish(ClientContext& context, const Key& key, MergeRule rule);

  // Of an earlier value: its memory is used again.
  void Reuse(std::optional<std::string> bytes) {
    room_ = std::move(bytes).value_or(std::string());
    bytes_.reset();
  }
  // nullopt: no replica has any.
  std::optional<std::string> TakeBytes() { return std::move(bytes_); }

 private:
  std::optional<std::string> bytes_;
  std::string room_;
  const std::string* brought_by_ = nullptr;  // the first of them
};

}  // namespace tailcast::cache
