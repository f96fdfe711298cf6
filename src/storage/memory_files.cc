#include "tailcast/storage/memory_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tailcast::storage {
namespace {
constexpr int64_t kSector = 512;
constexpr int64_t kMetadataBegin = 512;
constexpr int64_t kMetadataEnd = 4096;
}  // namespace

struct MemoryFiles::Inode {
  std::string now;          // what processes read
  std::string durable;      // what the disk has for certain
  std::set<int64_t> dirty;  // sectors that may be either
  int links = 0;
  bool was_linked = false;
  const void* lock_owner = nullptr;

  void Touch(int64_t offset, int64_t size) {
    for (int64_t s = offset / kSector; s * kSector < offset + size; ++s) dirty.insert(s);
  }
  void Write(int64_t offset, std::string_view bytes) {
    if (bytes.empty()) return;
    const auto end = static_cast<size_t>(offset) + bytes.size();
    if (now.size() < end) now.resize(end, '\0');
    now.replace(static_cast<size_t>(offset), bytes.size(), bytes);
    Touch(offset, static_cast<int64_t>(bytes.size()));
  }
  // The disk may have it as it was, as of any write that is not flushed.
  void Truncate(int64_t size) {
    if (static_cast<int64_t>(now.size()) <= size) return;
    Touch(size, static_cast<int64_t>(now.size()) - size);
    now.resize(static_cast<size_t>(size));
  }
  void FlushSector(int64_t s) {
    const auto begin = static_cast<size_t>(s * kSector);
    if (begin >= now.size()) return;
    const std::string bytes = now.substr(begin, kSector);
    if (durable.size() < begin + bytes.size()) durable.resize(begin + bytes.size(), '\0');
    durable.replace(begin, bytes.size(), bytes);
  }
};

struct MemoryFiles::Folder {
  struct Change {
    std::string name;
    std::shared_ptr<Inode> inode;  // null: the name was removed
    bool is_folder = false;
  };
  struct Entry {
    std::shared_ptr<Inode> inode;  // null for a folder
  };
  std::map<std::string, Entry> now;
  std::map<std::string, Entry> durable;
  std::vector<Change> changes;  // since the last flush

  static void Apply(std::map<std::string, Entry>& to, const Change& change) {
    if (change.inode == nullptr && !change.is_folder) {
      to.erase(change.name);
    } else {
      to[change.name] = {change.inode};
    }
  }
  void Do(Change change) {
    const auto old = now.find(change.name);
    if (old != now.end() && old->second.inode != nullptr) --old->second.inode->links;
    if (change.inode != nullptr) {
      ++change.inode->links;
      change.inode->was_linked = true;
    }
    Apply(now, change);
    changes.push_back(std::move(change));
  }
};

namespace {
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}
}  // namespace

class MemoryPage : public SharedPage {
 public:
  MemoryPage(MemoryFiles* files, std::shared_ptr<MemoryFiles::Inode> inode)
      : files_(files), inode_(std::move(inode)) {}
  uint64_t Load(int64_t offset) override {
    std::lock_guard lock(files_->mutex_);
    return Get(offset);
  }
  void Store(int64_t offset, uint64_t value) override {
    std::lock_guard lock(files_->mutex_);
    Put(offset, value);
  }
  bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) override {
    std::lock_guard lock(files_->mutex_);
    if (Get(offset) != expected) return false;
    Put(offset, desired);
    return true;
  }

 private:
  uint64_t Get(int64_t offset) const {
    uint64_t value = 0;
    for (size_t i = 0; i < 8; ++i) {
      value |= uint64_t{static_cast<uint8_t>(inode_->now[static_cast<size_t>(offset) + i])}
               << (8 * i);
    }
    return value;
  }
  void Put(int64_t offset, uint64_t value) {
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    inode_->Write(offset, bytes);
  }
  MemoryFiles* const files_;
  const std::shared_ptr<MemoryFiles::Inode> inode_;
};

class MemoryOpsFile : public OpsFile {
 public:
  MemoryOpsFile(MemoryFiles* files, std::shared_ptr<MemoryFiles::Inode> inode, std::string path)
      : files_(files), inode_(std::move(inode)), path_(std::move(path)) {}

