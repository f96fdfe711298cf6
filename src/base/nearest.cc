#include "tailcast/base/nearest.h"

#include <algorithm>
#include <cctype>

namespace tailcast {
namespace {
constexpr size_t kNamesListedMax = 12;

std::string Lower(std::string_view s) {
  std::string lower(s);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}
}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows of the usual table: the one being filled and the two above it.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string> NearestName(std::string_view wrong,
                                       const std::vector<std::string>& names) {
  const std::string lower = Lower(wrong);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(lower, Lower(name));
    const size_t allowed = std::max<size_t>(1, std::max(wrong.size(), name.size()) / 3);
    if (distance <= allowed && distance < lower.size() &&
        (best == nullptr || distance < best_distance)) {
      best = &name;
      best_distance = distance;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string DidYouMean(std::string_view wrong, const std::vector<std::string>& names) {
  if (std::optional<std::string> name = NearestName(wrong, names); name.has_value()) {
    return "; did you mean '" + *name + "'?";
  }
  if (names.empty() || names.size() > kNamesListedMax) return "";
  std::string text = "; known: ";
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text;
}

}  // namespace tailcast
