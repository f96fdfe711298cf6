#include "tailcast/app/made_streams.h"

#include <cerrno>
#include <fstream>

#include "tailcast/app/durable_file.h"

namespace tailcast::app {
namespace {

std::string PathOf(const std::string& dir) { return dir + "/made_streams"; }

}  // namespace

Result<std::set<std::string>> ReadMadeStreams(const std::string& dir) {
  std::set<std::string> names;
  errno = 0;
  std::ifstream in(PathOf(dir));
  if (!in && errno == ENOENT) return names;
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + PathOf(dir));
  for (std::string name; std::getline(in, name);) names.insert(name);
  if (in.bad()) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + PathOf(dir));
  return names;
}

Status WriteMadeStreams(const std::string& dir, const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return ReplaceFile(PathOf(dir), text);
}

}  // namespace tailcast::app