  ~MemoryOpsFile() override { Unlock(); }
  Result<bool> TryLock() override {
    std::lock_guard lock(files_->mutex_);
    if (inode_->lock_owner != nullptr && inode_->lock_owner != this) return false;
    inode_->lock_owner = this;
    return true;
  }
  void Unlock() override {
    std::lock_guard lock(files_->mutex_);
    if (inode_->lock_owner == this) inode_->lock_owner = nullptr;
  }
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    std::lock_guard lock(files_->mutex_);
    const int64_t growth =
        offset + static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(inode_->now.size());
    const int64_t room = files_->faults_.capacity_bytes - (growth > 0 ? Used() : 0);
    if (growth > 0 && growth > room) {
      // What fits is written, as a disk does.
      const int64_t fits = static_cast<int64_t>(bytes.size()) - growth + std::max<int64_t>(room, 0);
      inode_->Write(offset, bytes.substr(0, static_cast<size_t>(std::max<int64_t>(fits, 0))));
      return ResourceExhaustedError("write " + path_ + ": No space left on device");
    }
    if (files_->rng_.Chance(files_->faults_.write_error_rate)) {
      inode_->Write(offset, bytes.substr(0, files_->rng_.Below(bytes.size() + 1)));
      return UnavailableError("write " + path_ + ": Input/output error");
    }
    inode_->Write(offset, bytes);
    return OkStatus();
  }
  Status Truncate(int64_t size) override {
    std::lock_guard lock(files_->mutex_);
    inode_->Truncate(size);
    return OkStatus();
  }
  Status Allocate(int64_t size) override {
    std::lock_guard lock(files_->mutex_);
    const int64_t growth = size - static_cast<int64_t>(inode_->now.size());
    if (growth <= 0) return OkStatus();
    if (growth > files_->faults_.capacity_bytes - Used()) {
      return ResourceExhaustedError("make room for " + path_ + ": No space left on device");
    }
    inode_->Write(static_cast<int64_t>(inode_->now.size()),
                  std::string(static_cast<size_t>(growth), '\0'));
    return OkStatus();
  }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    std::lock_guard lock(files_->mutex_);
    if (offset >= static_cast<int64_t>(inode_->now.size())) return std::string();
    return inode_->now.substr(static_cast<size_t>(offset), static_cast<size_t>(length));
  }
  Result<int64_t> WrittenEnd(int64_t offset) override {
    std::lock_guard lock(files_->mutex_);
    return std::max(offset, static_cast<int64_t>(inode_->now.size()));
  }
  Status SyncData() override {
    std::lock_guard lock(files_->mutex_);
    const bool fails = files_->rng_.Chance(files_->faults_.flush_error_rate);
    for (const int64_t sector : inode_->dirty) {
      if (!fails || files_->rng_.Chance(0.5)) inode_->FlushSector(sector);
    }
    // After a failure the kernel thinks the pages clean: what did not land never will.
    inode_->dirty.clear();
    if (fails) return UnavailableError("flush " + path_ + ": Input/output error");
    return OkStatus();
  }
  Result<std::unique_ptr<SharedPage>> MapPage(bool) override {
    std::lock_guard lock(files_->mutex_);
    if (inode_->now.size() < static_cast<size_t>(kMetadataEnd)) {
      return UnavailableError("map " + path_ + ": shorter than a page");
    }
    return std::unique_ptr<SharedPage>(std::make_unique<MemoryPage>(files_, inode_));
  }
  const std::shared_ptr<MemoryFiles::Inode>& inode() const { return inode_; }

 private:
  int64_t Used() const { return files_->Used(inode_.get()); }
  MemoryFiles* const files_;
  const std::shared_ptr<MemoryFiles::Inode> inode_;
  const std::string path_;
};

