#include "tailcast/reader/operation_table.h"

#include <algorithm>
#include <string>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"

namespace tailcast::reader {

Status OperationTable::CheckScheduler(stream::SchedulerIncarnation incarnation) {
  if (incarnation == stream::SchedulerIncarnation::kNone)
    return InvalidArgumentError("scheduler_incarnation is 0");
  if (incarnation < scheduler_incarnation_) {
    return FailedPreconditionError("scheduler " + std::to_string(Raw(incarnation)) +
                                   " was replaced by scheduler " +
                                   std::to_string(Raw(scheduler_incarnation_)));
  }
  scheduler_incarnation_ = incarnation;
  return OkStatus();
}

std::pair<OperationTable::Verdict, uint64_t> OperationTable::Judge(
    const stream::Operation& wanted) const {
  const auto it = by_target_.find(wanted.target);
  if (it == by_target_.end()) {
    return {ends_.contains({wanted.target, wanted.id}) ? Verdict::kLate : Verdict::kStart, 0};
  }
  const stream::OperationId& running = entries_.at(it->second).operation.id;
  if (running == wanted.id) return {Verdict::kKnown, it->second};
  return {running > wanted.id ? Verdict::kLate : Verdict::kReplace, it->second};
}

uint64_t OperationTable::Add(stream::Operation operation) {
  const uint64_t number = next_number_++;
  TAILCAST_CHECK(by_target_.emplace(operation.target, number).second,
                 "two operations run for one target");
  Entry& entry = entries_[number];
  entry.operation = std::move(operation);
  entry.version = ++version_;
  return number;
}

void OperationTable::OnChanged(uint64_t number) {
  const auto it = entries_.find(number);
  if (it != entries_.end()) it->second.version = ++version_;
}

void OperationTable::OnOpened(uint64_t number) {
  const auto it = entries_.find(number);
  if (it != entries_.end()) it->second.version = it->second.news = ++version_;
}

void OperationTable::OnEnded(uint64_t number, v1::OperationReport last_report) {
  Entry& entry = entries_.at(number);
  TAILCAST_CHECK(!entry.last_report, "an operation ended twice");
  entry.version = entry.news = ++version_;
  entry.last_report = std::move(last_report);
  by_target_.erase(entry.operation.target);
  RememberEnd(entry.operation);
  if (static_cast<int64_t>(entries_.size()) - running() <= ended_max_) return;
  const auto oldest = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e.second.last_report && e.first != number;
  });
  if (oldest != entries_.end()) entries_.erase(oldest);
}

void OperationTable::RememberEnd(const stream::Operation& operation) {
  const auto [end, added] = ends_.emplace(operation.target, operation.id);
  if (!added) return;
  ends_in_order_.push_back(*end);
  if (static_cast<int64_t>(ends_.size()) <= ended_max_) return;
  ends_.erase(ends_in_order_.front());
  ends_in_order_.pop_front();
}

std::vector<uint64_t> OperationTable::Running() const {
  std::vector<uint64_t> numbers;
  for (const auto& [target, number] : by_target_) numbers.push_back(number);
  return numbers;
}

std::vector<uint64_t> OperationTable::RunningOf(const std::set<stream::OperationId>& ids) const {
  std::vector<uint64_t> numbers;
  for (const auto& [target, number] : by_target_) {
    if (ids.contains(entries_.at(number).operation.id)) numbers.push_back(number);
  }
  return numbers;
}

void OperationTable::Acknowledge(uint64_t known) {
  if (MustTellAll(known)) return;
  std::erase_if(entries_, [known](const auto& entry) {
    return entry.second.last_report && entry.second.version <= known;
  });
}

bool OperationTable::HasNews(uint64_t known) const {
  if (MustTellAll(known)) return true;
  return std::any_of(entries_.begin(), entries_.end(),
                     [known](const auto& entry) { return entry.second.news > known; });
}

std::vector<std::pair<uint64_t, const OperationTable::Entry*>> OperationTable::ChangedSince(
    uint64_t known) const {
  if (MustTellAll(known)) known = 0;
  std::vector<std::pair<uint64_t, const Entry*>> changed;
  for (const auto& [number, entry] : entries_) {
    if (entry.version > known) changed.emplace_back(number, &entry);
  }
  return changed;
}

}  // namespace tailcast::reader
