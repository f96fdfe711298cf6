// Numbers, times and lines as the commands show them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast::inspect {

inline constexpr size_t kColumns = 80;

// In four characters at most: "999", "4.1k", "12M", "1.5G". Powers of 1000.
std::string Short(uint64_t number);
// "200 ms", "59 s", "12 min", "23.9 h"
std::string SpanText(Duration span);
// "999 B", "1.2 KB", "3.4 MB", "5.67 GB". Powers of 1000.
std::string BytesText(int64_t bytes);
// "2026-11-22T12:00:00Z"
std::string TimeText(WallTime time);
// "1 value", "2 values"
std::string Counted(uint64_t number, const std::string& noun);
// "a", "a and b", "a, b and c"
std::string ListText(const std::vector<std::string>& words);
std::string Hex(uint64_t number, int digits);

// Breaks `text` between words into lines of `columns`, all with `indent` spaces in front and those
// after the first with two more. Ends with a newline.
std::string Wrapped(size_t indent, std::string_view text, size_t columns = kColumns);

// Columns as wide as their longest cell, `gap` spaces between them (one if there is no room for
// more): the first one and those of `left` aligned to the left. If a line had more than `columns`,
// the first column's cells lose their beginning ("~che-12"). The first row is the heading.
std::string TableText(size_t indent, const std::vector<std::vector<std::string>>& rows,
                      const std::vector<size_t>& left = {}, size_t columns = kColumns,
                      size_t gap = 1);

}  // namespace tailcast::inspect