class MemoryFileOps : public FileOps {
 public:
  explicit MemoryFileOps(MemoryFiles* files) : files_(files) {}

  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    std::lock_guard lock(files_->mutex_);
    if (!files_->folders_.contains(folder)) return Missing("create a file in " + folder);
    return std::unique_ptr<OpsFile>(std::make_unique<MemoryOpsFile>(
        files_, std::make_shared<MemoryFiles::Inode>(), folder + "/(new file)"));
  }
  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool) override {
    std::lock_guard lock(files_->mutex_);
    std::shared_ptr<MemoryFiles::Inode> inode = Find(path);
    if (inode == nullptr) return Missing("open " + path);
    return std::unique_ptr<OpsFile>(
        std::make_unique<MemoryOpsFile>(files_, std::move(inode), path));
  }
  Status Link(OpsFile& file, const std::string& path) override {
    std::lock_guard lock(files_->mutex_);
    return LinkInode(static_cast<MemoryOpsFile&>(file).inode(), path);
  }
  Status Unlink(const std::string& path) override {
    std::lock_guard lock(files_->mutex_);
    if (Find(path) == nullptr) return Missing("remove " + path);
    const auto [folder, name] = SplitPath(path);
    files_->folders_[folder].Do({name, nullptr, false});
    return OkStatus();
  }
  Result<bool> IsName(const std::string& path, OpsFile& file) override {
    std::lock_guard lock(files_->mutex_);
    return Find(path) == static_cast<MemoryOpsFile&>(file).inode();
  }
  Status SyncFolder(const std::string& folder) override {
    std::lock_guard lock(files_->mutex_);
    const auto it = files_->folders_.find(folder);
    if (it == files_->folders_.end()) return Missing("flush folder " + folder);
    it->second.durable = it->second.now;
    it->second.changes.clear();
    return OkStatus();
  }
  Status MakeFolder(const std::string& path) override {
    std::lock_guard lock(files_->mutex_);
    const auto [parent, name] = SplitPath(path);
    const auto it = files_->folders_.find(parent);
    if (it == files_->folders_.end()) return Missing("make folder " + path);
    if (it->second.now.contains(name)) return AlreadyExistsError("make folder " + path);
    it->second.Do({name, nullptr, true});
    files_->folders_[path];
    return OkStatus();
  }
  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    std::lock_guard lock(files_->mutex_);
    const auto it = files_->folders_.find(folder);
    if (it == files_->folders_.end()) return Missing("list " + folder);
    std::vector<OpsEntry> entries;
    for (const auto& [name, entry] : it->second.now) {
      entries.push_back({name, entry.inode == nullptr});
    }
    return entries;
  }
  Result<OpsRoom> Room() override {
    std::lock_guard lock(files_->mutex_);
    const int64_t total = files_->faults_.capacity_bytes;
    return OpsRoom{.free_bytes = std::max<int64_t>(total - files_->Used(nullptr), 0),
                   .total_bytes = total,
                   .where = "(memory)"};
  }
  Result<int64_t> AllocatedBytes(const std::string& path) override {
    std::lock_guard lock(files_->mutex_);
    const std::shared_ptr<MemoryFiles::Inode> inode = Find(path);
    if (inode == nullptr) return Missing("look at " + path);
    return static_cast<int64_t>(inode->now.size());
  }
  uint64_t AttachTag() override {
    std::lock_guard lock(files_->mutex_);
    return files_->attach_tag_;
  }
  uint64_t BootTag() override {
    std::lock_guard lock(files_->mutex_);
    return files_->boot_tag_;
  }
  uint64_t Random64() override {
    std::lock_guard lock(files_->mutex_);
    return files_->rng_.Next();
  }

 private:
  static Status Missing(const std::string& what) {
    return NotFoundError(what + ": No such file or directory");
  }
  std::shared_ptr<MemoryFiles::Inode> Find(const std::string& path) const {
    const auto [folder, name] = SplitPath(path);
    const auto it = files_->folders_.find(folder);
    if (it == files_->folders_.end()) return nullptr;
    const auto entry = it->second.now.find(name);
    return entry == it->second.now.end() ? nullptr : entry->second.inode;
  }
  Status LinkInode(std::shared_ptr<MemoryFiles::Inode> inode, const std::string& path) {
    const auto [folder, name] = SplitPath(path);
    const auto it = files_->folders_.find(folder);
    if (it == files_->folders_.end()) return Missing("link " + path);
    if (inode->was_linked && inode->links == 0) return Missing("link " + path);
    if (it->second.now.contains(name)) return AlreadyExistsError("link " + path);
    it->second.Do({name, std::move(inode), false});
    return OkStatus();
  }
  MemoryFiles* const files_;
};

MemoryFiles::MemoryFiles(uint64_t seed) : rng_(seed) { folders_[""]; }
MemoryFiles::~MemoryFiles() = default;

std::unique_ptr<FileOps> MemoryFiles::OpenOps() { return std::make_unique<MemoryFileOps>(this); }

void MemoryFiles::SetFaults(Faults faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}

