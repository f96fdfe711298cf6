#include "tailcast/storage/file_system_check.h"

#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tailcast/base/log.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

constexpr uint64_t kOverlay = 0x794c7630;

struct KnownFileSystem {
  uint64_t magic;
  const char* name;
};
// File systems of one host with one page cache, where what is mapped and what is written agree.
constexpr KnownFileSystem kGoodFileSystems[] = {
    {0xef53, "ext4"}, {0x58465342, "xfs"}, {0x01021994, "tmpfs"}, {0x858458f6, "ramfs"}};
// The same, but nobody has shown of them that a file which was flushed before it was linked keeps
// its bytes through a power loss (btrfs' log skips inodes that have no name yet). Good enough where
// a power loss may take what it likes.
constexpr KnownFileSystem kForgetfulFileSystems[] = {
    {0x9123683e, "btrfs"}, {0xf2f52010, "f2fs"}, {0xca451a4e, "bcachefs"}};
constexpr KnownFileSystem kSharedFileSystems[] = {
    {0x6969, "NFS"},       {0xff534d42, "SMB"}, {0xfe534d42, "SMB2"}, {0x517b, "SMB"},
    {0x65735546, "FUSE"},  {0x01021997, "9p"},  {0x00c36400, "Ceph"}, {0x01161970, "GFS2"},
    {0x7461636f, "OCFS2"}, {0x5346414f, "AFS"}, {0x2fc12fc1, "ZFS"},  {0x4d44, "FAT"},
};

uint64_t MagicOf(const struct statfs& fs) { return static_cast<uint64_t>(fs.f_type) & 0xffffffff; }

// `where`: how the folder is named in errors.
Status Judge(uint64_t magic, const std::string& where, bool durable) {
  const auto name_in = [&](const auto& list) -> const char* {
    const auto known = std::find_if(std::begin(list), std::end(list),
                                    [&](const KnownFileSystem& k) { return k.magic == magic; });
    return known != std::end(list) ? known->name : nullptr;
  };
  if (name_in(kGoodFileSystems) != nullptr) return OkStatus();
  if (const char* name = name_in(kForgetfulFileSystems); name != nullptr) {
    if (!durable) return OkStatus();
    return FailedPreconditionError(where + " is on " + name +
                                   ", where a new file that was flushed may be empty after a power "
                                   "loss; use a folder on ext4 or xfs, or say durability: "
                                   "page-cache if appends need not survive one");
  }
  char text[32];
  std::snprintf(text, sizeof text, "type 0x%llx", static_cast<unsigned long long>(magic));
  const char* shared = name_in(kSharedFileSystems);
  return FailedPreconditionError(where + " is on " + (shared != nullptr ? shared : text) +
                                 ", where writers of a file cannot be fenced safely; use a folder "
                                 "on a local ext4, xfs or tmpfs");
}

// Blanks, commas and backslashes are three octal digits there.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 3);
    if (text[i] == '\\' && digits.size() == 3 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '7'; })) {
      out.push_back(
          static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace

std::string UpperLayerOf(std::string_view mountinfo, uint64_t mount) {
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    uint64_t number = 0;
    if (!(fields >> number) || number != mount) continue;
    const size_t at = line.find(" - ");
    if (at == std::string::npos) continue;
    std::istringstream behind(line.substr(at + 3));
    std::string type, source, options;
    if (!(behind >> type >> source >> options)) continue;
    std::istringstream list(options);
    for (std::string option; std::getline(list, option, ',');) {
      constexpr std::string_view kName = "upperdir=";
      if (!option.starts_with(kName)) continue;
      const std::string folder = Unescape(std::string_view(option).substr(kName.size()));
      return folder.starts_with('/') ? folder : std::string();
    }
  }
  return "";
}

Status CheckFileSystem(int fd, const std::string& path, uint64_t mount, bool durable) {
  const std::string where = "storage folder " + path;
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0) return ErrnoStatus(errno, where);
  if (MagicOf(fs) != kOverlay) return Judge(MagicOf(fs), where, durable);
  std::ifstream file("/proc/self/mountinfo");
  const std::string mountinfo((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
  const std::string upper = UpperLayerOf(mountinfo, mount);
  if (!upper.empty() && statfs(upper.c_str(), &fs) == 0) {
    return Judge(MagicOf(fs), where + " is on an overlay, whose upper layer " + upper, durable);
  }
  if (durable) {
    kLog.Warn(where,
              " is on an overlay whose upper layer can't be seen from here: appends survive a "
              "power loss if that is on ext4 or xfs, and may not if it is on btrfs. Use a volume "
              "on ext4 or xfs");
  }
  return OkStatus();
}

}  // namespace tailcast::storage
