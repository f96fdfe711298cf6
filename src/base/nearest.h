// "Did you mean": the known name that a mistyped one is nearest to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tailcast {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b. Case counts.
size_t EditDistance(std::string_view a, std::string_view b);

// The name with the smallest distance to `wrong`, ignoring case, the first of equals; none if all
// are further than a third of the longer name's length (one letter at least), or if no letter
// of `wrong` would stay.
std::optional<std::string> NearestName(std::string_view wrong,
                                       const std::vector<std::string>& names);

// "; did you mean 'europe-west'?", or "; known: a, b, c" if nothing is near and there are few, or
// "". For the end of an error message.
std::string DidYouMean(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace tailcast