void MemoryFiles::PowerLoss(Rng& rng, Damage damage) {
  std::lock_guard lock(mutex_);
  if (!damage.same_boot) ++boot_tag_;
  ++attach_tag_;
  // Names: a subset of the changes that were not flushed.
  for (auto& [path, folder] : folders_) {
    for (const Folder::Change& change : folder.changes) {
      if (rng.Chance(0.5)) Folder::Apply(folder.durable, change);
    }
    folder.changes.clear();
    folder.now = folder.durable;
  }
  // Folders that lost their name are gone with all in them.
  for (auto it = folders_.begin(); it != folders_.end();) {
    const auto [parent, name] = SplitPath(it->first);
    const auto above = folders_.find(parent);
    const bool there =
        it->first.empty() || (above != folders_.end() && above->second.now.contains(name));
    it = there ? std::next(it) : folders_.erase(it);
  }
  // Bytes. In order of path and name, so that a seed gives the same outcome each time.
  std::map<const Inode*, std::shared_ptr<Inode>> survivors;
  for (auto& [path, folder] : folders_) {
    for (auto& [name, entry] : folder.now) {
      if (entry.inode == nullptr) continue;
      auto [it, first] = survivors.try_emplace(entry.inode.get());
      if (first) {
        const Inode& old = *entry.inode;
        auto fresh = std::make_shared<Inode>();
        std::string content = old.durable;
        const auto durable_size = static_cast<int64_t>(old.durable.size());
        const bool grows = rng.Chance(0.7);  // did the new size survive?
        for (const int64_t s : old.dirty) {
          const int64_t begin = s * kSector;
          const int64_t end =
              std::min<int64_t>(begin + kSector, static_cast<int64_t>(old.now.size()));
          if (begin >= end) continue;
          const bool rewritten = begin < durable_size;
          const uint64_t fate = rng.Below(4);  // old, new, zeros, garbage
          if (fate == 0 || (!grows && !rewritten)) continue;
          if (end > durable_size && grows && static_cast<int64_t>(content.size()) < end) {
            content.resize(static_cast<size_t>(end), '\0');
          }
          const int64_t stop = std::min<int64_t>(end, static_cast<int64_t>(content.size()));
          if (fate == 1) {
            content.replace(
                static_cast<size_t>(begin), static_cast<size_t>(stop - begin),
                old.now.substr(static_cast<size_t>(begin), static_cast<size_t>(stop - begin)));
            continue;
          }
          // Only what had never been flushed can be anything.
          const bool garble_all =
              damage.garble_rewritten_metadata && begin >= kMetadataBegin && begin < kMetadataEnd;
          for (int64_t i = garble_all ? begin : std::max(begin, durable_size); i < stop; ++i) {
            content[static_cast<size_t>(i)] = fate == 2 ? '\0' : static_cast<char>(rng.Next());
          }
        }
        fresh->now = fresh->durable = std::move(content);
        it->second = std::move(fresh);
      }
      entry.inode = it->second;
      ++entry.inode->links;
      entry.inode->was_linked = true;
    }
    folder.durable = folder.now;
  }
}

int64_t MemoryFiles::Used(const Inode* open) const {
  std::set<const Inode*> seen{open};
  int64_t used = open == nullptr ? 0 : static_cast<int64_t>(open->now.size());
  for (const auto& [path, folder] : folders_) {
    for (const auto& [name, entry] : folder.now) {
      if (entry.inode != nullptr && seen.insert(entry.inode.get()).second) {
        used += static_cast<int64_t>(entry.inode->now.size());
      }
    }
  }
  return used;
}

size_t MemoryFiles::inodes() const {
  std::lock_guard lock(mutex_);
  std::set<const Inode*> seen;
  for (const auto& [path, folder] : folders_) {
    for (const auto& [name, entry] : folder.now) {
      if (entry.inode != nullptr) seen.insert(entry.inode.get());
    }
  }
  return seen.size();
}

std::unique_ptr<MemoryFiles> MemoryFiles::Clone() const {
  std::lock_guard lock(mutex_);
  auto copy = std::make_unique<MemoryFiles>(1);
  copy->rng_ = rng_;
  copy->faults_ = faults_;
  copy->boot_tag_ = boot_tag_;
  copy->attach_tag_ = attach_tag_;
  std::map<const Inode*, std::shared_ptr<Inode>> inodes;
  const auto copied = [&](const std::shared_ptr<Inode>& inode) -> std::shared_ptr<Inode> {
    if (inode == nullptr) return nullptr;
    std::shared_ptr<Inode>& to = inodes[inode.get()];
    if (to == nullptr) {
      to = std::make_shared<Inode>(*inode);
      to->lock_owner = nullptr;
    }
    return to;
  };
  for (const auto& [path, folder] : folders_) {
    Folder& to = copy->folders_[path];
    for (const auto& [name, entry] : folder.now) to.now[name] = {copied(entry.inode)};
    for (const auto& [name, entry] : folder.durable) to.durable[name] = {copied(entry.inode)};
    for (const Folder::Change& change : folder.changes) {
      to.changes.push_back({change.name, copied(change.inode), change.is_folder});
    }
  }
  return copy;
}

}  // namespace tailcast::storage
