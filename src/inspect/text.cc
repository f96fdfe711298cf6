#include "tailcast/inspect/text.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>

namespace tailcast::inspect {

std::string Short(uint64_t number) {
  if (number < 1000) return std::to_string(number);
  auto rest = static_cast<double>(number);
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T", "P", "E"}) {
    if (rest < 999.5) break;
    rest /= 1000;
    unit = next;
  }
  char text[16];
  std::snprintf(text, sizeof text, rest < 9.95 ? "%.1f%s" : "%.0f%s", rest, unit);
  return text;
}

std::string SpanText(Duration span) {
  const double seconds = span.seconds();
  char text[32];
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.0f ms", seconds * 1e3);
  } else if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  char text[32];
  const auto b = static_cast<double>(bytes);
  if (b < 1e3) {
    std::snprintf(text, sizeof text, "%.0f B", b);
  } else if (b < 1e6) {
    std::snprintf(text, sizeof text, "%.1f KB", b / 1e3);
  } else if (b < 1e9) {
    std::snprintf(text, sizeof text, "%.1f MB", b / 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.2f GB", b / 1e9);
  }
  return text;
}

std::string TimeText(WallTime time) {
  const std::time_t seconds = time.micros() / 1'000'000;
  std::tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return std::to_string(time.micros()) + " us";
  }
  return text;
}

std::string Counted(uint64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string ListText(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

std::string Hex(uint64_t number, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*" PRIx64, digits, number);
  return text;
}

std::string Wrapped(size_t indent, std::string_view text, size_t columns) {
  std::string out, line(indent, ' ');
  bool empty = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!empty && line.size() + 1 + word.size() > columns) {
      out += line + "\n";
      line.assign(indent + 2, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return out + line + "\n";
}

namespace {

// Of UTF-8: what begins with another byte than those that go on.
bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string_view LastCharacters(std::string_view text, size_t count) {
  size_t at = text.size();
  while (at > 0 && count > 0) count -= BeginsCharacter(text[--at]) ? 1 : 0;
  return text.substr(at);
}

}  // namespace

std::string TableText(size_t indent, const std::vector<std::vector<std::string>>& rows,
                      const std::vector<size_t>& left, size_t columns, size_t gap) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Characters(row[i]));
  }
  const auto width_of_others = [&] {
    size_t others = indent;
    for (size_t i = 1; i < widths.size(); ++i) others += gap + widths[i];
    return others;
  };
  if (width_of_others() + widths[0] > columns) gap = 1;
  const size_t others = width_of_others();
  constexpr size_t kNameMin = 4;
  widths[0] = std::min(widths[0], std::max(columns - std::min(others, columns), kNameMin));
  std::string text;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = row[i];
      size_t width = Characters(cell);
      if (width > widths[i]) {
        cell = "~" + std::string(LastCharacters(cell, widths[i] - 1));
        width = widths[i];
      }
      const std::string space(widths[i] - width, ' ');
      const bool to_left = i == 0 || std::find(left.begin(), left.end(), i) != left.end();
      line += std::string(i == 0 ? 0 : gap, ' ') + (to_left ? cell + space : space + cell);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tailcast::inspect
