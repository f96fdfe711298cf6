#include "tailcast/cell/departures.h"

#include <algorithm>
#include <set>

#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {
namespace {

using stream::StreamId;

using Edges = google::protobuf::RepeatedPtrField<v1::TreeEdge>;

bool Names(const Edges& edges, const std::string& cell) {
  return std::any_of(edges.begin(), edges.end(), [&](const v1::TreeEdge& edge) {
    return edge.from() == cell || edge.to() == cell;
  });
}

template <typename Message>
StreamId StreamOf(const Message& message) {
  return {message.stream(), stream::StreamIncarnation{message.incarnation()}};
}

template <typename Message>
void SetStream(const StreamId& stream, Message* out) {
  out->set_stream(stream.name);
  out->set_incarnation(Raw(stream.incarnation));
}

template <typename Message>
void EraseOf(const StreamId& stream, google::protobuf::RepeatedPtrField<Message>* all) {
  all->erase(std::remove_if(all->begin(), all->end(),
                            [&](const Message& one) { return StreamOf(one) == stream; }),
             all->end());
}

}  // namespace

bool NamesCell(const v1::StreamConfig& stream, const std::string& cell) {
  const auto& destinations = stream.destinations();
  return stream.source() == cell || Names(stream.tree(), cell) ||
         std::find(destinations.begin(), destinations.end(), cell) != destinations.end() ||
         Names(stream.change().base(), cell) || Names(stream.change().abandoned(), cell);
}

// --- in the source

v1::Leaver* Departures::Find(const StreamId& stream, const std::string& cell) const {
  for (v1::Leaver& leaver : *durable_->mutable_leavers()) {
    if (StreamOf(leaver) == stream && leaver.cell() == cell) return &leaver;
  }
  return nullptr;
}

void Departures::OnTree(const v1::StreamConfig& before, const v1::StreamConfig& now) {
  const StreamId id = stream::IdOf(now);
  std::set<std::string> in_tree{now.source()}, left;
  for (const v1::TreeEdge& edge : now.tree()) in_tree.insert(edge.to());
  for (const Edges* edges : {&before.tree(), &now.change().base(), &now.change().abandoned()}) {
    for (const v1::TreeEdge& edge : *edges) left.insert({edge.from(), edge.to()});
  }
  auto* leavers = durable_->mutable_leavers();
  leavers->erase(std::remove_if(leavers->begin(), leavers->end(),
                                [&](const v1::Leaver& leaver) {
                                  return StreamOf(leaver) == id && in_tree.contains(leaver.cell());
                                }),
                 leavers->end());
  for (const std::string& cell : left) {
    if (!in_tree.contains(cell)) Add(id, cell);
  }
}

std::string Departures::FindGoing(const v1::StreamConfig& stream) const {
  const StreamId id = stream::IdOf(stream);
  for (const v1::Leaver& leaver : durable_->leavers()) {
    if (leaver.going() && StreamOf(leaver) == id && NamesCell(stream, leaver.cell())) {
      return leaver.cell();
    }
  }
  return "";
}

bool Departures::Add(const StreamId& stream, const std::string& cell) {
  if (Find(stream, cell) != nullptr) return false;
  v1::Leaver* leaver = durable_->add_leavers();
  SetStream(stream, leaver);
  leaver->set_cell(cell);
  leaver->set_order(durable_->last_leave_order() + 1);
  durable_->set_last_leave_order(leaver->order());
  return true;
}

bool Departures::BeginGoing(const StreamId& stream, const std::string& cell, uint64_t order) {
  v1::Leaver* leaver = Find(stream, cell);
  if (leaver == nullptr || leaver->order() != order || leaver->going()) return false;
  leaver->set_going(true);
  return true;
}

bool Departures::OnGone(const StreamId& stream, const std::string& cell, uint64_t order) {
  const v1::Leaver* leaver = Find(stream, cell);
  if (leaver == nullptr || leaver->order() != order) return false;
  auto* leavers = durable_->mutable_leavers();
  leavers->erase(std::find_if(leavers->begin(), leavers->end(),
                              [&](const v1::Leaver& one) { return &one == leaver; }));
  return true;
}

// --- in a cell that left

const v1::DroppedCopy* Departures::FindDropped(const StreamId& stream) const {
  for (const v1::DroppedCopy& dropped : durable_->dropped()) {
    if (StreamOf(dropped) == stream) return &dropped;
  }
  return nullptr;
}

bool Departures::IsDropping(const StreamId& stream) const {
  const v1::DroppedCopy* dropped = FindDropped(stream);
  return dropped != nullptr && dropped->going();
}

void Departures::Drop(const StreamId& stream, int32_t shards, uint64_t order) {
  EraseOf(stream, durable_->mutable_dropped());
  v1::DroppedCopy* dropped = durable_->add_dropped();
  SetStream(stream, dropped);
  dropped->set_shards(shards);
  dropped->set_order(order);
  dropped->set_going(true);
}

bool Departures::OnDropped(const StreamId& stream, uint64_t order) {
  for (v1::DroppedCopy& dropped : *durable_->mutable_dropped()) {
    if (StreamOf(dropped) != stream || dropped.order() != order || !dropped.going()) continue;
    dropped.set_going(false);
    return true;
  }
  return false;
}

void Departures::Forget(const StreamId& stream) {
  EraseOf(stream, durable_->mutable_leavers());
  EraseOf(stream, durable_->mutable_dropped());
}

}  // namespace tailcast::cell
