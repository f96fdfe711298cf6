#include "tailcast/cell/registry_reader.h"

#include <algorithm>
#include <utility>

#include "tailcast/cell/registry_store.h"

namespace tailcast::cell {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

}  // namespace

struct RegistryReader::Search {
  std::string dir = RegistryStore::Options().dir;
  std::vector<std::string> names;  // of the log's files that were not read yet, ascending
  std::unique_ptr<storage::ReadFile> file;
  std::string bytes;
  Callback<void(Result<v1::RegistrySnapshot>)> done;
};

void RegistryReader::FindScheduler(Callback<void(Result<std::string>)> done) {
  ReadLast(scope_.Bind([done = std::move(done)](const Result<v1::RegistrySnapshot>& last) mutable {
    if (!last.ok() && !IsNotFound(last.status())) return done(last.status());
    if (!last.ok() || last->scheduler_address().empty()) {
      return done(NotFoundError("the cell's registry names no scheduler"));
    }
    done(last->scheduler_address());
  }));
}

void RegistryReader::CheckOwner(const v1::CellView& view, Callback<void(Status)> done) {
  ReadLast(scope_.Bind([id = view.registry_id(), cell = view.cell(), store = view.store(),
                        done = std::move(done)](const Result<v1::RegistrySnapshot>& last) mutable {
    if (!last.ok() && !IsNotFound(last.status())) return done(last.status());
    if (last.ok() && last->registry_id() == id) return done(OkStatus());
    done(
        FailedPreconditionError(store + " on this host is not the store of cell " + cell +
                                ", whose scheduler names it so: " +
                                (last.ok() ? "another registry lies there" : "it has no registry") +
                                "; run this on a host of the cell, where its store is mounted"));
  }));
}

void RegistryReader::ReadLast(Callback<void(Result<v1::RegistrySnapshot>)> done) {
  auto search = std::make_shared<Search>();
  search->done = std::move(done);
  store_.List(search->dir,
              scope_.Bind([this, search](Result<std::vector<storage::DirEntry>> entries) {
                if (!entries.ok()) return search->done(entries.status());
                for (storage::DirEntry& entry : *entries) {
                  if (RegistryStore::NumberOf(entry.name)) {
                    search->names.push_back(std::move(entry.name));
                  }
                }
                ReadFile(search);
              }));
}

// The last one of those that are left.
void RegistryReader::ReadFile(const std::shared_ptr<Search>& search) {
  if (search->names.empty()) {
    return search->done(NotFoundError("no registry lies in " + search->dir + "/"));
  }
  search->bytes.clear();
  store_.OpenRead(search->dir, search->names.back(),
                  scope_.Bind([this, search](Result<std::unique_ptr<storage::ReadFile>> file) {
                    if (!file.ok()) return search->done(file.status());
                    search->file = std::move(*file);
                    ReadOn(search);
                  }));
}

void RegistryReader::ReadOn(const std::shared_ptr<Search>& search) {
  search->file->Read(static_cast<int64_t>(search->bytes.size()), kReadBytes,
                     scope_.Bind([this, search](Result<std::string> piece) {
                       if (!piece.ok()) return search->done(piece.status());
                       search->bytes += *piece;
                       if (piece->empty()) return OnContent(search);
                       ReadOn(search);
                     }));
}

void RegistryReader::OnContent(const std::shared_ptr<Search>& search) {
  const auto content = ParseRegistryLog(search->bytes, search->dir + "/" + search->names.back());
  if (!content.ok()) return search->done(content.status());
  search->names.pop_back();
  // The newest may be empty still: then the state is at the end of the one before.
  if (!content->last) return ReadFile(search);
  search->done(*content->last);
}

}  // namespace tailcast::cell
