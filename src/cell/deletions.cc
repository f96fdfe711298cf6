#include "tailcast/cell/deletions.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/strong.h"

namespace tailcast::cell {
namespace {

constexpr int kDoneMax = 10000;

bool IsDone(const v1::DeletedStream& deleted) {
  return !deleted.on_disk() && deleted.cells_to_tell_size() == 0;
}

}  // namespace

stream::StreamId IdOf(const v1::DeletedStream& deleted) {
  return {deleted.name(), stream::StreamIncarnation{deleted.incarnation()}};
}

Deletions::Deletions(v1::RegistrySnapshot* durable) : durable_(durable) {
  for (const v1::DeletedStream& deleted : durable_->deleted()) ids_.insert(IdOf(deleted));
}

v1::DeletedStream* Deletions::Find(const stream::StreamId& stream) {
  if (!Has(stream)) return nullptr;
  for (v1::DeletedStream& deleted : *durable_->mutable_deleted()) {
    if (deleted.incarnation() == Raw(stream.incarnation) && deleted.name() == stream.name) {
      return &deleted;
    }
  }
  return nullptr;
}

void Deletions::Add(const stream::StreamId& stream, int32_t shards,
                    std::vector<std::string> cells_to_tell, std::set<stream::StreamId>& changed) {
  auto* deleted = durable_->mutable_deleted();
  int64_t done = std::count_if(deleted->begin(), deleted->end(), IsDone);
  for (int i = 0; i < deleted->size() && done > kDoneMax;) {
    if (!IsDone(deleted->at(i))) {
      ++i;
      continue;
    }
    ids_.erase(IdOf(deleted->at(i)));
    changed.insert(IdOf(deleted->at(i)));
    deleted->DeleteSubrange(i, 1);
    --done;
  }
  v1::DeletedStream* entry = deleted->Add();
  entry->set_name(stream.name);
  entry->set_incarnation(Raw(stream.incarnation));
  entry->set_shards(shards);
  entry->set_on_disk(true);
  for (std::string& cell : cells_to_tell) entry->add_cells_to_tell(std::move(cell));
  ids_.insert(stream);
  changed.insert(stream);
}

bool Deletions::OnTold(const stream::StreamId& stream, const std::string& cell) {
  v1::DeletedStream* deleted = Find(stream);
  if (deleted == nullptr) return false;
  auto* cells = deleted->mutable_cells_to_tell();
  const auto it = std::find(cells->begin(), cells->end(), cell);
  if (it == cells->end()) return false;
  cells->erase(it);
  return true;
}

bool Deletions::SetOnDisk(const stream::StreamId& stream, bool on_disk) {
  v1::DeletedStream* deleted = Find(stream);
  if (deleted == nullptr || deleted->on_disk() == on_disk) return false;
  deleted->set_on_disk(on_disk);
  return true;
}

}  // namespace tailcast::cell
