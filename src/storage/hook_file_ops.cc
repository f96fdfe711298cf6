#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tailcast/storage/file_ops.h"

namespace tailcast::storage {
namespace {

class HookedPage : public SharedPage {
 public:
  HookedPage(std::unique_ptr<SharedPage> page, FileOpsHook before, std::string path)
      : page_(std::move(page)), before_(std::move(before)), path_(std::move(path)) {}
  uint64_t Load(int64_t offset) override {
    const Status ignored = before_("load", path_);
    static_cast<void>(ignored);
    return page_->Load(offset);
  }
  void Store(int64_t offset, uint64_t value) override {
    if (before_("store", path_).ok()) page_->Store(offset, value);
  }
  bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) override {
    return before_("swap", path_).ok() && page_->CompareAndSwap(offset, expected, desired);
  }
  bool lost() const override { return page_->lost(); }
  bool resident() const override { return page_->resident(); }

 private:
  const std::unique_ptr<SharedPage> page_;
  const FileOpsHook before_;
  const std::string path_;
};

class HookedFile : public OpsFile {
 public:
  HookedFile(std::unique_ptr<OpsFile> file, FileOpsHook before, FileOpsLoss loses, std::string path)
      : file_(std::move(file)),
        before_(std::move(before)),
        loses_(std::move(loses)),
        path_(std::move(path)) {}
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    TAILCAST_RETURN_IF_ERROR(before_("write", path_));
    if (loses_ == nullptr) return file_->WriteAt(offset, bytes);
    if (loses_("write", path_)) return OkStatus();
    const std::lock_guard lock(mutex_);
    const auto length = static_cast<int64_t>(bytes.size());
    TAILCAST_ASSIGN_OR_RETURN(std::string old, file_->ReadAt(offset, length));
    unflushed_.push_back({offset, length, std::move(old)});
    return file_->WriteAt(offset, bytes);
  }
  Status Truncate(int64_t size) override {
    TAILCAST_RETURN_IF_ERROR(before_("truncate", path_));
    return file_->Truncate(size);
  }
  Status Allocate(int64_t size) override {
    TAILCAST_RETURN_IF_ERROR(before_("allocate", path_));
    return file_->Allocate(size);
  }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    TAILCAST_RETURN_IF_ERROR(before_("read", path_));
    return file_->ReadAt(offset, length);
  }
  Result<int64_t> WrittenEnd(int64_t offset) override {
    TAILCAST_RETURN_IF_ERROR(before_("look", path_));
    return file_->WrittenEnd(offset);
  }
  Status SyncData() override {
    TAILCAST_RETURN_IF_ERROR(before_("flush", path_));
    if (loses_ == nullptr) return file_->SyncData();
    const std::lock_guard lock(mutex_);
    if (loses_("flush", path_)) return Revert();
    unflushed_.clear();
    return file_->SyncData();
  }
  Result<bool> TryLock() override {
    TAILCAST_RETURN_IF_ERROR(before_("lock", path_));
    return file_->TryLock();
  }
  void Unlock() override { file_->Unlock(); }
  Result<std::unique_ptr<SharedPage>> MapPage(bool writable) override {
    TAILCAST_RETURN_IF_ERROR(before_("map", path_));
    TAILCAST_ASSIGN_OR_RETURN(auto page, file_->MapPage(writable));
    return std::unique_ptr<SharedPage>(
        std::make_unique<HookedPage>(std::move(page), before_, path_));
  }
  OpsFile& inner() { return *file_; }
  // Nobody else has the file yet.
  void SetPath(const std::string& path) { path_ = path; }

 private:
  struct Write {
    int64_t offset = 0;
    int64_t length = 0;  // bytes that it wrote
    std::string old;     // shorter where the inode ended
  };
  Status Revert() {
    for (; !unflushed_.empty(); unflushed_.pop_back()) {
      const Write& write = unflushed_.back();
      TAILCAST_RETURN_IF_ERROR(file_->WriteAt(write.offset, write.old));
      const auto kept = static_cast<int64_t>(write.old.size());
      if (kept < write.length) TAILCAST_RETURN_IF_ERROR(file_->Truncate(write.offset + kept));
    }
    return OkStatus();
  }

  const std::unique_ptr<OpsFile> file_;
  const FileOpsHook before_;
  const FileOpsLoss loses_;
  std::string path_;
  std::mutex mutex_;
  std::vector<Write> unflushed_;  // in order; kept only where flushes may lose them
};

class HookedFileOps : public FileOps {
 public:
  HookedFileOps(std::shared_ptr<FileOps> ops, FileOpsHook before, FileOpsLoss loses)
      : ops_(std::move(ops)), before_(std::move(before)), loses_(std::move(loses)) {}
  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("create", folder));
    return Wrap(ops_->CreateUnnamed(folder), folder + "/(new file)");
  }
  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) override {
    TAILCAST_RETURN_IF_ERROR(before_("open", path));
    return Wrap(ops_->Open(path, writable), path);
  }
  Status Link(OpsFile& file, const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("link", path));
    auto& hooked = static_cast<HookedFile&>(file);
    TAILCAST_RETURN_IF_ERROR(ops_->Link(hooked.inner(), path));
    hooked.SetPath(path);
    return OkStatus();
  }
  Status Unlink(const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("unlink", path));
    return ops_->Unlink(path);
  }
  Result<bool> IsName(const std::string& path, OpsFile& file) override {
    TAILCAST_RETURN_IF_ERROR(before_("name", path));
    return ops_->IsName(path, static_cast<HookedFile&>(file).inner());
  }
  Status SyncFolder(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("flush folder", folder));
    return ops_->SyncFolder(folder);
  }
  Status MakeFolder(const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("make folder", path));
    return ops_->MakeFolder(path);
  }
  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("list", folder));
    return ops_->ListFolder(folder);
  }
  Result<OpsRoom> Room() override { return ops_->Room(); }
  Result<int64_t> AllocatedBytes(const std::string& path) override {
    return ops_->AllocatedBytes(path);
  }
  uint64_t AttachTag() override { return ops_->AttachTag(); }
  uint64_t BootTag() override { return ops_->BootTag(); }
  uint64_t Random64() override { return ops_->Random64(); }

 private:
  Result<std::unique_ptr<OpsFile>> Wrap(Result<std::unique_ptr<OpsFile>> file, std::string path) {
    if (!file.ok()) return file;
    return std::unique_ptr<OpsFile>(
        std::make_unique<HookedFile>(*std::move(file), before_, loses_, std::move(path)));
  }
  const std::shared_ptr<FileOps> ops_;
  const FileOpsHook before_;
  const FileOpsLoss loses_;
};

}  // namespace

std::unique_ptr<FileOps> HookFileOps(FileOps* ops, FileOpsHook before) {
  return std::make_unique<HookedFileOps>(std::shared_ptr<FileOps>(ops, [](FileOps*) {}),
                                         std::move(before), nullptr);
}

std::unique_ptr<FileOps> HookFileOps(std::unique_ptr<FileOps> ops, FileOpsHook before,
                                     FileOpsLoss loses) {
  return std::make_unique<HookedFileOps>(std::move(ops), std::move(before), std::move(loses));
}

}  // namespace tailcast::storage
