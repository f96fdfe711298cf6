// The store's calls in blocking form, for tests and tools: each turns the loop until its callback
// ran. Not for agents, which share their loop with others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

// Turns the store's loop until the condition holds; false when it gave up. For example
// [&](auto done) { return loop.RunUntil(done, loop.Now() + Duration::Seconds(10)); }
using TurnLoop = std::function<bool(const std::function<bool()>& done)>;

// Calls `start(callback)` and turns the loop until the callback was given a T. Giving up is a bug
// of the store (CHECK): every call is answered.
template <typename T>
T Await(const TurnLoop& turn, const std::function<void(Callback<void(T)>)>& start) {
  std::optional<T> value;
  const Scope scope;
  start(scope.Bind([&value](T v) {
    TAILCAST_CHECK(!value.has_value(), "a callback ran twice");
    value.emplace(std::move(v));
  }));
  TAILCAST_CHECK(!value.has_value(), "a callback ran inside the call");
  TAILCAST_CHECK(turn([&] { return value.has_value(); }), "a callback never ran");
  return *std::move(value);
}

class SyncStore {
 public:
  // Neither is owned.
  SyncStore(Store* store, TurnLoop turn) : store_(store), turn_(std::move(turn)) {}

  using Appender = Result<std::unique_ptr<AppendFile>>;
  using Reader = Result<std::unique_ptr<ReadFile>>;

  Appender Create(const std::string& dir, const std::string& name, const std::string& key) {
    return Await<Appender>(
        turn_, [&](auto done) { store_->CreateExclusive(dir, name, key, std::move(done)); });
  }
  Appender Fence(const std::string& dir, const std::string& name) {
    return Await<Appender>(turn_,
                           [&](auto done) { store_->OpenFencing(dir, name, std::move(done)); });
  }
  Reader Open(const std::string& dir, const std::string& name) {
    return Await<Reader>(turn_, [&](auto done) { store_->OpenRead(dir, name, std::move(done)); });
  }
  AppendResult Append(AppendFile& file, int64_t offset, std::string bytes) {
    return Await<AppendResult>(
        turn_, [&](auto done) { file.AppendAt(offset, std::move(bytes), std::move(done)); });
  }
  // At the handle's own committed length.
  AppendResult Append(AppendFile& file, std::string bytes) {
    return Append(file, file.committed_length(), std::move(bytes));
  }
  Result<FileSize> Size(ReadFile& file) {
    return Await<Result<FileSize>>(turn_, [&](auto done) { file.Size(std::move(done)); });
  }
  Result<FileSize> CheckedSize(ReadFile& file) {
    return Await<Result<FileSize>>(turn_, [&](auto done) { file.CheckedSize(std::move(done)); });
  }
  Result<std::string> Read(ReadFile& file, int64_t offset, int64_t length) {
    return Await<Result<std::string>>(
        turn_, [&](auto done) { file.Read(offset, length, std::move(done)); });
  }
  // Reads on until `length` bytes or the committed end.
  Result<std::string> ReadFully(ReadFile& file, int64_t offset, int64_t length) {
    std::string all;
    while (static_cast<int64_t>(all.size()) < length) {
      const auto have = static_cast<int64_t>(all.size());
      Result<std::string> piece = Read(file, offset + have, length - have);
      if (!piece.ok()) return piece;
      if (piece->empty()) break;
      all += *piece;
    }
    return all;
  }
  // The whole file as a new reader sees it.
  Result<std::string> ReadAll(const std::string& dir, const std::string& name) {
    Reader file = Open(dir, name);
    if (!file.ok()) return file.status();
    return ReadFully(**file, 0, int64_t{1} << 40);
  }
  Result<std::vector<std::string>> List(const std::string& dir) {
    auto entries = Await<Result<std::vector<DirEntry>>>(
        turn_, [&](auto done) { store_->List(dir, std::move(done)); });
    if (!entries.ok()) return entries.status();
    std::vector<std::string> names;
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  Result<std::vector<std::string>> ListDirs(const std::string& dir) {
    return Await<Result<std::vector<std::string>>>(
        turn_, [&](auto done) { store_->ListDirs(dir, std::move(done)); });
  }
  Status Delete(const std::string& dir, const std::string& name) {
    return Await<Status>(turn_, [&](auto done) { store_->Delete(dir, name, std::move(done)); });
  }
  Result<std::string> Identify(const std::string& dir, const std::string& name) {
    return Await<Result<std::string>>(
        turn_, [&](auto done) { store_->Identify(dir, name, std::move(done)); });
  }
  Status DeleteExactly(const std::string& dir, const std::string& name, const std::string& id) {
    return Await<Status>(turn_,
                         [&](auto done) { store_->DeleteExactly(dir, name, id, std::move(done)); });
  }
  Status Quarantine(const std::string& dir, const std::string& name) {
    return Await<Status>(turn_, [&](auto done) { store_->Quarantine(dir, name, std::move(done)); });
  }
  Result<StoreRoom> Room() {
    return Await<Result<StoreRoom>>(turn_, [&](auto done) { store_->Room(std::move(done)); });
  }
  Store& store() { return *store_; }
  const TurnLoop& turn() const { return turn_; }

 private:
  Store* store_;
  TurnLoop turn_;
};

}  // namespace tailcast::storage
