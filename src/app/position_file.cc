#include "tailcast/app/position_file.h"

#include <cerrno>
#include <fstream>

#include "tailcast/app/durable_file.h"

namespace tailcast::app {
namespace {

constexpr char kHeading[] = "# positions of `tailcast consume --position-file`";

}  // namespace

Result<std::vector<stream::Position>> ReadPositionFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in && errno == ENOENT) return std::vector<stream::Position>();
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + path);
  std::vector<stream::Position> positions;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const auto position = stream::Position::Parse(line);
    if (!position.ok()) {
      return DataLossError(path + ":" + std::to_string(number) + ": " +
                           position.status().message() +
                           "; mend the line, or remove the file to begin at --from");
    }
    positions.push_back(*position);
  }
  if (in.bad()) return ErrnoStatus(EIO, "read " + path);
  return positions;
}

Status WritePositionFile(const std::string& path, const std::vector<stream::Position>& positions) {
  std::string text = std::string(kHeading) + "\n";
  for (const stream::Position& position : positions) text += position.ToString() + "\n";
  return ReplaceFile(path, text);
}

}  // namespace tailcast::app
