#include "tailcast/storage/store_url.h"

#include <charconv>

#include "tailcast/base/nearest.h"

namespace tailcast::storage {
namespace {

constexpr std::string_view kPosix = "posix:";
constexpr std::string_view kPageCache = "posix+page-cache:";
constexpr std::string_view kCeph = "ceph:";
constexpr int64_t kDeadlineSecondsMax = 3600;
constexpr int64_t kRollBytesMax = int64_t{64} << 20;

Status Bad(std::string_view text, const std::string& why) {
  return InvalidArgumentError("'" + std::string(text) + "' " + why);
}

// Names of pools, users and namespaces as Ceph takes them, without what has a meaning in a URL.
bool IsName(std::string_view name) {
  if (name.empty() || name.size() > 128) return false;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (!plain) return false;
  }
  return true;
}

Result<StoreUrl> ParseCeph(std::string_view text) {
  StoreUrl url;
  url.kind = StoreUrl::Kind::kCeph;
  const std::string_view rest = text.substr(kCeph.size());
  const size_t question = rest.find('?');
  url.conf = rest.substr(0, question);
  if (!url.conf.empty() && url.conf[0] != '/') {
    return Bad(text, "must be ceph:/absolute/ceph.conf?pool=POOL");
  }
  std::string_view fields =
      question == std::string_view::npos ? std::string_view() : rest.substr(question + 1);
  while (!fields.empty()) {
    const size_t end = fields.find('&');
    const std::string_view field = fields.substr(0, end);
    fields = end == std::string_view::npos ? std::string_view() : fields.substr(end + 1);
    const size_t equals = field.find('=');
    const std::string key(field.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : field.substr(equals + 1);
    if (key == "deadline_s" || key == "roll_bytes") {
      const int64_t max = key == "deadline_s" ? kDeadlineSecondsMax : kRollBytesMax;
      int64_t number = 0;
      const char* end_of_value = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end_of_value, number);
      if (error != std::errc() || stop != end_of_value || number < 1 || number > max) {
        return Bad(text, key + " must be 1 to " + std::to_string(max));
      }
      if (key == "deadline_s") {
        url.deadline = Duration::Seconds(number);
      } else {
        url.roll_bytes = number;
      }
      continue;
    }
    std::string* into = key == "pool"        ? &url.pool
                        : key == "user"      ? &url.user
                        : key == "namespace" ? &url.name_space
                                             : nullptr;
    if (into == nullptr) {
      return Bad(text,
                 "has '" + key + "'" +
                     DidYouMean(key, {"pool", "user", "namespace", "deadline_s", "roll_bytes"}));
    }
    if (!IsName(value)) return Bad(text, key + " must be 1 to 128 of a-z A-Z 0-9 - _ .");
    *into = value;
  }
  if (url.pool.empty()) return Bad(text, "names no pool; add ?pool=POOL");
  return url;
}

}  // namespace

std::string StoreUrl::ToString() const {
  if (kind == Kind::kPosix) return std::string(durable ? kPosix : kPageCache) + folder;
  std::string text = std::string(kCeph) + conf + "?pool=" + pool;
  const StoreUrl defaults;
  if (user != defaults.user) text += "&user=" + user;
  if (!name_space.empty()) text += "&namespace=" + name_space;
  if (deadline != defaults.deadline) {
    text += "&deadline_s=" + std::to_string(deadline.millis() / 1000);
  }
  if (roll_bytes != defaults.roll_bytes) text += "&roll_bytes=" + std::to_string(roll_bytes);
  return text;
}

Result<StoreUrl> ParseStoreUrl(std::string_view text) {
  if (text.starts_with(kCeph)) return ParseCeph(text);
  StoreUrl url;
  url.durable = !text.starts_with(kPageCache);
  const std::string_view scheme = url.durable ? kPosix : kPageCache;
  if (!text.starts_with(scheme) || text.size() == scheme.size() || text[scheme.size()] != '/') {
    return Bad(text, "must be posix:/absolute/folder or ceph:/absolute/ceph.conf?pool=POOL");
  }
  url.folder = text.substr(scheme.size());
  return url;
}

}  // namespace tailcast::storage
